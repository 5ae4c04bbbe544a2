package locktest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func fixedLeaseEnds(t *testing.T, k Kind) {
	n := name(t)
	l := k.New(t, time.Minute)(n)
	h, err := l.Lock(t.Context(), hold.Lease(100*time.Millisecond))
	require.NoError(t, err)
	other, err := k.rival(l).Lock(as(t, "b"))
	require.NoError(t, err, "a waiter gets what expires")
	require.ErrorIs(t, h.Context().Err(), context.Canceled)
	require.ErrorIs(t, context.Cause(h.Context()), errs.ErrLost)
	require.ErrorIs(t, h.Unlock(t.Context()), errs.ErrLost)
	require.NoError(t, other.Unlock(t.Context()))
}

// Patiently calls try with a lease, and with twice as long a one for as long as it
// answers that a hold was lost: a machine that stands still for longer than two thirds
// of a lease loses it rightly. Renewal that doesn't work loses any.
func Patiently(t testing.TB, lease time.Duration, try func(lease time.Duration) (kept bool)) {
	t.Helper()
	for range 4 {
		if try(lease) {
			return
		}
		lease *= 2
	}
	t.Fatal("the hold is lost, however long its lease is")
}

func renewedLeaseLasts(t *testing.T, k Kind) {
	Patiently(t, lease/10, func(lease time.Duration) bool {
		l := k.New(t, lease)(name(t))
		h, err := l.Lock(t.Context())
		require.NoError(t, err)
		theirs, err := k.rival(l).TryLock(as(t, "b"), hold.Wait(3*lease))
		if h.Context().Err() != nil || errors.Is(err, errs.ErrUnavailable) { // slow, either
			if err == nil {
				_ = theirs.Unlock(t.Context()) // which may be as slow
			}
			return false
		}
		require.ErrorIs(t, err, errs.ErrNotAcquired)
		err = h.Unlock(t.Context())
		if errors.Is(err, errs.ErrUncertain) || errors.Is(err, errs.ErrLost) { // slow now
			return false
		}
		require.NoError(t, err)
		return true
	})
}

func neverShortened(t *testing.T, k Kind) {
	if k.NonReentrant {
		return // there is no inner hold
	}
	l := k.New(t, time.Minute)(name(t))
	outer, err := l.Lock(t.Context())
	require.NoError(t, err)
	inner, err := l.Lock(outer.Context(), hold.Lease(500*time.Millisecond))
	require.NoError(t, err)
	ttl, err := l.TTL(t.Context())
	require.NoError(t, err)
	require.Greater(t, ttl, 30*time.Second)
	<-inner.Context().Done() // each hold has its own deadline
	require.ErrorIs(t, context.Cause(inner.Context()), errs.ErrLost)
	require.NoError(t, outer.Context().Err())
	require.NoError(t, outer.Unlock(t.Context()))
	locked, err := l.IsLocked(t.Context())
	require.NoError(t, err)
	require.False(t, locked, "the outer unlock counts what is left, not what was")
}

func lossIsTold(t *testing.T, k Kind) {
	n := name(t)
	l := k.New(t, lease/5)(n) // the sooner it is told
	h, err := l.Lock(t.Context())
	require.NoError(t, err)
	k.del(t, n)
	<-h.Context().Done()
	require.ErrorIs(t, context.Cause(h.Context()), errs.ErrLost)
	require.Equal(t, errs.Lost, reason(t, h.Unlock(t.Context())))
}

func extend(t *testing.T, k Kind) {
	n := name(t)
	l := k.New(t, lease)(n)
	h, err := l.Lock(t.Context(), hold.Lease(5*time.Second))
	require.NoError(t, err)
	require.NoError(t, h.Extend(t.Context(), time.Minute))
	require.Greater(t, time.Until(h.ExpiresAt()), 50*time.Second)
	ttl, err := l.TTL(t.Context())
	require.NoError(t, err)
	require.Greater(t, ttl, 50*time.Second)
	require.NoError(t, h.Extend(t.Context(), time.Second))
	ttl, err = l.TTL(t.Context())
	require.NoError(t, err)
	require.Greater(t, ttl, 50*time.Second, "never shortened")
	require.ErrorIs(t, h.Extend(t.Context(), 0), errs.ErrInvalid)
	k.del(t, n)
	require.ErrorIs(t, h.Extend(t.Context(), time.Second), errs.ErrLost)
	require.ErrorIs(t, context.Cause(h.Context()), errs.ErrLost)
	require.ErrorIs(t, h.Extend(t.Context(), time.Second), errs.ErrNotHeld)
}

