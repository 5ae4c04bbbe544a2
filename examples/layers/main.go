// Layers is a service whose layers each lock the account they work on, because
// each can be called by itself. Within one request they are one owner: the
// context carries it, so the inner layers enter the lock once more, and it is
// free when the outermost has given its hold back. Nobody else gets in between.
//
//	go run ./examples/layers
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/examples/internal/stage"
)

const account = "account:42"

func main() { stage.Main(run) }

func run(ctx context.Context, s *stage.Stage) error {
	pods, stop, err := s.Pods(2)
	if err != nil {
		return err
	}
	defer stop()
	b := &bank{Stage: s, locks: pods[0], other: pods[1]}

	if err := b.handle(ctx); err != nil {
		return err
	}
	balance, err := s.DB.Get(ctx, b.balance()).Int()
	if err != nil {
		return err
	}
	if balance != 70 {
		return fmt.Errorf("the balance is %d instead of 70", balance)
	}
	if err := b.expect(ctx, "after the request", false); err != nil {
		return err
	}
	stage.Say("", "three layers, one lock; the balance is %d", balance)
	return nil
}

type bank struct {
	*stage.Stage
	locks *holdfast.Client
	other *holdfast.Client // another process, which wants the same account
}

func (b *bank) balance() string { return b.Prefix + "balance" }

// handle is a request: two steps that belong together.
func (b *bank) handle(ctx context.Context) error {
	return b.layer(ctx, "handler", 1, func(ctx context.Context) error {
		if err := b.book(ctx, 100); err != nil {
			return err
		}
		return b.book(ctx, -30)
	})
}

// book is the service.
func (b *bank) book(ctx context.Context, amount int64) error {
	return b.layer(ctx, "service", 2, func(ctx context.Context) error { return b.save(ctx, amount) })
}

// save is the repository.
func (b *bank) save(ctx context.Context, amount int64) error {
	return b.layer(ctx, "storage", 3, func(ctx context.Context) error {
		return b.DB.IncrBy(ctx, b.balance(), amount).Err()
	})
}

// layer locks, looks around, and does its work. Pass on the ctx that Do gives:
// with another one the callee would be somebody else, and wait for us.
func (b *bank) layer(ctx context.Context, who string, depth int, work func(context.Context) error) error {
	lock := b.locks.Lock(account)
	return lock.Do(ctx, func(ctx context.Context) error {
		holds, err := lock.HoldCount(ctx)
		if err != nil {
			return err
		}
		stage.Say(who, "%d holds", holds)
		if holds != depth {
			return fmt.Errorf("the %s has %d holds instead of %d", who, holds, depth)
		}
		if err := work(ctx); err != nil {
			return err
		}
		return b.expect(ctx, "in the "+who, true)
	})
}

// expect looks whether another process is kept out.
func (b *bank) expect(ctx context.Context, when string, taken bool) error {
	hold, err := b.other.Lock(account).TryLock(holdfast.WithOwner(ctx))
	switch {
	case errors.Is(err, holdfast.ErrNotAcquired) && taken:
		return nil
	case err != nil:
		return fmt.Errorf("%s another process asked for the lock: %w", when, err)
	case taken:
		return fmt.Errorf("%s another process got in", when)
	}
	return hold.Unlock(ctx)
}
