package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
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

// Renewal must not outlive the release, however the two meet.
func TestA09NoRenewalAfterTheRelease(t *testing.T) {
	const lease = 300 * time.Millisecond
	sent, c := counting(t, holdfast.WithLease(lease))
	rdb := server.Client(t)
	before := goroutines(t, c)

	var wg sync.WaitGroup
	for i := range 200 {
		l := c.Lock(t.Name() + strconv.Itoa(i%20))
		wg.Go(func() {
			for range 10 {
				ctx, cancel := context.WithCancel(t.Context())
				if rand.N(3) == 0 {
					time.AfterFunc(rand.N(2*time.Millisecond), cancel)
				}
				h, err := l.Lock(ctx)
				if err == nil {
					err = h.Unlock(ctx)
				}
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()

	requireNoKeys(t, rdb, t.Name())
	requireGoroutines(t, before)
	requireNoChannels(t, rdb, t.Name())
	sent.Reset()
	throughout(t, lease, "something is still renewed", func() bool { return sent.Total() == 0 })
}

// One lost answer must not end renewal, whether it is noticed within the lease or
// after it, nor must a lease that couldn't be saved keep the next hold of the
// name from being renewed.
func TestA10RenewalOutlivesFailures(t *testing.T) {
	for _, noticed := range []time.Duration{watched / 6, watched * 3 / 2, watched * 10 / 3} {
		t.Run(noticed.String(), func(t *testing.T) {
			t.Parallel()
			rdb := server.Client(t)
			p, c := connectVia(t, server, readTimeout(noticed), holdfast.WithLease(watched))
			stays := func(h *holdfast.Hold, d time.Duration) {
				t.Helper()
				throughout(t, d, "the key is gone", func() bool { return exists(t, rdb, h.Name()) })
				require.NoError(t, h.Context().Err())
			}
			l := c.Lock(t.Name())
			h, err := l.Lock(t.Context())
			require.NoError(t, err)
			lost := p.Add(faultproxy.Rule{Match: sending(t, "renew.lua"), Times: 1, Do: faultproxy.DropReply})
			<-lost.Done()
			stays(h, 3*watched)

			fails := p.Add(faultproxy.Rule{Match: sending(t, "renew.lua"), Do: faultproxy.DropRequest})
			eventually(t, "the lease ends", func() bool { return !exists(t, rdb, h.Name()) })
			requireLost(t, h)
			fails.Remove()
			h, err = l.Lock(t.Context())
			require.NoError(t, err)
			stays(h, 2*watched)
			require.NoError(t, h.Unlock(t.Context()))
		})
	}
}

// An unlock that couldn't be sent ends the renewal all the same.
func TestA11RenewalEndsWithAFailedUnlock(t *testing.T) {
	const lease = 2 * time.Second
	for _, back := range []bool{true, false} {
		t.Run("back="+strconv.FormatBool(back), func(t *testing.T) {
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
				require.Less(t, time.Since(start), lease, "the release goes on behind the caller")
			}
			require.NoError(t, h.Unlock(t.Context()))
		})
	}
}

// Bookkeeping survives re-entry and many holders.
func TestA12RenewalAfterReentry(t *testing.T) {
	sent, c := counting(t, holdfast.WithLease(watched))
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
	throughout(t, 3*watched, "the third hold isn't renewed", func() bool { return exists(t, rdb, t.Name()) })
	require.NoError(t, l.Unlock(ctx))

	for range 1000 {
		h, err := l.Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Unlock(t.Context()))
	}
	sent.Reset()
	throughout(t, watched, "something is still renewed", func() bool { return sent.Total() == 0 })
}

// Renewal leaves alone what has passed to somebody else.
func TestA13RenewalLeavesAForeignHoldAlone(t *testing.T) {
	const lease = 3 * watched
	a, b, rdb := connect(t, holdfast.WithLease(watched)), connect(t, holdfast.WithLease(watched)), server.Client(t)
	h, err := a.Lock(t.Name()).Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, rdb.Del(t.Context(), t.Name()).Err())
	other, err := b.Lock(t.Name()).TryLock(t.Context(), holdfast.Lease(lease))
	require.NoError(t, err)
	ends, err := rdb.PExpireTime(t.Context(), t.Name()).Result()
	require.NoError(t, err)

	requireLost(t, h)
	for exists(t, rdb, t.Name()) {
		at, err := rdb.PExpireTime(t.Context(), t.Name()).Result()
		require.NoError(t, err)
		if at > 0 { // it may have gone in between
			require.Equal(t, ends, at, "a foreign hold was renewed")
		}
	}
	requireLost(t, other)
}

// A caller who leaves while the answer is on its way leaves nothing behind.
func TestA14CallerLeavesDuringTheGrant(t *testing.T) {
	for _, deadline := range []bool{false, true} {
		t.Run("deadline="+strconv.FormatBool(deadline), func(t *testing.T) {
			rdb := server.Client(t)
			p, c := connectVia(t, server, nil, holdfast.WithLease(watched))
			before := goroutines(t, c)
			answer := make(chan struct{})
			granted := p.Add(faultproxy.Rule{Match: sending(t, "acquire.lua"), Times: 1, Do: faultproxy.HoldReply(answer)})

			want := context.Canceled
			ctx, cancel := context.WithCancel(t.Context())
			if deadline {
				want = context.DeadlineExceeded
				ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
			}
			defer cancel()
			call := async(func() (*holdfast.Hold, error) { return c.Lock(t.Name()).Lock(ctx) })
			<-granted.Done()
			require.True(t, exists(t, rdb, t.Name()), "the server has granted it")
			if !deadline {
				cancel()
			}
			r := await(t, call, 2*time.Second, "the caller leaves at once") // the read would take 5 s
			require.ErrorIs(t, r.err, want)
			require.Nil(t, r.hold)

			close(answer)
			requireNoKeys(t, rdb, t.Name())
			throughout(t, watched, "it came back", func() bool { return !exists(t, rdb, t.Name()) })
			requireGoroutines(t, before)
		})
	}
}

// Cancelling at any moment leaves no key, no goroutine and no subscription.
func TestA14CancelledAtRandomMoments(t *testing.T) {
	const workers, each = 30, 50
	rdb := server.Client(t)
	p, c := connectVia(t, server, func(o *redis.Options) { o.PoolSize = workers })
	p.SetLatency(time.Microsecond, 3*time.Millisecond)
	before := goroutines(t, c)

	var slowest longest
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for j := range each {
				l := c.Lock(t.Name() + strconv.Itoa((i+j)%10))
				ctx, cancel := context.WithCancel(t.Context())
				end := rand.N(12 * time.Millisecond)
				ends := time.Now().Add(end)
				time.AfterFunc(end, cancel)
				h, err := l.Lock(ctx)
				slowest.note(time.Since(ends))
				switch {
				case err == nil:
					// Unlock may say ErrUncertain: ctx may end under it.
					if err := h.Unlock(ctx); err != nil && !errors.Is(err, holdfast.ErrUncertain) {
						t.Error(err)
					}
				case !errors.Is(err, context.Canceled):
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	t.Logf("%d calls, the slowest came back %v after its cancel", workers*each, slowest.value())
	require.Less(t, slowest.value(), 2*time.Second)
	requireNoKeys(t, rdb, t.Name())
	requireGoroutines(t, before)
	requireNoChannels(t, rdb, t.Name())
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
