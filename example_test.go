package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/rlock"
)

// In these examples url is that of a running server: redis://127.0.0.1:6379.

func ExampleClient() {
	url := server.URL()
	client, err := holdfast.Open(url)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()

	hold, err := client.Lock("example:order").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("holding", hold.Name())
	fmt.Println("unlock:", hold.Unlock(ctx))
	fmt.Println("shutdown:", client.Shutdown(ctx)) // gives back what is still held
	// Output:
	// holding example:order
	// unlock: <nil>
	// shutdown: <nil>
}

func ExampleNew() {
	rdb := redis.NewClient(server.Options()) // yours: close it after the holdfast client
	client, err := holdfast.New(rdb, holdfast.WithPrefix("shop:"), holdfast.WithLease(10*time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	err = client.Lock("example:new").Do(context.Background(), func(ctx context.Context) error {
		fmt.Println("locked:", rdb.Exists(ctx, "shop:example:new").Val() == 1)
		return nil
	})
	fmt.Println(err, client.Close(), rdb.Close())
	// Output:
	// locked: true
	// <nil> <nil> <nil>
}

// Errors answer the next question: who has it, and for how long?
func ExampleNotAcquiredError() {
	client, _ := holdfast.Open(server.URL())
	defer client.Close()
	ctx := context.Background()
	hold, _ := client.Lock("example:taken").Lock(ctx, holdfast.Lease(time.Minute))
	defer hold.Unlock(ctx)

	_, err := client.Lock("example:taken").TryLock(ctx, holdfast.Wait(10*time.Millisecond))
	var taken *holdfast.NotAcquiredError
	if errors.As(err, &taken) {
		fmt.Println(taken.Name, "is free in a minute at the latest:", taken.Remaining <= time.Minute)
	}
	// Output:
	// example:taken is free in a minute at the latest: true
}

func ExampleNotHeldError() {
	client, _ := holdfast.Open(server.URL())
	defer client.Close()
	ctx := holdfast.WithOwner(context.Background())
	lock := client.Lock("example:not-held")

	why := func() holdfast.Reason {
		var e *holdfast.NotHeldError
		errors.As(lock.Unlock(ctx), &e)
		return e.Reason
	}
	fmt.Println(why())
	_, _ = lock.TryLock(ctx) // an error of either would show in what is printed
	_ = lock.Unlock(ctx)
	fmt.Println(why())
	hold, _ := lock.TryLock(ctx, holdfast.Lease(10*time.Millisecond))
	<-hold.Context().Done()
	fmt.Println(why())
	// Output:
	// never held by this owner
	// already given back
	// expired or lost
}

// An owner made up front: what is locked with a context is unlocked with it.
func ExampleWithOwner() {
	client, _ := holdfast.Open(server.URL())
	defer client.Close()
	lock := client.Lock("example:owner")

	ctx := holdfast.WithOwner(context.Background())
	if _, err := lock.TryLock(ctx, rlock.Wait(5*time.Second), rlock.Lease(30*time.Second)); err != nil {
		fmt.Println(err)
		return
	}
	defer lock.Unlock(ctx)

	_, again := lock.TryLock(ctx)                     // the same owner walks in
	_, other := lock.TryLock(holdfast.WithOwner(ctx)) // somebody else doesn't
	fmt.Println(again, errors.Is(other, holdfast.ErrNotAcquired))
	_ = lock.Unlock(ctx) // the inner hold; the last one is deferred
	// Output:
	// <nil> true
}

func ExampleWithOwnerID() {
	client, _ := holdfast.Open(server.URL())
	defer client.Close()
	ctx := holdfast.WithOwnerID(context.Background(), "17") // as Redisson does with a thread id
	hold, _ := client.Lock("example:owner-id").Lock(ctx)
	fmt.Println(hold.Owner() == client.ID()+":17", hold.Unlock(ctx))
	// Output:
	// true <nil>
}

// Code under a lock takes the hold's context, and stops when it ends.
func ExampleHold() {
	client, _ := holdfast.Open(server.URL(), holdfast.WithLease(300*time.Millisecond))
	defer client.Close()
	ctx := context.Background()
	lock := client.Lock("example:lost")
	hold, _ := lock.Lock(ctx)

	other, _ := holdfast.Open(server.URL())
	defer other.Close()
	_, _ = other.Lock("example:lost").ForceUnlock(ctx) // an operator

	<-hold.Context().Done()
	fmt.Println("lost:", errors.Is(context.Cause(hold.Context()), holdfast.ErrLost))
	fmt.Println("unlock says so too:", errors.Is(hold.Unlock(ctx), holdfast.ErrLost))
	// Output:
	// lost: true
	// unlock says so too: true
}

// A hold moves to another process: the handle is a short text, and works once.
func ExampleClient_Resume() {
	ctx := context.Background()
	web, _ := holdfast.Open(server.URL())
	worker, _ := holdfast.Open(server.URL())
	defer web.Close()
	defer worker.Close()

	hold, _ := web.Lock("example:hand-over").Lock(ctx)
	handle, err := hold.Detach()
	fmt.Println(err)

	taken, err := worker.Resume(ctx, handle)
	fmt.Println(err, taken.Name())
	_, err = web.Resume(ctx, handle)
	fmt.Println("a second time:", errors.Is(err, holdfast.ErrNotHeld))
	fmt.Println(taken.Unlock(ctx))
	// Output:
	// <nil>
	// <nil> example:hand-over
	// a second time: true
	// <nil>
}

type payment struct {
	Order  string
	Amount int
}

// A handler that must run once at a time per order, over all pods.
func ExampleGuard() {
	client, _ := holdfast.Open(server.URL())
	defer client.Close()

	charge := holdfast.Guard(client,
		func(p payment) string { return "example:payment:" + p.Order },
		func(ctx context.Context, p payment) (string, error) {
			return fmt.Sprintf("charged %d for %s", p.Amount, p.Order), nil
		},
		holdfast.Wait(5*time.Second))

	fmt.Println(charge(context.Background(), payment{Order: "42", Amount: 7}))
	// Output:
	// charged 7 for 42 <nil>
}

// Metrics: how long callers wait, how long they hold, and how many are in.
func ExampleWithObserver() {
	held := 0 // in a program: a gauge, and histograms for Waited and Held
	client, _ := holdfast.Open(server.URL(), holdfast.WithObserver(func(e holdfast.Event) {
		switch e := e.(type) {
		case holdfast.Acquired:
			held++
			fmt.Println("acquired", e.Kind, e.Name, e.Waited < time.Minute)
		case holdfast.Refused:
			fmt.Println("refused", e.Name, e.Err)
		case holdfast.Released:
			held--
			fmt.Println("released", e.Name, e.Held > 0, e.Err)
		case holdfast.HoldLost:
			held--
			fmt.Println("lost", e.Name, e.Cause)
		}
	}))
	defer client.Close()

	err := client.Lock("example:observed").Do(context.Background(), func(context.Context) error {
		fmt.Println("held:", held)
		return nil
	})
	fmt.Println("held:", held, err)
	// Output:
	// acquired lock example:observed true
	// held: 1
	// released example:observed true <nil>
	// held: 0 <nil>
}
