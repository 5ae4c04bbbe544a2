package rlatch_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/rlatch"
)

// Three workers report; whoever waits, in whatever process, goes on after the last.
func ExampleLatch() {
	client, _ := holdfast.Open(rlatch.Server().URL())
	defer client.Close()
	ctx := context.Background()

	done := client.Latch("rlatch-example:import")
	set, err := done.TrySetCount(ctx, 3)
	fmt.Println("set:", set, err)
	var workers sync.WaitGroup
	for range 3 {
		workers.Go(func() {
			if err := done.CountDown(ctx); err != nil {
				fmt.Println(err)
			}
		})
	}
	fmt.Println("open:", done.Await(ctx))
	workers.Wait()
	// Output:
	// set: true <nil>
	// open: <nil>
}

func ExampleOption() {
	client, _ := holdfast.Open(rlatch.Server().URL())
	defer client.Close()
	ctx := context.Background()

	done := client.Latch("rlatch-example:bounded")
	_, _ = done.TrySetCount(ctx, 1)
	err := done.TryAwait(ctx, holdfast.Wait(20*time.Millisecond))
	fmt.Println(errors.Is(err, holdfast.ErrNotAcquired))
	// Output:
	// true
}
