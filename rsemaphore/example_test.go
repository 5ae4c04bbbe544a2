package rsemaphore_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/rsemaphore"
)

func ExampleSemaphore() {
	client, _ := holdfast.Open(rsemaphore.Server().URL())
	defer client.Close()
	ctx := context.Background()

	s := client.Semaphore("rsemaphore-example:downloads")
	s.TrySetPermits(ctx, 3) // whoever comes first
	if err := s.Acquire(ctx, 2); err != nil {
		fmt.Println(err)
		return
	}
	defer s.Release(ctx, 2)
	err := s.TryAcquire(ctx, 2)
	fmt.Println(errors.Is(err, holdfast.ErrNotAcquired))
	fmt.Println(err)
	// Output:
	// true
	// holdfast: not acquired: "rsemaphore-example:downloads": wanted 2, free 1
}

func ExampleOption() {
	client, _ := holdfast.Open(rsemaphore.Server().URL())
	defer client.Close()
	ctx := context.Background()

	s := client.Semaphore("rsemaphore-example:options")
	s.TrySetPermits(ctx, 1)
	fmt.Println(s.TryAcquire(ctx, 1, rsemaphore.Wait(5*time.Second)))
	// Output:
	// <nil>
}
