package holdfast_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rlock"
)

// watched is a short lease for tests in which renewals happen.
const watched = 600 * time.Millisecond

// counting makes a client on the shared server whose commands are counted.
func counting(t testing.TB, opts ...holdfast.Option) (*redistest.CommandCounter, *holdfast.Client) {
	t.Helper()
	rdb := server.Client(t)
	n := &redistest.CommandCounter{}
	rdb.AddHook(n)
	return n, newClient(t, rdb, opts...)
}

// One lost answer must not end renewal, whether it is noticed within the lease or
// after it, nor must a lease that couldn't be saved keep the next hold of the
// name from being renewed.
func TestA10RenewalOutlivesFailures(t *testing.T) {
	for _, sixths := range []time.Duration{1, 9, 20} { // of the lease, until it is noticed
		t.Run(fmt.Sprintf("%d sixths", sixths), func(t *testing.T) {
			t.Parallel()
			locktest.Patiently(t, 2*watched, func(lease time.Duration) bool {
				return outlives(t, lease, lease*sixths/6)
			})
		})
	}
}

// outlives has a hold outlive one lost answer, and the next one of its name a lease
// that wasn't saved. It answers false if a hold is lost, for which its context must
// have ended.
func outlives(t *testing.T, lease, noticed time.Duration) bool {
	rdb := server.Client(t)
	p, c := connectVia(t, server, readTimeout(noticed), holdfast.WithLease(lease))
	stays := func(h *holdfast.Hold, d time.Duration) bool {
		t.Helper()
		for end := time.Now().Add(d); time.Now().Before(end); <-time.After(2 * time.Millisecond) {
			there := exists(t, rdb, h.Name())
			if h.Context().Err() != nil {
				return false
			}
			require.True(t, there, "the key is gone")
		}
		return true
	}
	l := c.Lock(t.Name() + lease.String())
	h, err := l.Lock(t.Context())
	require.NoError(t, err)
	lost := p.Add(faultproxy.Rule{Match: sending(t, "renew.lua"), Times: 1, Do: faultproxy.DropReply})
	select {
	case <-lost.Done():
	case <-h.Context().Done():
	}
	if !stays(h, 3*lease) {
		return false
	}

	fails := p.Add(faultproxy.Rule{Match: sending(t, "renew.lua"), Do: faultproxy.DropRequest})
	redistest.Eventually(t, lease+prompt, func() bool { return !exists(t, rdb, h.Name()) }, "the lease ends")
	locktest.RequireLost(t, h)
	fails.Remove()
	h, err = l.Lock(t.Context())
	require.NoError(t, err)
	if !stays(h, 2*lease) {
		return false
	}
	// It may run out behind the last look.
	if err := h.Unlock(t.Context()); err != nil {
		require.ErrorIs(t, err, holdfast.ErrLost)
		return false
	}
	return true
}

// An unlock that couldn't be sent ends the renewal all the same.
func TestA11RenewalEndsWithAFailedUnlock(t *testing.T) {
	t.Parallel() // it waits
	for _, back := range []bool{true, false} {
		t.Run("back="+strconv.FormatBool(back), func(t *testing.T) {
			lease := 2 * time.Second // which is waited for
			if back {
				lease = 4 * prompt // which isn't
			}
			p, c := connectVia(t, server, nil, holdfast.WithLease(lease), holdfast.WithCommandTimeout(200*time.Millisecond))
			other := connect(t)
			h, err := c.Lock(t.Name()).Lock(t.Context())
			require.NoError(t, err)
			p.Refuse(true)
			p.Cut()
			err = h.Unlock(t.Context())
			require.ErrorIs(t, err, holdfast.ErrUncertain)
			require.ErrorIs(t, err, holdfast.ErrUnavailable)
			start := time.Now()
			p.Refuse(!back)

			h, err = other.Lock(t.Name()).TryLock(t.Context(), holdfast.Wait(lease+prompt))
			require.NoError(t, err)
			if back {
				require.Less(t, time.Since(start), lease/2, "the release goes on behind the caller")
			}
			require.NoError(t, h.Unlock(t.Context()))
		})
	}
}