func handOver(t *testing.T, k Kind) {
	n := name(t)
	l1, l2 := k.New(t, lease)(n), k.New(t, lease)(n)
	h, err := l1.Lock(t.Context())
	require.NoError(t, err)
	handle, err := h.Detach()
	if k.NoHandOver {
		require.ErrorIs(t, err, errs.ErrInvalid)
		require.NoError(t, h.Context().Err(), "it is held as before")
		require.NoError(t, h.Unlock(t.Context()))
		return
	}
	require.NoError(t, err)
	require.Error(t, h.Context().Err())
	require.ErrorIs(t, h.Unlock(t.Context()), errs.ErrNotHeld)
	_, err = h.Detach()
	require.ErrorIs(t, err, errs.ErrNotHeld)
	refused(t, k.rival(l1), as(t, "b"))

	taken, err := k.Resume(l2, t.Context(), handle)
	require.NoError(t, err)
	_, err = k.Resume(l1, t.Context(), handle)
	require.ErrorIs(t, err, errs.ErrNotHeld, "a handle works once")
	before := taken.ExpiresAt()
	redistest.Eventually(t, prompt, func() bool { return taken.ExpiresAt().After(before) }, "it isn't renewed at the new place")
	refused(t, k.rival(l1), as(t, "b"))
	require.NoError(t, taken.Unlock(t.Context()))
	locked, err := l1.IsLocked(t.Context())
	require.NoError(t, err)
	require.False(t, locked)

	_, err = k.Resume(l1, t.Context(), "nonsense")
	require.ErrorIs(t, err, errs.ErrInvalid)
	if k.NonReentrant {
		return
	}
	outer, err := l1.Lock(t.Context())
	require.NoError(t, err)
	inner, err := l1.Lock(outer.Context())
	require.NoError(t, err)
	_, err = inner.Detach()
	require.ErrorIs(t, err, errs.ErrInvalid)
	require.NoError(t, inner.Unlock(t.Context()))
	require.NoError(t, outer.Unlock(t.Context()))
}

func forceUnlock(t *testing.T, k Kind) {
	n := name(t)
	l1, l2 := k.New(t, lease/2)(n), k.New(t, lease)(n) // the first waits for a renewal
	opened, err := l2.ForceUnlock(t.Context())
	require.NoError(t, err)
	require.False(t, opened)

	h, err := l1.Lock(t.Context())
	require.NoError(t, err)
	opened, err = l2.ForceUnlock(t.Context())
	require.NoError(t, err)
	require.True(t, opened)
	other, err := k.rival(l2).TryLock(as(t, "b"))
	require.NoError(t, err)
	<-h.Context().Done() // at the next renewal
	require.ErrorIs(t, context.Cause(h.Context()), errs.ErrLost)
	require.ErrorIs(t, h.Unlock(t.Context()), errs.ErrLost)
	held, err := k.rival(l2).IsHeld(as(t, "b"))
	require.NoError(t, err)
	require.True(t, held)
	require.NoError(t, other.Unlock(t.Context()))

	h, err = l2.Lock(t.Context())
	require.NoError(t, err)
	opened, err = l2.ForceUnlock(t.Context())
	require.NoError(t, err)
	require.True(t, opened)
	require.Error(t, h.Context().Err(), "a hold of the same client is told at once")
}

func unlockAfterContext(t *testing.T, k Kind) {
	l := k.New(t, lease)(name(t))
	ctx, cancel := context.WithCancel(t.Context())
	h, err := l.Lock(ctx)
	require.NoError(t, err)
	cancel()
	require.ErrorIs(t, h.Context().Err(), context.Canceled)
	locked, err := l.IsLocked(t.Context())
	require.NoError(t, err)
	require.True(t, locked, "cancelling gives nothing back")
	require.NoError(t, h.Unlock(ctx))
	locked, err = l.IsLocked(t.Context())
	require.NoError(t, err)
	require.False(t, locked)
}

func waitEndsWithContext(t *testing.T, k Kind) {
	l := k.New(t, time.Minute)(name(t))
	h, err := l.Lock(t.Context())
	require.NoError(t, err)
	why := errors.New("the request is over")
	ctx, cancel := context.WithCancelCause(as(t, "b"))
	got := make(chan error, 1)
	go func() {
		_, err := k.rival(l).Lock(ctx)
		got <- err
	}()
	cancel(why)
	err = <-got
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, why)
	require.NotErrorIs(t, err, errs.ErrNotAcquired)

	ctx, cancelTimeout := context.WithTimeout(as(t, "b"), 20*time.Millisecond)
	defer cancelTimeout()
	_, err = k.rival(l).Lock(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, h.Unlock(t.Context()))
}

func doPanics(t *testing.T, k Kind) {
	l := k.New(t, lease)(name(t))
	require.PanicsWithValue(t, "boom", func() {
		_ = l.Do(t.Context(), func(context.Context) error { panic("boom") })
	})
	locked, err := l.IsLocked(t.Context())
	require.NoError(t, err)
	require.False(t, locked)
}

func do(t *testing.T, k Kind) {
	l := k.New(t, lease)(name(t))
	why := errors.New("fn failed")
	err := l.Do(t.Context(), func(ctx context.Context) error {
		held, err := l.IsHeld(ctx)
		require.NoError(t, err)
		require.True(t, held)
		return why
	})
	require.ErrorIs(t, err, why)
	locked, err := l.IsLocked(t.Context())
	require.NoError(t, err)
	require.False(t, locked)

	h, err := l.Lock(t.Context())
	require.NoError(t, err)
	err = Answered(func() error {
		return k.rival(l).Do(t.Context(), func(context.Context) error {
			t.Error("ran without the lock")
			return nil
		}, hold.Wait(time.Millisecond))
	})
	require.ErrorIs(t, err, errs.ErrNotAcquired)
	require.NoError(t, h.Unlock(t.Context()))

	err = l.Do(t.Context(), func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	}, hold.Lease(20*time.Millisecond))
	require.ErrorIs(t, err, errs.ErrLost, "success is not reported for work that outlived its lock")
}
