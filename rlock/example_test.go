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
