package holdfasttest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
)

// within bounds what should happen much sooner; far below the poll fallback,
// so that a wake-up that got lost shows.
const within = 4 * time.Second

func TestExcludesOtherClients(t *testing.T) {
	s := NewServer(t)
	a, b := s.Client(), s.Client()

	hold, err := a.Lock("order").Lock(t.Context())
	require.NoError(t, err)

	_, err = b.Lock("order").TryLock(t.Context())
	require.ErrorIs(t, err, holdfast.ErrNotAcquired)
	var taken *holdfast.NotAcquiredError
	require.ErrorAs(t, err, &taken)
	require.Equal(t, "order", taken.Name)
	require.Positive(t, taken.Remaining)

	require.NoError(t, hold.Unlock(t.Context()))
	hold, err = b.Lock("order").TryLock(t.Context())
	require.NoError(t, err)
	require.NoError(t, hold.Unlock(t.Context()))
}

func TestWaiterIsWokenByRelease(t *testing.T) {
	s := NewServer(t)
	a, b := s.Client(), s.Client(holdfast.WithPollFallback(time.Hour))
	hold, err := a.Lock("order").Lock(t.Context())
	require.NoError(t, err)

	got := make(chan error, 1)
	go func() {
		h, err := b.Lock("order").Lock(t.Context())
		if err == nil {
			err = h.Unlock(t.Context())
		}
		got <- err
	}()
	awaitSubscriber(t, s)
	require.NoError(t, hold.Unlock(t.Context()))
	select {
	case err := <-got:
		require.NoError(t, err)
	case <-time.After(within):
		t.Fatal("the waiter wasn't woken")
	}
}

func TestReentry(t *testing.T) {
	c := New(t)
	lock := c.Lock("order")
	ctx := holdfast.WithOwner(t.Context())

	outer, err := lock.Lock(ctx)
	require.NoError(t, err)
	inner, err := lock.TryLock(outer.Context())
	require.NoError(t, err)
	n, err := lock.HoldCount(ctx)
	require.NoError(t, err)
	require.Equal(t, 2, n)

	require.NoError(t, inner.Unlock(ctx))
	_, err = lock.TryLock(holdfast.WithOwner(ctx))
	require.ErrorIs(t, err, holdfast.ErrNotAcquired, "the outer hold is still there")
	require.NoError(t, outer.Unlock(ctx))
	locked, err := lock.IsLocked(ctx)
	require.NoError(t, err)
	require.False(t, locked)
}

func TestFixedLeaseExpiresInRealTime(t *testing.T) {
	s := NewServer(t)
	a, b := s.Client(), s.Client()
	const lease = 200 * time.Millisecond

	from := time.Now()
	hold, err := a.Lock("order").Lock(t.Context(), holdfast.Lease(lease))
	require.NoError(t, err)
	next, err := b.Lock("order").Lock(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(from), lease, "the lease ended early")

	require.ErrorIs(t, context.Cause(hold.Context()), holdfast.ErrLost, "the holder learns before the next one gets in")
	require.ErrorIs(t, hold.Unlock(t.Context()), holdfast.ErrLost)
	require.NoError(t, next.Unlock(t.Context()))
}

func TestWatchdogKeepsHoldOverItsLease(t *testing.T) {
	t.Parallel()
	s := NewServer(t)
	a, b := s.Client(holdfast.WithLease(2*time.Second)), s.Client()
	hold, err := a.Lock("order").Lock(t.Context())
	require.NoError(t, err)

	_, err = b.Lock("order").TryLock(t.Context(), holdfast.Wait(3*time.Second))
	require.ErrorIs(t, err, holdfast.ErrNotAcquired, "kept over more than its lease")
	require.NoError(t, hold.Context().Err())
	require.NoError(t, hold.Unlock(t.Context()))
}

func TestDeletedKeyIsALostHold(t *testing.T) {
	s := NewServer(t)
	hold, err := s.Client(holdfast.WithLease(300 * time.Millisecond)).Lock("order").Lock(t.Context())
	require.NoError(t, err)

	require.NoError(t, s.Redis().Del(t.Context(), "order").Err())
	select {
	case <-hold.Context().Done():
		require.ErrorIs(t, context.Cause(hold.Context()), holdfast.ErrLost)
	case <-time.After(within):
		t.Fatal("the holder wasn't told")
	}
}

// TestEveryScriptRuns calls what the tests above leave out.
func TestEveryScriptRuns(t *testing.T) {
	s := NewServer(t)
	a, b := s.Client(), s.Client()
	ctx := t.Context()

	hold, err := a.Lock("moving").Lock(ctx)
	require.NoError(t, err)
	require.NoError(t, hold.Extend(ctx, time.Minute))
	ttl, err := b.Lock("moving").TTL(ctx)
	require.NoError(t, err)
	require.Greater(t, ttl, 50*time.Second)

	handle, err := hold.Detach()
	require.NoError(t, err)
	hold, err = b.Resume(ctx, handle)
	require.NoError(t, err)
	_, err = a.Lock("moving").TryLock(ctx)
	require.ErrorIs(t, err, holdfast.ErrNotAcquired)

	opened, err := a.Lock("moving").ForceUnlock(ctx)
	require.NoError(t, err)
	require.True(t, opened)
	require.ErrorIs(t, hold.Unlock(ctx), holdfast.ErrLost)

	require.NoError(t, a.Lock("moving").Do(ctx, func(ctx context.Context) error {
		return a.Lock("moving").Do(ctx, func(context.Context) error { return nil })
	}))
}

// awaitSubscriber returns once somebody waits for a notification.
func awaitSubscriber(t *testing.T, s *Server) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		channels, err := s.Redis().PubSubChannels(t.Context(), "*").Result()
		require.NoError(t, err)
		if len(channels) > 0 {
			return
		}
	}
}
