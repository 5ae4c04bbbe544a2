package rlimiter_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/rlimiter"
)

// Two calls a minute, over all processes together.
func ExampleLimiter() {
	client, _ := holdfast.Open(rlimiter.Server().URL())
	defer client.Close()
	ctx := context.Background()

	calls := client.RateLimiter("rlimiter-example:api")
	set, err := calls.TrySetRate(ctx, rlimiter.Overall, 2, time.Minute)
	fmt.Println("set:", set, err)
	fmt.Println(calls.Acquire(ctx, 1), calls.Acquire(ctx, 1))
	err = calls.TryAcquire(ctx, 1, rlimiter.Wait(time.Second)) // doesn't wait in vain
	fmt.Println("limited:", errors.Is(err, holdfast.ErrNotAcquired))
	// Output:
	// set: true <nil>
	// <nil> <nil>
	// limited: true
}

func ExampleConfig() {
	client, _ := holdfast.Open(rlimiter.Server().URL())
	defer client.Close()
	ctx := context.Background()

	calls := client.RateLimiter("rlimiter-example:config")
	_ = calls.SetRate(ctx, rlimiter.PerClient, 10, time.Second, rlimiter.KeepAlive(time.Hour))
	config, _ := calls.Config(ctx)
	fmt.Println(config.Kind, config.Rate, config.Interval, config.KeepAlive)
	// Output: PerClient 10 1s 1h0m0s
}

func ExampleKind() {
	fmt.Println(rlimiter.Overall, rlimiter.PerClient)
	// Output: Overall PerClient
}

// An option that is used in several places.
func ExampleRateOption() {
	client, _ := holdfast.Open(rlimiter.Server().URL())
	defer client.Close()

	forgotten := rlimiter.KeepAlive(24 * time.Hour)
	err := client.RateLimiter("rlimiter-example:user:7").SetRate(context.Background(), rlimiter.Overall, 5, time.Second, forgotten)
	fmt.Println(err)
	// Output: <nil>
}

// A refusal says when it is worth to ask again.
func ExampleOption() {
	client, _ := holdfast.Open(rlimiter.Server().URL())
	defer client.Close()
	ctx := context.Background()

	calls := client.RateLimiter("rlimiter-example:refused")
	_ = calls.SetRate(ctx, rlimiter.Overall, 1, time.Minute)
	_ = calls.Acquire(ctx, 1)
	err := calls.TryAcquire(ctx, 1, rlimiter.Wait(time.Second))
	var refused *holdfast.NotAcquiredError
	fmt.Println(errors.As(err, &refused), refused.Remaining > 50*time.Second)
	// Output: true true
}