// Bookkeeping survives re-entry and many holders.
func TestA12RenewalAfterReentry(t *testing.T) {
	t.Parallel() // it counts what its own client sends
	const lease = 3 * time.Second
	sent, c := counting(t, holdfast.WithLease(lease))
	rdb := server.Client(t)
	l := c.Lock(t.Name())
	ctx := holdfast.WithOwner(t.Context())
	for range 2 {
		_, err := l.Lock(ctx)
		require.NoError(t, err)
	}
	for range 2 {
		require.NoError(t, l.Unlock(ctx))
	}
	require.False(t, exists(t, rdb, t.Name()))
	_, err := l.Lock(ctx)
	require.NoError(t, err)
	throughout(t, lease*3/2, "the third hold isn't renewed", func() bool { return exists(t, rdb, t.Name()) })
	require.NoError(t, l.Unlock(ctx))

	for range 1000 {
		h, err := l.Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Unlock(t.Context()))
	}
	sent.Reset()
	throughout(t, lease/2, "something is still renewed", func() bool { return sent.Total() == 0 })
}

// Renewal leaves alone what has passed to somebody else.
func TestA13RenewalLeavesAForeignHoldAlone(t *testing.T) {
	t.Parallel() // it waits
	const lease = 3 * watched
	a, b, rdb := connect(t, holdfast.WithLease(watched)), connect(t, holdfast.WithLease(watched)), server.Client(t)
	h, err := a.Lock(t.Name()).Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, rdb.Del(t.Context(), t.Name()).Err())
	other, err := b.Lock(t.Name()).TryLock(t.Context(), holdfast.Lease(lease))
	require.NoError(t, err)
	ends, err := rdb.PExpireTime(t.Context(), t.Name()).Result()
	require.NoError(t, err)

	locktest.RequireLost(t, h)
	for exists(t, rdb, t.Name()) {
		at, err := rdb.PExpireTime(t.Context(), t.Name()).Result()
		require.NoError(t, err)
		if at > 0 { // it may have gone in between
			require.Equal(t, ends, at, "a foreign hold was renewed")
		}
	}
	locktest.RequireLost(t, other)
}

// Thousands of holds over a slow link: renewed in batches, and one that can't be
// renewed costs the others nothing. The whole size, 20,000, is a benchmark.
func TestA17ThousandsOfHolds(t *testing.T) {
	const holds, lease = 2000, 3 * time.Second
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	p := faultproxy.New(t, srv.Addr())
	sent := &redistest.CommandCounter{}
	slow := srv.Client(t, func(o *redis.Options) { o.Addr = p.Addr() })
	slow.AddHook(sent)
	c := newClient(t, slow, holdfast.WithLease(lease))
	hs := make([]*rlock.Hold, holds)
	var g errgroup.Group
	g.SetLimit(50)
	for i := range hs {
		g.Go(func() (err error) {
			hs[i], err = c.Lock(fmt.Sprint("n", i)).Lock(t.Context())
			return err
		})
	}
	require.NoError(t, g.Wait())
	p.SetLatency(5*time.Millisecond, 5*time.Millisecond)
	require.NoError(t, rdb.Del(t.Context(), "n7").Err())
	require.NoError(t, rdb.LPush(t.Context(), "n7", "somebody's list").Err())
	sent.Reset()
	started := time.Now()
	<-time.After(2 * lease)
	rounds := float64(time.Since(started))/float64(lease/3) + 2
	require.LessOrEqual(t, float64(sent.Total()), rounds*(holds/100+2)+100, "not in batches")
	for i, h := range hs {
		if i == 7 {
			require.ErrorIs(t, context.Cause(h.Context()), holdfast.ErrLost)
			continue
		}
		require.NoError(t, h.Context().Err(), "hold %d", i)
	}
	n, err := rdb.DBSize(t.Context()).Result()
	require.NoError(t, err)
	require.GreaterOrEqual(t, n, int64(holds))
	require.NoError(t, c.Shutdown(t.Context()))
}
