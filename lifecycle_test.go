package holdfast_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// requireClosed requires that no call of a closed client does anything else than
// answer ErrClosed, at once.
func requireClosed(t *testing.T, c *holdfast.Client, holds ...*holdfast.Hold) {
	t.Helper()
	l, ctx := c.Lock(t.Name()+"-closed"), holdfast.WithOwner(t.Context())
	start := time.Now()
	for what, call := range map[string]func() error{
		"Lock":        func() error { _, err := l.Lock(ctx); return err },
		"TryLock":     func() error { _, err := l.TryLock(ctx); return err },
		"Wait":        func() error { _, err := l.TryLock(ctx, holdfast.Wait(time.Minute)); return err },
		"Unlock":      func() error { return l.Unlock(ctx) },
		"ForceUnlock": func() error { _, err := l.ForceUnlock(ctx); return err },
		"IsLocked":    func() error { _, err := l.IsLocked(ctx); return err },
		"IsHeld":      func() error { _, err := l.IsHeld(ctx); return err },
		"HoldCount":   func() error { _, err := l.HoldCount(ctx); return err },
		"TTL":         func() error { _, err := l.TTL(ctx); return err },
		"Do":          func() error { return l.Do(ctx, func(context.Context) error { return nil }) },
	} {
		require.ErrorIs(t, call(), holdfast.ErrClosed, what)
	}
	for _, h := range holds {
		require.Error(t, h.Context().Err())
		require.ErrorIs(t, h.Unlock(ctx), holdfast.ErrClosed)
		require.ErrorIs(t, h.Extend(ctx, time.Minute), holdfast.ErrClosed)
		_, err := h.Detach()
		require.ErrorIs(t, err, holdfast.ErrClosed)
	}
	require.Less(t, time.Since(start), prompt)
	require.NoError(t, c.Close(), "a second Close does nothing")
	require.NoError(t, c.Shutdown(ctx))
}

