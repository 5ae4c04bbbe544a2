package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/rlimiter"
	"github.com/holdfast-go/holdfast/rlock"
)

// Trial has one name taken by a client, waited for by another, passed on and given
// back. It returns an error if anything goes otherwise.
type Trial func(ctx context.Context, a, b *holdfast.Client, name string) error

// Trials are one for everything that a client makes.
func Trials() map[string]Trial {
	return map[string]Trial{
		"lock":   passes(func(c *holdfast.Client, name string) rlock.Locker { return c.Lock(name) }),
		"fair":   passes(func(c *holdfast.Client, name string) rlock.Locker { return c.FairLock(name) }),
		"fenced": passes(func(c *holdfast.Client, name string) rlock.Locker { return c.FencedLock(name) }),
		"spin":   passes(func(c *holdfast.Client, name string) rlock.Locker { return c.SpinLock(name, nil) }),
		"read": func(ctx context.Context, a, b *holdfast.Client, name string) error { // a writer waits for the reader
			return pass(ctx, a.RWLock(name).Read(), b.RWLock(name).Write())
		},
		"write": passes(func(c *holdfast.Client, name string) rlock.Locker { return c.RWLock(name).Write() }),
		"multi": passes(func(c *holdfast.Client, name string) rlock.Locker {
			return c.MultiLock(c.Lock(name), c.Lock("{other}"+strings.ReplaceAll(name, "{", "(")))
		}),
		"semaphore":           passPermits,
		"expirable semaphore": passExpirable,
		"latch":               openLatch,
		"rate limiter":        waitForRate,
	}
}

// Smoke runs all trials: whoever waits is woken, as polling is out of the question.
func (p Place) Smoke(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a, b := p.With(t, locktest.Link{Poll: never}), p.With(t, locktest.Link{Poll: never})
	for kind, try := range Trials() {
		require.NoError(t, try(ctx, a, b, t.Name()+kind), kind)
	}
}

// second is the error of a call whose answer doesn't matter here.
func second(_ bool, err error) error { return err }

// passes is the trial of an exclusive lock.
func passes(lock func(*holdfast.Client, string) rlock.Locker) Trial {
	return func(ctx context.Context, a, b *holdfast.Client, name string) error {
		return pass(ctx, lock(a, name), lock(b, name))
	}
}

var errNotRefused = errors.New("not refused")

func refused(err error) error {
	if errors.Is(err, holdfast.ErrNotAcquired) {
		return nil
	}
	return errors.Join(errNotRefused, err)
}

func pass(ctx context.Context, first, second rlock.Locker) error {
	h, err := first.TryLock(ctx)
	if err != nil {
		return err
	}
	if _, err := second.TryLock(ctx); refused(err) != nil {
		return refused(err)
	}
	got := make(chan error, 1)
	go func() { got <- second.Do(ctx, func(context.Context) error { return nil }) }()
	if err := errors.Join(h.Extend(ctx, time.Hour), h.Unlock(ctx), <-got); err != nil {
		return err
	}
	_, err = first.ForceUnlock(ctx)
	return err
}

func passPermits(ctx context.Context, a, b *holdfast.Client, name string) error {
	theirs := b.Semaphore(name)
	ours := a.Semaphore(name)
	if _, err := ours.TrySetPermits(ctx, 2); err != nil {
		return err
	}
	if err := ours.Acquire(ctx, 2); err != nil {
		return err
	}
	if err := refused(theirs.TryAcquire(ctx, 1)); err != nil {
		return err
	}
	got := make(chan error, 1)
	go func() { got <- theirs.Acquire(ctx, 2) }()
	if err := errors.Join(ours.Release(ctx, 2), <-got, theirs.Release(ctx, 2)); err != nil {
		return err
	}
	if n, err := ours.Available(ctx); err != nil || n != 2 {
		return fmt.Errorf("%d permits, not 2: %w", n, err)
	}
	return second(theirs.Delete(ctx))
}

func passExpirable(ctx context.Context, a, b *holdfast.Client, name string) error {
	if _, err := a.ExpirableSemaphore(name).TrySetPermits(ctx, 1); err != nil {
		return err
	}
	p, err := a.ExpirableSemaphore(name).Acquire(ctx)
	if err != nil {
		return err
	}
	if _, err := b.ExpirableSemaphore(name).TryAcquire(ctx); refused(err) != nil {
		return refused(err)
	}
	got := make(chan error, 1)
	go func() {
		p, err := b.ExpirableSemaphore(name).Acquire(ctx)
		if err == nil {
			err = p.Release(ctx)
		}
		got <- err
	}()
	return errors.Join(p.Release(ctx), <-got, second(b.ExpirableSemaphore(name).Delete(ctx)))
}

func openLatch(ctx context.Context, a, b *holdfast.Client, name string) error {
	if _, err := a.Latch(name).TrySetCount(ctx, 2); err != nil {
		return err
	}
	got := make(chan error, 2)
	for _, c := range []*holdfast.Client{a, b} {
		go func() { got <- c.Latch(name).Await(ctx) }()
	}
	return errors.Join(a.Latch(name).CountDown(ctx), b.Latch(name).CountDown(ctx), <-got, <-got)
}

// waitForRate takes what there is, waits for what the window brings, and for what
// is given back, which wakes those of the same client.
func waitForRate(ctx context.Context, a, b *holdfast.Client, name string) error {
	ours, theirs := a.RateLimiter(name), b.RateLimiter(name)
	if _, err := ours.TrySetRate(ctx, rlimiter.Overall, 2, 50*time.Millisecond); err != nil {
		return err
	}
	for range 2 {
		if err := errors.Join(ours.Acquire(ctx, 1), theirs.Acquire(ctx, 2), ours.Release(ctx, 1)); err != nil {
			return err
		}
	}
	if err := errors.Join(ours.SetRate(ctx, rlimiter.Overall, 1, time.Hour), ours.Acquire(ctx, 1)); err != nil {
		return err
	}
	if err := refused(theirs.TryAcquire(ctx, 1)); err != nil {
		return err
	}
	got := make(chan error, 1)
	go func() { got <- ours.Acquire(ctx, 1) }()
	return errors.Join(ours.Release(ctx, 1), <-got, second(ours.Delete(ctx)))
}
