package holdfast_test

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/rlimiter"
	"github.com/holdfast-go/holdfast/rlock"
)

// Whatever is asked of a closed client is ErrClosed, at once.
func TestEveryCallAfterClose(t *testing.T) {
	c := connect(t)
	ctx := holdfast.WithOwner(t.Context())
	p, err := c.ExpirableSemaphore(t.Name()+"-p").TrySetPermits(ctx, 1)
	require.NoError(t, err)
	require.True(t, p)
	permit, err := c.ExpirableSemaphore(t.Name() + "-p").Acquire(ctx)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	calls := make(map[string]func() error)
	for what, l := range map[string]rlock.Locker{
		"Lock": c.Lock("n"), "FairLock": c.FairLock("n"), "FencedLock": c.FencedLock("n"), "SpinLock": c.SpinLock("n", nil),
		"MultiLock": c.MultiLock(c.Lock("n"), c.Lock("m")), "Read": c.RWLock("n").Read(), "Write": c.RWLock("n").Write(),
	} {
		calls[what+".Lock"] = func() error { _, err := l.Lock(ctx); return err }
		calls[what+".TryLock"] = func() error { _, err := l.TryLock(ctx, rlock.Wait(time.Minute)); return err }
		calls[what+".Unlock"] = func() error { return l.Unlock(ctx) }
		calls[what+".ForceUnlock"] = func() error { _, err := l.ForceUnlock(ctx); return err }
		calls[what+".IsLocked"] = func() error { _, err := l.IsLocked(ctx); return err }
		calls[what+".IsHeld"] = func() error { _, err := l.IsHeld(ctx); return err }
		calls[what+".HoldCount"] = func() error { _, err := l.HoldCount(ctx); return err }
		calls[what+".TTL"] = func() error { _, err := l.TTL(ctx); return err }
		calls[what+".Do"] = func() error { return l.Do(ctx, func(context.Context) error { return nil }) }
	}
	f, s, e, l, r := c.FencedLock("n"), c.Semaphore("n"), c.ExpirableSemaphore("n"), c.Latch("n"), c.RateLimiter("n")
	const id = "00112233445566778899aabbccddeeff"
	maps.Copy(calls, map[string]func() error{
		"CurrentToken": func() error { _, err := f.CurrentToken(ctx); return err }, "RaiseToken": func() error { return f.RaiseToken(ctx, 5) },
		"DeleteToken":     func() error { _, err := f.DeleteToken(ctx); return err },
		"TrySetPermits":   func() error { _, err := s.TrySetPermits(ctx, 1); return err },
		"Acquire":         func() error { return s.Acquire(ctx, 1) },
		"TryAcquire":      func() error { return s.TryAcquire(ctx, 1, rlock.Wait(time.Minute)) },
		"Release":         func() error { return s.Release(ctx, 1) },
		"ReleaseIfExists": func() error { _, err := s.ReleaseIfExists(ctx, 1); return err },
		"AddPermits":      func() error { return s.AddPermits(ctx, 1) }, "Available": func() error { _, err := s.Available(ctx); return err },
		"Drain": func() error { _, err := s.Drain(ctx); return err }, "Delete": func() error { _, err := s.Delete(ctx); return err },
		"e.Acquire": func() error { _, err := e.Acquire(ctx); return err }, "e.AcquireN": func() error { _, err := e.AcquireN(ctx, 2); return err },
		"e.Release": func() error { return e.Release(ctx, id) }, "e.TryRelease": func() error { _, err := e.TryRelease(ctx, id); return err },
		"e.Extend": func() error { return e.Extend(ctx, id, time.Minute) }, "e.LeaseOf": func() error { _, err := e.LeaseOf(ctx, id); return err },
		"e.SetPermits": func() error { return e.SetPermits(ctx, 1) }, "e.Permits": func() error { _, err := e.Permits(ctx); return err },
		"e.Acquired": func() error { _, err := e.Acquired(ctx); return err }, "permit.Release": func() error { return permit.Release(ctx) },
		"Await": func() error { return l.Await(ctx) }, "CountDown": func() error { return l.CountDown(ctx) },
		"TrySetCount": func() error { _, err := l.TrySetCount(ctx, 1); return err }, "Count": func() error { _, err := l.Count(ctx); return err },
		"r.Acquire": func() error { return r.Acquire(ctx, 1) }, "r.Release": func() error { return r.Release(ctx, 1) },
		"r.SetRate": func() error { return r.SetRate(ctx, rlimiter.Overall, 1, time.Second) }, "r.Config": func() error { _, err := r.Config(ctx); return err },
		"r.Available": func() error { _, err := r.Available(ctx); return err }, "Inspect": func() error { _, err := c.Inspect(ctx, "n"); return err },
	})
	start := time.Now()
	for what, call := range calls {
		require.ErrorIs(t, call(), holdfast.ErrClosed, what)
	}
	for _, err := range c.Locks(ctx, "*") {
		require.ErrorIs(t, err, holdfast.ErrClosed)
	}
	for _, err := range c.Watch(ctx, "n") {
		require.ErrorIs(t, err, holdfast.ErrClosed)
	}
	require.Less(t, time.Since(start), prompt)
	require.NoError(t, c.Close())
	require.NoError(t, server.Client(t).Del(t.Context(), t.Name()+"-p", "{"+t.Name()+"-p}:timeout").Err())
}