// Close tells waiters and holders, and leaves what is held to its lease.
func TestClose(t *testing.T) {
	const lease = 2 * time.Second
	rdb, keeper := server.Client(t), connect(t, holdfast.WithLease(never))
	taken, err := keeper.Lock(t.Name() + "-taken").Lock(t.Context())
	require.NoError(t, err)
	before, _ := running()
	c := newClient(t, server.Client(t), holdfast.WithLease(lease))
	h, err := c.Lock(t.Name()).Lock(t.Context())
	require.NoError(t, err)
	fixed, err := c.Lock(t.Name()+"-fixed").Lock(t.Context(), holdfast.Lease(never))
	require.NoError(t, err)
	var waiters []<-chan result
	for i := range 10 {
		ctx := t.Context()
		if i%2 == 0 {
			ctx = context.Background()
		}
		waiters = append(waiters, async(func() (*holdfast.Hold, error) { return c.Lock(t.Name() + "-taken").Lock(ctx) }))
	}
	awaitWaiter(t, rdb, t.Name()+"-taken")

	var closing sync.WaitGroup
	for range 3 { // at once, too
		closing.Go(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	for _, w := range waiters {
		require.ErrorIs(t, await(t, w, prompt, "waiters are told").err, holdfast.ErrClosed)
	}
	closing.Wait()
	for _, h := range []*holdfast.Hold{h, fixed} {
		require.ErrorIs(t, h.Context().Err(), context.Canceled)
		require.ErrorIs(t, context.Cause(h.Context()), holdfast.ErrClosed)
		require.True(t, exists(t, rdb, h.Name()), "held locks are left")
	}
	requireGoroutines(t, before)
	requireNoChannels(t, rdb, t.Name())
	requireClosed(t, c, h, fixed)
	eventually(t, "the lease ends", func() bool { return !exists(t, rdb, t.Name()) })
	require.NoError(t, rdb.Del(t.Context(), fixed.Name()).Err())
	require.NoError(t, taken.Unlock(t.Context()))
}

// Shutdown gives everything back, of all owners, and tells waiters.
func TestShutdown(t *testing.T) {
	rdb, keeper := server.Client(t), connect(t, holdfast.WithLease(never))
	taken, err := keeper.Lock(t.Name() + "-taken").Lock(t.Context())
	require.NoError(t, err)
	c := newClient(t, server.Client(t), holdfast.WithLease(never))
	var holds []*holdfast.Hold
	for i := range 50 {
		h, err := c.Lock(t.Name() + strconv.Itoa(i)).Lock(t.Context())
		require.NoError(t, err)
		inner, err := c.Lock(h.Name()).Lock(h.Context(), holdfast.Lease(never))
		require.NoError(t, err)
		holds = append(holds, h, inner)
	}
	waiter := async(func() (*holdfast.Hold, error) { return c.Lock(taken.Name()).Lock(t.Context()) })
	theirs := async(func() (*holdfast.Hold, error) { return keeper.Lock(holds[0].Name()).Lock(t.Context()) })
	awaitWaiter(t, rdb, taken.Name())
	awaitWaiter(t, rdb, holds[0].Name())

	require.NoError(t, c.Shutdown(t.Context()))
	require.ErrorIs(t, await(t, waiter, prompt, "waiters are told").err, holdfast.ErrClosed)
	r := await(t, theirs, prompt, "others are let in")
	require.NoError(t, r.err)
	require.NoError(t, r.hold.Unlock(t.Context()))
	require.Equal(t, []string{taken.Name()}, leftKeys(t, rdb, t.Name()))
	for _, h := range holds {
		require.ErrorIs(t, context.Cause(h.Context()), holdfast.ErrReleased)
	}
	requireClosed(t, c)
	require.NoError(t, taken.Unlock(t.Context()))
}

// What is being acquired while Shutdown runs is given back, too: when it
// returns no key is left, even if the connection is closed with it.
func TestShutdownUnderLoad(t *testing.T) {
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	p := faultproxy.New(t, srv.Addr())
	p.SetLatency(time.Microsecond, 5*time.Millisecond) // so that much is under way
	for round := range 20 {
		c, err := holdfast.Open("redis://"+p.Addr(), holdfast.WithLease(never))
		require.NoError(t, err)
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for j := 0; ; j++ {
					ctx := t.Context()
					if i%2 == 0 {
						ctx = context.Background()
					}
					h, err := c.Lock(strconv.Itoa(round) + "-" + strconv.Itoa((i+j)%15)).Lock(ctx)
					if err != nil {
						require.ErrorIs(t, err, holdfast.ErrClosed)
						return
					}
					if j%3 > 0 {
						_ = h.Unlock(ctx) // ErrClosed, or given back by Shutdown
					}
				}
			})
		}
		eventually(t, "work is under way", func() bool { return len(leftKeys(t, rdb, strconv.Itoa(round)+"-")) > 5 })
		require.NoError(t, c.Shutdown(t.Context()))
		left := leftKeys(t, rdb, strconv.Itoa(round)+"-")
		wg.Wait()
		require.Empty(t, left, "round %d", round)
	}
}

// Shutdown ends with its context when the server doesn't answer.
func TestShutdownWithoutServer(t *testing.T) {
	p, c := connectVia(t, server, readTimeout(500*time.Millisecond), holdfast.WithLease(time.Minute))
	for i := range 100 {
		_, err := c.Lock(t.Name()+strconv.Itoa(i)).Lock(t.Context(), holdfast.Lease(time.Minute))
		require.NoError(t, err)
	}
	p.Blackhole(true)
	defer p.Blackhole(false)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	start := time.Now()
	err := c.Shutdown(ctx)
	require.ErrorIs(t, err, holdfast.ErrUncertain)
	require.Less(t, time.Since(start), prompt)
	requireClosed(t, c)
}

