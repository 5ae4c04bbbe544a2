package holdfast_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rlock"
)

// hourly is a backoff so long that whoever gets in meanwhile didn't wait for it.
const hourly = rlock.ConstantBackoff(time.Hour)

// A spin lock neither subscribes nor publishes.
func TestSpinLockWithoutPubSub(t *testing.T) {
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	c1, c2 := newClient(t, srv.Client(t), holdfast.WithLease(never)), newClient(t, srv.Client(t), holdfast.WithLease(never))
	h, err := c1.SpinLock("n", nil).Lock(t.Context())
	require.NoError(t, err)
	tried := make(chan int, 1000)
	waiter := async(func() (*holdfast.Hold, error) {
		return c2.SpinLock("n", notedBackoff{tried}).Lock(t.Context())
	})
	for want := 1; want <= 10; want++ {
		require.Equal(t, want, <-tried, "it is given the number of refusals")
	}
	require.Zero(t, subscribers(t, rdb))
	require.NoError(t, h.Unlock(t.Context()))
	r := await(t, waiter, prompt, "it asks again")
	require.NoError(t, r.err)
	require.NoError(t, r.hold.Unlock(t.Context()))
	opened, err := c1.SpinLock("n", nil).ForceUnlock(t.Context())
	require.NoError(t, err)
	require.False(t, opened)
	calls, _ := served(t, rdb, "publish")
	require.Zero(t, calls)
	calls, _ = served(t, rdb, "subscribe")
	require.Zero(t, calls)
}

// notedBackoff tells of each pause, which is short.
type notedBackoff struct{ attempts chan int }

func (b notedBackoff) Delay(attempt int) time.Duration {
	select {
	case b.attempts <- attempt:
	default:
	}
	return -1 // a millisecond
}

// However many goroutines of a client wait, one alone asks, and seldom.
func TestA42SpinIsNoBusyLoop(t *testing.T) {
	const waiters, idle = 100, 2 * time.Second
	sent, c := counting(t, holdfast.WithLease(never))
	holder := connect(t, holdfast.WithLease(never))
	h, err := holder.SpinLock(t.Name(), nil).Lock(t.Context())
	require.NoError(t, err)
	var wg sync.WaitGroup
	inside := 0 // guarded by the lock alone
	for range waiters {
		wg.Go(func() {
			if err := c.SpinLock(t.Name(), nil).Do(t.Context(), func(context.Context) error {
				inside++
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "somebody asks", func() bool { return sent.Total() > 0 })
	sent.Reset()
	<-time.After(idle) // what is measured
	// From 1 ms doubling to 128 ms, each between half and whole.
	require.LessOrEqual(t, int(sent.Total()), int(idle/(64*time.Millisecond))+16)
	require.Positive(t, sent.Total())
	require.NoError(t, h.Unlock(t.Context()))
	wg.Wait()
	require.Equal(t, waiters, inside)
}

// A goroutine of the same client that gives the lock back needs no message to
// wake the next one, whatever its kind of lock.
func TestSpinNeighbourIsWoken(t *testing.T) {
	for what, next := range map[string]func(c *holdfast.Client) holdfast.Locker{
		"spin":  func(c *holdfast.Client) holdfast.Locker { return c.SpinLock(t.Name(), hourly) },
		"plain": func(c *holdfast.Client) holdfast.Locker { return c.Lock(t.Name()) },
	} {
		t.Run(what, func(t *testing.T) {
			sent, c := counting(t, holdfast.WithLease(never), holdfast.WithPollFallback(never))
			l := next(c)
			h, err := c.SpinLock(l.Name(), hourly).Lock(t.Context())
			require.NoError(t, err)
			before := sent.Total()
			waiter := async(func() (*holdfast.Hold, error) { return l.Lock(t.Context()) })
			eventually(t, "it was refused", func() bool { return sent.Total() > before })
			require.NoError(t, h.Unlock(t.Context()))
			r := await(t, waiter, prompt, "it is woken")
			require.NoError(t, r.err)
			require.NoError(t, r.hold.Unlock(t.Context()))
		})
	}
}

// A pause ends with the context, with the time to wait, and with the holder's
// lease.
func TestSpinPauseEnds(t *testing.T) {
	t.Parallel() // it waits
	c1, c2 := connect(t, holdfast.WithLease(never)), connect(t, holdfast.WithLease(never))
	l := c2.SpinLock(t.Name(), hourly)
	h, err := c1.SpinLock(t.Name(), nil).Lock(t.Context())
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	waiter := async(func() (*holdfast.Hold, error) { return l.Lock(ctx) })
	cancel()
	require.ErrorIs(t, await(t, waiter, prompt, "the context ends it").err, context.Canceled)
	require.ErrorIs(t, locktest.Answered(func() error {
		_, err := l.TryLock(t.Context(), rlock.Wait(30*time.Millisecond))
		return err
	}), holdfast.ErrNotAcquired)

	waiter = async(func() (*holdfast.Hold, error) { return l.TryLock(t.Context(), rlock.Wait(3*time.Second)) })
	require.NoError(t, h.Unlock(t.Context()))
	r := await(t, waiter, prompt, "it asks a last time")
	require.NoError(t, r.err)
	require.NoError(t, r.hold.Unlock(t.Context()))

	h, err = c1.SpinLock(t.Name(), nil).Lock(t.Context(), rlock.Lease(200*time.Millisecond))
	require.NoError(t, err)
	r = await(t, async(func() (*holdfast.Hold, error) { return l.Lock(t.Context()) }), prompt, "the lease runs out")
	require.NoError(t, r.err)
	locktest.RequireLost(t, h)
	require.NoError(t, r.hold.Unlock(t.Context()))
}

func TestSpinBadBackoff(t *testing.T) {
	c := connect(t)
	for _, b := range []rlock.Backoff{
		rlock.ConstantBackoff(0), rlock.ConstantBackoff(-1),
		rlock.ExponentialBackoff{Initial: -1},
		rlock.ExponentialBackoff{Max: -1},
		rlock.ExponentialBackoff{Multiplier: 0.5},
		rlock.ExponentialBackoff{Multiplier: -2},
		rlock.ExponentialBackoff{Multiplier: math.NaN()},
		&rlock.ExponentialBackoff{Max: -1},
	} {
		_, err := c.SpinLock(t.Name(), b).TryLock(t.Context())
		require.ErrorIs(t, err, holdfast.ErrInvalid, "%#v", b)
		_, err = c.SpinLock(t.Name(), b).IsLocked(t.Context())
		require.ErrorIs(t, err, holdfast.ErrInvalid)
	}
	for _, b := range []rlock.Backoff{nil, (*rlock.ExponentialBackoff)(nil), &rlock.ExponentialBackoff{}, rlock.ConstantBackoff(1)} {
		h, err := c.SpinLock(t.Name(), b).TryLock(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Unlock(t.Context()))
	}
}
