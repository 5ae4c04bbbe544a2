package rrwlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/rrwlock"
)

func exampleClient() *holdfast.Client {
	c, err := holdfast.Open(rrwlock.URL())
	if err != nil {
		log.Fatal(err)
	}
	return c
}

// Many read at once; one writes, alone.
func ExampleRWLock() {
	ctx := context.Background()
	client := exampleClient()
	defer client.Close()
	catalogue := client.RWLock("example:catalogue")

	for range 2 {
		hold, err := catalogue.Read().Lock(ctx)
		if err != nil {
			log.Fatal(err)
		}
		defer hold.Unlock(ctx)
		fmt.Println("reading")
	}
	_, err := catalogue.Write().TryLock(ctx, holdfast.Wait(10*time.Millisecond))
	fmt.Println("write:", errors.Is(err, holdfast.ErrNotAcquired))
	// Output:
	// reading
	// reading
	// write: true
}

// A writer goes on reading what it wrote, and lets others read it meanwhile.
func ExampleRWLock_Write() {
	client := exampleClient()
	defer client.Close()
	ctx := holdfast.WithOwner(context.Background())
	prices := client.RWLock("example:prices")

	if _, err := prices.Write().Lock(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("written")
	if _, err := prices.Read().Lock(ctx); err != nil {
		log.Fatal(err)
	}
	if err := prices.Write().Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	_, err := prices.Write().Lock(ctx)
	fmt.Println("and back:", errors.Is(err, holdfast.ErrUpgrade))
	fmt.Println(prices.Read().Unlock(ctx))
	// Output:
	// written
	// and back: true
	// <nil>
}

// A reading hold is one like any other.
func ExampleRWLock_Read() {
	ctx := context.Background()
	client := exampleClient()
	defer client.Close()
	err := client.RWLock("example:report").Read().Do(ctx, func(ctx context.Context) error {
		fmt.Println("nobody writes meanwhile")
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// nobody writes meanwhile
	// <nil>
}
