package holdfast_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rlock"
)

// What no clock shows is told at the next renewal.
func TestA15Evicted(t *testing.T) {
	const lease = 3 * time.Second
	srv := redistest.Start(t, "--maxmemory-policy", "volatile-lru")
	rdb := srv.Client(t)
	a, b := newClient(t, srv.Client(t), holdfast.WithLease(lease)), newClient(t, srv.Client(t))
	h, err := a.Lock("n").Lock(t.Context())
	require.NoError(t, err)
	ends := h.ExpiresAt()
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	eventually(t, "the key goes", func() bool { return !exists(t, rdb, "n") })
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
	theirs, err := b.Lock("n").TryLock(t.Context())
	require.NoError(t, err)
	locktest.RequireLost(t, h)
	require.True(t, time.Now().Before(ends), "the lease had to run out before it was told")
	require.NoError(t, theirs.Unlock(t.Context()))
}

// The end of trust lies before the end of the lease on the server, by the
// margin, whatever the answers' way takes. Both clocks are this machine's.
func TestDeadlineIsBeforeTheServersExpiry(t *testing.T) {
	const lease = 3 * time.Second
	margin := 10*time.Millisecond - time.Millisecond // the server counts whole ones
	rdb := server.Client(t)
	p, c := connectVia(t, server, nil, holdfast.WithLease(lease))
	p.SetLatency(40*time.Millisecond, 60*time.Millisecond) // an answer's own age must not count
	before := func(h *holdfast.Hold) {
		t.Helper()
		trusted := h.ExpiresAt() // first: a renewal in between moves the server's
		ends, err := rdb.PExpireTime(t.Context(), h.Name()).Result()
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.UnixMilli(ends.Milliseconds()).Sub(trusted), margin)
	}
	h, err := c.Lock(t.Name()).Lock(t.Context())
	require.NoError(t, err)
	before(h)
	for first := h.ExpiresAt(); h.ExpiresAt().Sub(first) < lease; {
		before(h) // and after each renewal
		require.NoError(t, h.Context().Err())
	}
	require.NoError(t, h.Extend(t.Context(), 2*lease))
	before(h)
	inner, err := c.Lock(t.Name()).Lock(h.Context(), holdfast.Lease(lease))
	require.NoError(t, err)
	before(inner)
	require.NoError(t, inner.Unlock(t.Context()))
	before(h)
	require.NoError(t, h.Unlock(t.Context()))

	// Of several copies, the first that may have run counts.
	p.Add(faultproxy.Rule{Match: sending(t, "acquire.lua"), Times: 1, Do: faultproxy.Delay(300 * time.Millisecond)})
	q, slow := connectVia(t, server, readTimeout(100*time.Millisecond), holdfast.WithLease(lease))
	q.Add(faultproxy.Rule{Match: sending(t, "acquire.lua"), Times: 2, Do: faultproxy.DropReply})
	for _, c := range []*holdfast.Client{c, slow} {
		h, err = c.Lock(t.Name()).TryLock(t.Context())
		require.NoError(t, err)
		before(h)
		require.NoError(t, h.Unlock(t.Context()))
	}
}

// A grant that was under way for longer than its lease is no hold: it is asked
// for again, and counts once.
func TestGrantOlderThanItsLease(t *testing.T) {
	t.Parallel() // it waits
	const lease = 2 * time.Second
	rdb := server.Client(t)
	p, c := connectVia(t, server, nil, holdfast.WithLease(lease))
	for what, opts := range map[string][]rlock.Option{"renewed": nil, "fixed": {holdfast.Lease(lease)}} {
		t.Run(what, func(t *testing.T) {
			late := p.Add(faultproxy.Rule{Match: sending(t, "acquire.lua"), Times: 1, Do: faultproxy.Delay(lease + 50*time.Millisecond)})
			h, err := c.Lock(t.Name()).Lock(t.Context(), opts...)
			require.NoError(t, err)
			require.Equal(t, 1, late.Hits())
			require.NoError(t, h.Context().Err())
			require.Equal(t, map[string]string{h.Owner(): "1"}, rdb.HGetAll(t.Context(), t.Name()).Val())
			require.NoError(t, h.Unlock(t.Context()))
		})
	}
}

// Twenty links are cut at random moments. When a key is found free, its holder's
// context must have ended.
func TestCutLinkIsToldBeforeTheKeyIsFree(t *testing.T) {
	const trials = 20
	rdb := server.Client(t)
	smallest := time.Duration(1<<63 - 1)
	late := 0
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range trials {
		p, c := connectVia(t, server, nil, holdfast.WithLease(watched))
		wg.Go(func() {
			h, err := c.Lock(t.Name() + strconv.Itoa(i)).Lock(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			ended := make(chan time.Time, 1)
			context.AfterFunc(h.Context(), func() { ended <- time.Now() })
			<-time.After(watched/2 + rand.N(watched)) // some renewals later
			p.Refuse(true)
			p.Cut()
			free := whenFree(t, rdb, h)
			mu.Lock()
			defer mu.Unlock()
			select {
			case at := <-ended:
				smallest = min(smallest, free.Sub(at))
			default:
				late++
			}
		})
	}
	wg.Wait()
	t.Logf("%d trials: smallest time from the end of the context to the free key %v, %d told late", trials, smallest, late)
	// What a holder sees who looks is certain, and required by whenFree; who waits for
	// Done depends on the scheduler of a busy machine, too.
}

// whenFree polls until a hold's key is gone, and requires that its context says
// so by then.
func whenFree(t *testing.T, rdb *redis.Client, h *holdfast.Hold) time.Time {
	for {
		n, err := rdb.Exists(context.Background(), h.Name()).Result()
		if err != nil {
			t.Error(err)
			return time.Now()
		}
		if n == 0 {
			at := time.Now()
			if h.Context().Err() == nil {
				t.Error("the key is free, and the holder's context hasn't ended")
			}
			return at
		}
		<-time.After(200 * time.Microsecond)
	}
}