// A go-redis client that is closed first is told as such.
func TestGoRedisClosedFirst(t *testing.T) {
	rdb := redis.NewClient(server.Options())
	const lease = 3 * time.Second
	c := newClient(t, rdb, holdfast.WithLease(lease))
	h, err := c.Lock(t.Name()).Lock(t.Context())
	require.NoError(t, err)
	waiter := async(func() (*holdfast.Hold, error) { return c.Lock(t.Name()).Lock(t.Context()) })
	awaitWaiter(t, server.Client(t), t.Name())
	require.NoError(t, rdb.Close())

	_, err = c.Lock(t.Name() + "2").TryLock(t.Context())
	require.ErrorIs(t, err, holdfast.ErrClosed)
	require.ErrorContains(t, err, "go-redis")
	_, err = c.Lock(t.Name() + "2").Lock(t.Context())
	require.ErrorIs(t, err, holdfast.ErrClosed)
	require.ErrorIs(t, await(t, waiter, 2*prompt, "waiters learn of it at the next try").err, holdfast.ErrClosed)
	select {
	case <-h.Context().Done():
	case <-time.After(lease + prompt):
		t.Fatal("a hold outlives its connection")
	}
	require.ErrorIs(t, context.Cause(h.Context()), holdfast.ErrLost)
	require.NoError(t, c.Close())
}

// Every kind of deployment that works: lock, wait, wake, renew, unlock.
func TestDeployments(t *testing.T) {
	for what, connect := range map[string]func(t *testing.T) func() redis.UniversalClient{
		"single": func(t *testing.T) func() redis.UniversalClient {
			return func() redis.UniversalClient { return server.Client(t) }
		},
		"RESP2": func(t *testing.T) func() redis.UniversalClient {
			return func() redis.UniversalClient {
				return server.Client(t, func(o *redis.Options) { o.Protocol = 2 })
			}
		},
		"cluster": func(t *testing.T) func() redis.UniversalClient {
			c := redistest.StartCluster(t, 3)
			return func() redis.UniversalClient { return c.Client(t) }
		},
		"sentinel": func(t *testing.T) func() redis.UniversalClient {
			s := redistest.StartSentinel(t)
			return func() redis.UniversalClient { return s.Client(t) }
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			const lease = 3 * time.Second // a cluster starts beside it
			rdb := connect(t)
			a := newClient(t, rdb(), holdfast.WithLease(lease))
			b := newClient(t, rdb(), holdfast.WithLease(lease), holdfast.WithPollFallback(never))
			var wg sync.WaitGroup
			for i := range 12 { // over all nodes
				name := t.Name() + strconv.Itoa(i)
				wg.Go(func() {
					h, err := a.Lock(name).Lock(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					if _, err := b.Lock(name).TryLock(t.Context(), holdfast.Wait(2*lease)); err == nil {
						t.Error("it wasn't renewed")
					}
					if err := h.Context().Err(); err != nil {
						t.Error(context.Cause(h.Context()))
					}
					waiter := async(func() (*holdfast.Hold, error) { return b.Lock(name).Lock(t.Context()) })
					if err := h.Unlock(t.Context()); err != nil {
						t.Error(err)
					}
					select {
					case r := <-waiter:
						if r.err != nil {
							t.Error(r.err)
						} else if err := r.hold.Unlock(t.Context()); err != nil {
							t.Error(err)
						}
					case <-time.After(prompt):
						t.Error("the waiter wasn't woken")
					}
					if locked, err := a.Lock(name).IsLocked(t.Context()); locked || err != nil {
						t.Error("left locked", err)
					}
				})
			}
			wg.Wait()
		})
	}
}

// What can't work is refused in words.
func TestNewRefuses(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": server.Addr()}})
	defer ring.Close()
	_, err := holdfast.New(ring)
	require.ErrorIs(t, err, holdfast.ErrInvalid)
	require.ErrorContains(t, err, "Ring")
	var (
		none     redis.UniversalClient
		client   *redis.Client
		cluster  *redis.ClusterClient
		noRing   *redis.Ring
		universe = map[string]redis.UniversalClient{"nil": none, "client": client, "cluster": cluster, "ring": noRing}
	)
	for what, rdb := range universe {
		t.Run(what, func(t *testing.T) {
			_, err := holdfast.New(rdb)
			require.ErrorIs(t, err, holdfast.ErrInvalid)
		})
	}
}
