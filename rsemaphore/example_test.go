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
	_, _ = s.TrySetPermits(ctx, 3) // whoever comes first
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
	_, _ = s.TrySetPermits(ctx, 1)
	fmt.Println(s.TryAcquire(ctx, 1, rsemaphore.Wait(5*time.Second)))
	// Output:
	// <nil>
}

// Permits of a process that dies come back when their lease ends.
func ExampleExpirable() {
	client, _ := holdfast.Open(rsemaphore.Server().URL())
	defer client.Close()
	ctx := context.Background()

	e := client.ExpirableSemaphore("rsemaphore-example:workers")
	_, _ = e.TrySetPermits(ctx, 3)
	permits, _ := e.AcquireN(ctx, 2) // renewed until they are given back
	available, _ := e.Available(ctx)
	fmt.Println("left:", available)

	ids := []string{permits[0].ID(), permits[1].ID()}
	fmt.Println(e.Release(ctx, ids...)) // by anyone who knows them
	fmt.Println(errors.Is(e.Release(ctx, ids...), holdfast.ErrNotHeld))
	// Output:
	// left: 1
	// <nil>
	// true
}

func ExamplePermit() {
	client, _ := holdfast.Open(rsemaphore.Server().URL())
	defer client.Close()
	ctx := context.Background()

	e := client.ExpirableSemaphore("rsemaphore-example:permit")
	_, _ = e.TrySetPermits(ctx, 1)
	permit, err := e.Acquire(ctx, rsemaphore.Lease(time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	work := permit.Context() // ends before the permit can be somebody else's
	fmt.Println(work.Err(), permit.Release(ctx))
	fmt.Println(context.Cause(work))
	// Output:
	// <nil> <nil>
	// holdfast: hold given back
}

// A permit passes to another process by a handle, once.
func ExamplePermit_Detach() {
	client, _ := holdfast.Open(rsemaphore.Server().URL())
	defer client.Close()
	ctx := context.Background()

	e := client.ExpirableSemaphore("rsemaphore-example:handle")
	_, _ = e.TrySetPermits(ctx, 1)
	permit, _ := e.Acquire(ctx)
	handle, _ := permit.Detach()

	permit, err := e.Resume(ctx, handle) // as a rule in another process
	fmt.Println(err, permit.Release(ctx))
	// Output:
	// <nil> <nil>
}
