package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/rlock"
)

func ExampleLock() {
	client, _ := holdfast.Open(rlock.URL())
	defer client.Close()
	ctx := context.Background()

	lock := client.Lock("rlock-example:lock")
	outer, _ := lock.Lock(ctx)
	inner, _ := lock.Lock(outer.Context()) // re-enters: the context carries the owner
	count, _ := lock.HoldCount(outer.Context())
	fmt.Println("holds:", count)
	fmt.Println(inner.Unlock(ctx), outer.Unlock(ctx))
	// Output:
	// holds: 2
	// <nil> <nil>
}

// Code that takes a Locker works with every kind of lock.
func ExampleLocker() {
	client, _ := holdfast.Open(rlock.URL())
	defer client.Close()

	nightly := func(l rlock.Locker) error {
		return l.Do(context.Background(), func(ctx context.Context) error {
			fmt.Println("running under", l.Name())
			return ctx.Err()
		}, rlock.Wait(time.Second))
	}
	fmt.Println(nightly(client.Lock("rlock-example:nightly")))
	// Output:
	// running under rlock-example:nightly
	// <nil>
}

func ExampleHold_Extend() {
	client, _ := holdfast.Open(rlock.URL())
	defer client.Close()
	ctx := context.Background()

	hold, _ := client.Lock("rlock-example:extend").Lock(ctx, rlock.Lease(time.Second))
	defer hold.Unlock(ctx)
	err := hold.Extend(ctx, time.Minute)
	fmt.Println(err, time.Until(hold.ExpiresAt()) > 50*time.Second)
	// Output:
	// <nil> true
}

func ExampleOption() {
	client, _ := holdfast.Open(rlock.URL())
	defer client.Close()
	ctx := context.Background()

	patient := []rlock.Option{rlock.Wait(5 * time.Second), rlock.Lease(30 * time.Second)}
	hold, err := client.Lock("rlock-example:options").TryLock(ctx, patient...)
	fmt.Println(err, hold.Unlock(ctx))
	// Output:
	// <nil> <nil>
}

func ExampleLockOption() {
	client, _ := holdfast.Open(rlock.URL())
	defer client.Close()
	ctx := context.Background()

	lock := client.Lock("rlock-example:non-reentrant", rlock.NonReentrant())
	hold, _ := lock.Lock(ctx)
	defer hold.Unlock(ctx)
	_, err := lock.Lock(hold.Context())
	fmt.Println(errors.Is(err, holdfast.ErrReentry))
	// Output:
	// true
}

// The token goes with each write to whatever the lock protects; see module fence.
func ExampleFencedLock() {
	client, _ := holdfast.Open(rlock.URL())
	defer client.Close()
	ctx := context.Background()

	lock := client.FencedLock("rlock-example:fenced")
	first, _ := lock.Lock(ctx)
	inner, _ := lock.Lock(first.Context())
	fmt.Println("a re-entry keeps its token:", inner.Token() == first.Token())
	fmt.Println(inner.Unlock(ctx), first.Unlock(ctx))

	second, _ := lock.Lock(ctx)
	fmt.Println("the next holder's is larger:", second.Token() > first.Token())
	fmt.Println(second.Unlock(ctx))
	// Output:
	// a re-entry keeps its token: true
	// <nil> <nil>
	// the next holder's is larger: true
	// <nil>
}

// After Redis has lost its data the tokens go on from the largest that the
// database has seen.
func ExampleFencedLock_RaiseToken() {
	client, _ := holdfast.Open(rlock.URL())
	defer client.Close()
	ctx := context.Background()

	lock := client.FencedLock("rlock-example:restored")
	const seen = 40 // SELECT max(last_fence) FROM …
	fmt.Println(lock.RaiseToken(ctx, seen))
	hold, _ := lock.Lock(ctx)
	fmt.Println(hold.Token())
	fmt.Println(hold.Unlock(ctx))
	fmt.Println(lock.DeleteToken(ctx)) // the name is retired
	// Output:
	// <nil>
	// 41
	// <nil>
	// true <nil>
}

func ExampleSpinLock() {
	client, _ := holdfast.Open(rlock.URL())
	defer client.Close()
	ctx := context.Background()

	lock := client.SpinLock("rlock-example:spin", nil) // 1 ms, doubling, to 128 ms
	hold, err := lock.TryLock(ctx, rlock.Wait(time.Second))
	fmt.Println(err, hold.Unlock(ctx))
	// Output:
	// <nil> <nil>
}

func ExampleBackoff() {
	client, _ := holdfast.Open(rlock.URL())
	defer client.Close()
	ctx := context.Background()

	for _, b := range []rlock.Backoff{
		rlock.ConstantBackoff(50 * time.Millisecond),
		rlock.ExponentialBackoff{Initial: 10 * time.Millisecond, Max: time.Second},
	} {
		hold, err := client.SpinLock("rlock-example:backoff", b).Lock(ctx)
		fmt.Println(err, hold.Unlock(ctx))
	}
	// Output:
	// <nil> <nil>
	// <nil> <nil>
}

func ExampleConstantBackoff() {
	b := rlock.ConstantBackoff(50 * time.Millisecond)
	fmt.Println(b.Delay(1), b.Delay(20))
	// Output: 50ms 50ms
}

func ExampleExponentialBackoff() {
	b := rlock.ExponentialBackoff{Initial: 10 * time.Millisecond, Max: time.Second, Multiplier: 3}
	d := b.Delay(2)
	fmt.Println(d >= 15*time.Millisecond, d <= 30*time.Millisecond, b.Delay(100) <= time.Second)
	// Output: true true true
}

// Waiters of any number of processes get in as they came.
func ExampleFairLock() {
	client, _ := holdfast.Open(rlock.URL())
	defer client.Close()
	ctx := context.Background()

	lock := client.FairLock("rlock-example:fair")
	hold, _ := lock.Lock(ctx)
	served := make(chan bool)
	go func() {
		next, _ := lock.Lock(ctx) // stands in line
		served <- true
		_ = next.Unlock(ctx)
	}()
	_, err := lock.TryLock(ctx) // doesn't, and passes nobody
	fmt.Println(errors.Is(err, holdfast.ErrNotAcquired))
	_ = hold.Unlock(ctx)
	fmt.Println(<-served)
	// Output:
	// true
	// true
}
