package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rlimiter"
	"github.com/holdfast-go/holdfast/rlock"
)

// kinds are what a client makes, each as a trial of one name: taken, waited for
// by another client, passed on, given back.
var kinds = map[string]func(t *testing.T, a, b *holdfast.Client, name string) error{
	"lock": passes(func(c *holdfast.Client, name string) rlock.Locker { return c.Lock(name) }),
	"fair": passes(func(c *holdfast.Client, name string) rlock.Locker { return c.FairLock(name) }),
	"fenced": passes(func(c *holdfast.Client, name string) rlock.Locker {
		return c.FencedLock(name)
	}),
	"spin": passes(func(c *holdfast.Client, name string) rlock.Locker { return c.SpinLock(name, nil) }),
	"read": func(t *testing.T, a, b *holdfast.Client, name string) error { // a writer waits for the reader
		return pass(t, a.RWLock(name).Read(), b.RWLock(name).Write())
	},
	"write": passes(func(c *holdfast.Client, name string) rlock.Locker { return c.RWLock(name).Write() }),
	"multi": passes(func(c *holdfast.Client, name string) rlock.Locker {
		return c.MultiLock(c.Lock(name), c.Lock("{other}"+strings.ReplaceAll(name, "{", "(")))
	}),
	"semaphore": func(t *testing.T, a, b *holdfast.Client, name string) error {
		ctx := t.Context()
		if _, err := a.Semaphore(name).TrySetPermits(ctx, 1); err != nil {
			return err
		}
		if err := a.Semaphore(name).Acquire(ctx, 1); err != nil {
			return err
		}
		got := make(chan error, 1)
		go func() { got <- b.Semaphore(name).Acquire(ctx, 1) }()
		return errors.Join(a.Semaphore(name).Release(ctx, 1), <-got, b.Semaphore(name).Release(ctx, 1), second(b.Semaphore(name).Delete(ctx)))
	},
	"expirable semaphore": func(t *testing.T, a, b *holdfast.Client, name string) error {
		ctx := t.Context()
		if _, err := a.ExpirableSemaphore(name).TrySetPermits(ctx, 1); err != nil {
			return err
		}
		p, err := a.ExpirableSemaphore(name).Acquire(ctx)
		if err != nil {
			return err
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
	},
	"latch": func(t *testing.T, a, b *holdfast.Client, name string) error {
		ctx := t.Context()
		if _, err := a.Latch(name).TrySetCount(ctx, 1); err != nil {
			return err
		}
		got := make(chan error, 1)
		go func() { got <- b.Latch(name).Await(ctx) }()
		return errors.Join(a.Latch(name).CountDown(ctx), <-got)
	},
	"rate limiter": func(t *testing.T, a, b *holdfast.Client, name string) error {
		ctx := t.Context()
		if _, err := a.RateLimiter(name).TrySetRate(ctx, rlimiter.Overall, 2, 50*time.Millisecond); err != nil {
			return err
		}
		for range 2 {
			if err := errors.Join(a.RateLimiter(name).Acquire(ctx, 1), b.RateLimiter(name).Acquire(ctx, 2), a.RateLimiter(name).Release(ctx, 1)); err != nil {
				return err
			}
		}
		return second(a.RateLimiter(name).Delete(ctx))
	},
}

// second is the error of a call whose answer doesn't matter here.
func second(_ bool, err error) error { return err }

// passes is the trial of an exclusive lock.
func passes(lock func(*holdfast.Client, string) rlock.Locker) func(*testing.T, *holdfast.Client, *holdfast.Client, string) error {
	return func(t *testing.T, a, b *holdfast.Client, name string) error {
		return pass(t, lock(a, name), lock(b, name))
	}
}

func pass(t *testing.T, first, second rlock.Locker) error {
	ctx := t.Context()
	h, err := first.TryLock(ctx)
	if err != nil {
		return err
	}
	if _, err := second.TryLock(ctx); !errors.Is(err, holdfast.ErrNotAcquired) {
		return errors.Join(errors.New("not refused"), err)
	}
	got := make(chan error, 1)
	go func() { got <- second.Do(ctx, func(context.Context) error { return nil }) }()
	if err := errors.Join(h.Extend(ctx, time.Hour), h.Unlock(ctx), <-got); err != nil {
		return err
	}
	_, err = first.ForceUnlock(ctx)
	return err
}

// Names that can't work are refused; what has a name otherwise works whatever the
// name, on a cluster, where a script that touches two slots fails.
func TestA44NamesOfAllKindsOnACluster(t *testing.T) {
	t.Parallel() // a cluster of its own
	cluster := redistest.StartCluster(t, 3)
	a, b := newClient(t, cluster.Client(t)), newClient(t, cluster.Client(t))
	for name, possible := range map[string]bool{
		"a": true, "{a}": true, "x{a}y": true, "{a}{b}": true, "a b\r\n": true, "\x00\xff": true, "ключ": true, strings.Repeat("x", 10<<10): true,
		"}{": false, "{}": false, "a{": false, "a}": false, "": false,
	} {
		for kind, try := range kinds {
			err := try(t, a, b, name)
			switch {
			case !possible, kind == "latch" && strings.Contains(name, "{"):
				require.ErrorIs(t, err, holdfast.ErrInvalid, "%s %.20q", kind, name)
			default:
				require.NoError(t, err, "%s %.20q", kind, name)
			}
		}
	}
	for _, s := range cluster.Nodes() {
		left, err := s.Client(t).Keys(t.Context(), "*").Result()
		require.NoError(t, err)
		for _, key := range left { // markers, and what outlives a lock by design
			require.True(t, strings.Contains(key, "holdfast:") || strings.Contains(key, "redisson_lock_token"), "%.80q is left", key)
		}
	}
}
