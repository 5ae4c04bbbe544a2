package holdfast_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
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

// tokenKey is where Redisson keeps a lock's last token.
func tokenKey(name string) string { return "redisson_lock_token:{" + name + "}" }

// redissonLock does what a Redisson client does that takes a fenced lock which is
// free, and answers its token.
func redissonLock(t testing.TB, rdb *redis.Client, name, owner string) int64 {
	t.Helper()
	token, err := redis.NewScript(`
		if redis.call('EXISTS', KEYS[1]) == 1 then return redis.error_reply('taken') end
		redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
		redis.call('PEXPIRE', KEYS[1], 30000)
		return redis.call('INCR', KEYS[2])`).Run(t.Context(), rdb, []string{name, tokenKey(name)}, owner).Int64()
	require.NoError(t, err)
	return token
}

// Tokens grow whatever becomes of the lock's key, and not at a re-entry.
func TestA26TokensGrow(t *testing.T) {
	t.Parallel() // a server of its own, and mostly waiting
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	c1 := newClient(t, srv.Client(t), holdfast.WithLease(3*time.Second))
	c2 := newClient(t, srv.Client(t), holdfast.WithLease(3*time.Second))
	name := t.Name()
	l1, l2 := c1.FencedLock(name), c2.FencedLock(name)
	last := int64(0)
	grown := func(h *holdfast.Hold, err error) *holdfast.Hold {
		t.Helper()
		require.NoError(t, err)
		require.Greater(t, h.Token(), last)
		last = h.Token()
		current, err := l2.CurrentToken(t.Context())
		require.NoError(t, err)
		require.Equal(t, last, current)
		return h
	}
	current, err := l1.CurrentToken(t.Context())
	require.NoError(t, err)
	require.Zero(t, current)

	a := grown(l1.Lock(t.Context(), rlock.Lease(2*time.Second)))
	require.EqualValues(t, 1, a.Token())
	inner, err := l1.Lock(a.Context(), rlock.Lease(2*time.Second))
	require.NoError(t, err)
	require.Equal(t, a.Token(), inner.Token(), "a re-entry keeps its token")
	require.NoError(t, inner.Unlock(t.Context()))
	require.Equal(t, time.Duration(-1), rdb.PTTL(t.Context(), tokenKey(name)).Val(), "it never expires")

	b := grown(l2.Lock(t.Context())) // when a's lease has run out
	require.NoError(t, rdb.Del(t.Context(), name).Err())
	c := grown(l1.TryLock(t.Context()))
	locktest.RequireLost(t, b)
	_, err = l2.ForceUnlock(t.Context())
	require.NoError(t, err)
	d := grown(l2.TryLock(t.Context()))
	locktest.RequireLost(t, c)
	require.NoError(t, d.Unlock(t.Context()))

	require.Greater(t, redissonLock(t, rdb, name, "java:7"), last, "a Java holder's are the same numbers")
	last++
	_, err = l1.ForceUnlock(t.Context())
	require.NoError(t, err)
	e := grown(l1.TryLock(t.Context()))
	require.NoError(t, e.Unlock(t.Context()))

	// A server that comes back without its data begins anew. That can't be
	// healed from here; what it has to go on from can be told.
	srv.Kill()
	srv.Restart()
	f, err := l1.Lock(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, f.Token())
	require.NoError(t, l2.RaiseToken(t.Context(), last))
	again, err := l1.Lock(f.Context())
	require.NoError(t, err)
	require.Equal(t, f.Token(), again.Token(), "who is in keeps the token of its outer hold")
	require.NoError(t, again.Unlock(t.Context()))
	require.NoError(t, f.Unlock(t.Context()))
	g := grown(l1.Lock(t.Context()))
	require.NoError(t, l2.RaiseToken(t.Context(), 1), "it never falls")
	require.NoError(t, g.Unlock(t.Context()))
	h := grown(l2.Lock(t.Context()))
	require.NoError(t, h.Unlock(t.Context()))
}

// The token of a retired name can be removed, but not under a holder.
func TestA26TokensOfRetiredNames(t *testing.T) {
	rdb := server.Client(t)
	c := connect(t, holdfast.WithLease(never))
	l := c.FencedLock(t.Name())
	there, err := l.DeleteToken(t.Context())
	require.NoError(t, err)
	require.False(t, there)

	h, err := l.Lock(t.Context())
	require.NoError(t, err)
	_, err = l.DeleteToken(h.Context())
	require.ErrorIs(t, err, holdfast.ErrNotAcquired)
	var taken *holdfast.NotAcquiredError
	require.ErrorAs(t, err, &taken)
	require.Greater(t, taken.Remaining, never/2)
	require.NoError(t, rdb.Persist(t.Context(), t.Name()).Err())
	_, err = l.DeleteToken(t.Context())
	require.ErrorAs(t, err, &taken)
	require.Negative(t, taken.Remaining)

	require.NoError(t, h.Unlock(t.Context()))
	there, err = l.DeleteToken(t.Context())
	require.NoError(t, err)
	require.True(t, there)
	require.Empty(t, leftKeys(t, rdb, t.Name()))
}

// Four clients under load, with holders that die, locks that are forced open and
// keys that are deleted: whoever asks after somebody was granted gets a larger
// token, and no two get the same.
func TestA26TokensUnderLoad(t *testing.T) {
	const workers, each = 24, 40
	rdb := server.Client(t)
	var clients []*holdfast.Client
	for range 4 {
		clients = append(clients, connect(t))
	}
	name := t.Name()
	var highest atomic.Int64 // of the grants that have been answered
	var seen sync.Map
	var granted atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(w)))
			ctx := holdfast.WithOwner(t.Context())
			for range each {
				l := clients[w%len(clients)].FencedLock(name)
				before := highest.Load()
				h, err := l.Lock(ctx, rlock.Wait(time.Minute), rlock.Lease(5*time.Millisecond+rand.N(20*time.Millisecond)))
				if err != nil {
					t.Error(err)
					return
				}
				token := h.Token()
				granted.Add(1)
				if token <= before {
					t.Errorf("token %d after token %d was given", token, before)
				}
				if _, twice := seen.LoadOrStore(token, true); twice {
					t.Errorf("token %d was given twice", token)
				}
				for old := highest.Load(); token > old && !highest.CompareAndSwap(old, token); old = highest.Load() {
				}
				inner, err := l.TryLock(ctx, rlock.Lease(20*time.Millisecond))
				switch {
				case err == nil && inner.Token() != token && h.Context().Err() == nil:
					t.Errorf("re-entry has token %d instead of %d", inner.Token(), token)
				case err == nil && inner.Token() != token: // the lock was lost between: a first entry
					if _, twice := seen.LoadOrStore(inner.Token(), true); twice {
						t.Errorf("token %d was given twice", inner.Token())
					}
				case errors.Is(err, holdfast.ErrNotAcquired):
					err = nil
				}
				switch rnd.IntN(8) {
				case 0: // a crash: its lease ends it
				case 1:
					_, err = l.ForceUnlock(t.Context())
				case 2:
					err = rdb.Del(t.Context(), name).Err()
				default:
					for err == nil {
						err = l.Unlock(ctx)
					}
					if errors.Is(err, holdfast.ErrNotHeld) {
						err = nil
					}
				}
				if err != nil {
					t.Error(err)
				}
				ctx = holdfast.WithOwner(t.Context())
			}
		})
	}
	wg.Wait()
	current, err := clients[0].FencedLock(name).CurrentToken(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, current, highest.Load())
	require.EqualValues(t, workers*each, granted.Load())
	t.Logf("%d grants, last token %d", granted.Load(), current)
}

// A fenced acquisition that is sent again counts once, and burns no token.
func TestA18FencedAcquireSentTwice(t *testing.T) {
	rdb := server.Client(t)
	for what, do := range map[string]faultproxy.Action{
		"reply dropped": faultproxy.DropReply, "closed after it ran": faultproxy.CloseAfterForward,
		"request dropped": faultproxy.DropRequest, "closed before": faultproxy.CloseBeforeForward,
	} {
		t.Run(what, func(t *testing.T) {
			p, c := connectVia(t, server, readTimeout(100*time.Millisecond), holdfast.WithLease(never))
			l, plain := c.FencedLock(t.Name()), c.Lock(t.Name())
			faulty := func(l holdfast.Locker, ctx context.Context) *holdfast.Hold {
				t.Helper()
				fault := p.Add(faultproxy.Rule{Match: anyScript, Times: 2, Do: do})
				h, err := l.Lock(ctx)
				require.NoError(t, err)
				require.Equal(t, 2, fault.Hits())
				return h
			}
			for token := int64(1); token <= 3; token++ {
				outer := faulty(l, t.Context())
				require.Equal(t, token, outer.Token())
				inner := faulty(l, outer.Context())
				require.Equal(t, token, inner.Token())
				require.Equal(t, map[string]string{outer.Owner(): "2"}, rdb.HGetAll(t.Context(), t.Name()).Val())
				require.NoError(t, inner.Unlock(t.Context()))
				require.NoError(t, outer.Unlock(t.Context()))
				require.False(t, exists(t, rdb, t.Name()))
			}
			outer, err := plain.Lock(t.Context())
			require.NoError(t, err)
			require.Zero(t, outer.Token())
			inner := faulty(l, outer.Context())
			require.EqualValues(t, 4, inner.Token(), "inside a plain hold the token is raised, once")
			again := faulty(l, outer.Context())
			require.EqualValues(t, 4, again.Token())
			require.NoError(t, again.Unlock(t.Context()))
			require.NoError(t, inner.Unlock(t.Context()))
			require.NoError(t, outer.Unlock(t.Context()))
			require.Equal(t, "4", rdb.Get(t.Context(), tokenKey(t.Name())).Val())
		})
	}
}

// A fenced unlock whose answer was lost succeeds, and leaves the token alone.
func TestA19FencedUnlockSentTwice(t *testing.T) {
	rdb := server.Client(t)
	p, c := connectVia(t, server, readTimeout(100*time.Millisecond), holdfast.WithLease(never))
	other := connect(t, holdfast.WithPollFallback(never))
	h, err := c.FencedLock(t.Name()).Lock(t.Context())
	require.NoError(t, err)
	waiter := async(func() (*holdfast.Hold, error) { return other.FencedLock(t.Name()).Lock(t.Context()) })
	awaitWaiter(t, rdb, t.Name())
	lost := p.Add(faultproxy.Rule{Match: anyScript, Times: 1, Do: faultproxy.DropReply})
	require.NoError(t, h.Unlock(t.Context()))
	require.Equal(t, 1, lost.Hits())
	r := await(t, waiter, prompt, "the waiter is woken")
	require.NoError(t, r.err)
	require.EqualValues(t, 2, r.hold.Token())
	require.NoError(t, r.hold.Unlock(t.Context()))
}

// A caller of a fenced lock who leaves during the grant leaves nothing but a
// token that nobody has.
func TestA14CallerLeavesAFencedGrant(t *testing.T) {
	rdb := server.Client(t)
	p, c := connectVia(t, server, nil, holdfast.WithLease(never))
	before := goroutines(t, func(name string) holdfast.Locker { return c.Lock(name) })
	answer := make(chan struct{})
	granted := p.Add(faultproxy.Rule{Match: sending(t, "acquire_fenced.lua"), Times: 1, Do: faultproxy.HoldReply(answer)})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	call := async(func() (*holdfast.Hold, error) { return c.FencedLock(t.Name()).Lock(ctx) })
	<-granted.Done()
	cancel()
	r := await(t, call, 2*time.Second, "the caller leaves at once")
	require.ErrorIs(t, r.err, context.Canceled)
	close(answer)
	eventually(t, "it is free again", func() bool { return !exists(t, rdb, t.Name()) })
	requireGoroutines(t, before)
	h, err := c.FencedLock(t.Name()).Lock(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, h.Token())
	require.NoError(t, h.Unlock(t.Context()))
}

// A copy that arrives after later steps raises no token.
func TestLateCopyOfAFencedAcquire(t *testing.T) {
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	p, c := connectVia(t, srv, readTimeout(60*time.Millisecond), holdfast.WithLease(never))
	other := newClient(t, srv.Client(t), holdfast.WithLease(never))
	for what, then := range map[string]func(t *testing.T, h *holdfast.Hold){
		"nothing": func(*testing.T, *holdfast.Hold) {},
		"unlock":  func(t *testing.T, h *holdfast.Hold) { require.NoError(t, h.Unlock(t.Context())) },
		"unlock, somebody else": func(t *testing.T, h *holdfast.Hold) {
			require.NoError(t, h.Unlock(t.Context()))
			_, err := other.FencedLock(t.Name()).TryLock(t.Context())
			require.NoError(t, err)
		},
		"unlock, token removed": func(t *testing.T, h *holdfast.Hold) {
			require.NoError(t, h.Unlock(t.Context()))
			there, err := other.FencedLock(t.Name()).DeleteToken(t.Context())
			require.NoError(t, err)
			require.True(t, there)
		},
		"enter": func(t *testing.T, h *holdfast.Hold) {
			_, err := c.FencedLock(t.Name()).TryLock(h.Context())
			require.NoError(t, err)
		},
	} {
		for _, plainly := range []bool{false, true} {
			t.Run(what+map[bool]string{true: ", inside a plain hold"}[plainly], func(t *testing.T) {
				ctx := holdfast.WithOwner(t.Context())
				if plainly {
					_, err := c.Lock(t.Name()).TryLock(ctx)
					require.NoError(t, err)
				}
				arrives := make(chan struct{})
				copied := p.Add(faultproxy.Rule{Match: sending(t, "acquire_fenced.lua"), Times: 1, Do: faultproxy.HoldRequest(arrives)})
				h, err := c.FencedLock(t.Name()).TryLock(ctx)
				require.NoError(t, err)
				<-copied.Done()
				if plainly && what != "nothing" && what != "enter" {
					require.NoError(t, h.Unlock(t.Context()))
					h = nil
					_, err := other.Lock(t.Name()).ForceUnlock(t.Context())
					require.NoError(t, err)
				} else {
					then(t, h)
				}
				state, token := rdb.HGetAll(t.Context(), t.Name()).Val(), rdb.Get(t.Context(), tokenKey(t.Name())).Val()
				ran := scripts(t, rdb)
				close(arrives)
				eventually(t, "the late copy runs", func() bool { return scripts(t, rdb) > ran })
				require.Equal(t, state, rdb.HGetAll(t.Context(), t.Name()).Val())
				require.Equal(t, token, rdb.Get(t.Context(), tokenKey(t.Name())).Val())
			})
		}
	}
}

// Who gets in again while its lost hold still stands in Redis has a new token,
// even if the first copy never arrived.
func TestFencedAfterALossThatRedisDoesNotKnow(t *testing.T) {
	rdb := server.Client(t)
	for _, do := range []faultproxy.Action{faultproxy.Pass, faultproxy.DropRequest, faultproxy.DropReply} {
		p, c := connectVia(t, server, readTimeout(60*time.Millisecond), holdfast.WithLease(never))
		name := t.Name() + c.ID()
		l, ctx := c.FencedLock(name), holdfast.WithOwner(t.Context())
		h, err := l.Lock(ctx, rlock.Lease(50*time.Millisecond))
		require.NoError(t, err)
		require.NoError(t, rdb.Persist(t.Context(), name).Err()) // in place of a margin that is hard to meet
		locktest.RequireLost(t, h)
		p.Add(faultproxy.Rule{Match: anyScript, Times: 1, Do: do})
		again, err := l.Lock(ctx)
		require.NoError(t, err)
		require.Greater(t, again.Token(), h.Token())
		require.Equal(t, "2", rdb.Get(t.Context(), tokenKey(name)).Val())
		require.NoError(t, again.Unlock(t.Context()))
	}
}

// A handle carries the token.
func TestFencedHandOver(t *testing.T) {
	c1, c2 := connect(t, holdfast.WithLease(never)), connect(t, holdfast.WithLease(never))
	h, err := c1.FencedLock(t.Name()).Lock(t.Context())
	require.NoError(t, err)
	token := h.Token()
	require.Positive(t, token)
	handle, err := h.Detach()
	require.NoError(t, err)
	taken, err := c2.Resume(t.Context(), handle)
	require.NoError(t, err)
	require.Equal(t, token, taken.Token())
	inner, err := c2.FencedLock(t.Name()).Lock(taken.Context())
	require.NoError(t, err)
	require.Equal(t, token, inner.Token())
	require.NoError(t, inner.Unlock(t.Context()))
	require.NoError(t, taken.Unlock(t.Context()))
	next, err := c1.FencedLock(t.Name()).Lock(t.Context())
	require.NoError(t, err)
	require.Equal(t, token+1, next.Token())
	require.NoError(t, next.Unlock(t.Context()))
}

// The kinds of exclusive locks share the lock's key: they exclude each other and
// enter each other.
func TestA24OneNameForSeveralKindsOfLocks(t *testing.T) {
	c1, c2 := connect(t, holdfast.WithLease(never)), connect(t, holdfast.WithLease(never))
	kinds := map[string]func(c *holdfast.Client, name string) holdfast.Locker{
		"plain":  func(c *holdfast.Client, name string) holdfast.Locker { return c.Lock(name) },
		"fenced": func(c *holdfast.Client, name string) holdfast.Locker { return c.FencedLock(name) },
		"spin":   func(c *holdfast.Client, name string) holdfast.Locker { return c.SpinLock(name, nil) },
	}
	for a, first := range kinds {
		for b, second := range kinds {
			t.Run(a+" and "+b, func(t *testing.T) {
				h, err := first(c1, t.Name()).Lock(t.Context())
				require.NoError(t, err)
				require.ErrorIs(t, locktest.Answered(func() error {
					_, err := second(c2, t.Name()).TryLock(t.Context(), rlock.Wait(20*time.Millisecond))
					return err
				}), holdfast.ErrNotAcquired)
				inner, err := second(c1, t.Name()).TryLock(h.Context())
				require.NoError(t, err)
				require.Equal(t, a == "fenced", h.Token() > 0)
				require.Equal(t, b == "fenced", inner.Token() > 0)
				n, err := first(c1, t.Name()).HoldCount(h.Context())
				require.NoError(t, err)
				require.Equal(t, 2, n)
				require.NoError(t, inner.Unlock(t.Context()))
				require.NoError(t, h.Unlock(t.Context()))
				h, err = second(c2, t.Name()).TryLock(t.Context())
				require.NoError(t, err)
				require.NoError(t, h.Unlock(t.Context()))
			})
		}
	}
}

// A token key that holds something else is refused in words, and left alone.
func TestA24TokenKeyHoldsSomethingElse(t *testing.T) {
	rdb := server.Client(t)
	c := connect(t)
	for what, put := range map[string]func(key string) error{
		"text":     func(key string) error { return rdb.Set(t.Context(), key, "{}", 0).Err() },
		"negative": func(key string) error { return rdb.Set(t.Context(), key, -1, 0).Err() },
		"list":     func(key string) error { return rdb.RPush(t.Context(), key, "a").Err() },
	} {
		t.Run(what, func(t *testing.T) {
			name := t.Name()
			require.NoError(t, put(tokenKey(name)))
			before := rdb.Dump(t.Context(), tokenKey(name)).Val()
			l := c.FencedLock(name)
			refused := func(err error) {
				t.Helper()
				require.ErrorIs(t, err, holdfast.ErrInvalid)
				require.ErrorContains(t, err, tokenKey(name))
			}
			_, err := l.TryLock(t.Context())
			refused(err)
			_, err = l.Lock(t.Context(), rlock.Wait(time.Second))
			refused(err)
			_, err = l.CurrentToken(t.Context())
			refused(err)
			refused(l.RaiseToken(t.Context(), 7))
			_, err = l.DeleteToken(t.Context())
			refused(err)
			require.Equal(t, before, rdb.Dump(t.Context(), tokenKey(name)).Val())
			require.False(t, exists(t, rdb, name))
			h, err := c.Lock(name).TryLock(t.Context())
			require.NoError(t, err, "a plain lock needs no token")
			_, err = l.TryLock(h.Context())
			refused(err)
			require.NoError(t, h.Context().Err())
			require.NoError(t, h.Unlock(t.Context()))
		})
	}
}

func TestTokensBadInput(t *testing.T) {
	c := connect(t)
	l := c.FencedLock(t.Name())
	for _, n := range []int64{math.MinInt64, -1, 1<<52 - 1, 1 << 52, math.MaxInt64} {
		require.ErrorIs(t, l.RaiseToken(t.Context(), n), holdfast.ErrInvalid, strconv.FormatInt(n, 10))
	}
	for _, n := range []int64{0, 1, 1<<52 - 2} {
		require.NoError(t, l.RaiseToken(t.Context(), n))
		current, err := l.CurrentToken(t.Context())
		require.NoError(t, err)
		require.Equal(t, n, current)
	}
	h, err := l.Lock(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1<<52-1, h.Token())
	require.NoError(t, h.Unlock(t.Context()))
	_, err = l.Lock(t.Context())
	require.ErrorIs(t, err, holdfast.ErrInvalid, "it is used up")

	_, err = l.CurrentToken(nil) //nolint:staticcheck // what a nil context gets
	require.ErrorIs(t, err, holdfast.ErrInvalid)
	require.ErrorIs(t, l.RaiseToken(nil, 1), holdfast.ErrInvalid) //nolint:staticcheck // likewise
	_, err = l.DeleteToken(nil)                                   //nolint:staticcheck // likewise
	require.ErrorIs(t, err, holdfast.ErrInvalid)
	for _, name := range []string{"", "a{", "{}"} {
		require.ErrorIs(t, c.FencedLock(name).RaiseToken(t.Context(), 1), holdfast.ErrInvalid)
		_, err = c.FencedLock(name).CurrentToken(t.Context())
		require.ErrorIs(t, err, holdfast.ErrInvalid)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, l.RaiseToken(gone, 1), context.Canceled)

	closed := connect(t)
	require.NoError(t, closed.Close())
	require.ErrorIs(t, closed.FencedLock(t.Name()).RaiseToken(t.Context(), 1), holdfast.ErrClosed)
}

// A name with a prefix has its token beside its key.
func TestTokenKeyIsMapped(t *testing.T) {
	rdb := server.Client(t)
	c := connect(t, holdfast.WithPrefix("app:"))
	l := c.FencedLock(t.Name())
	h, err := l.Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, h.Unlock(t.Context()))
	require.NoError(t, l.RaiseToken(t.Context(), 9))
	require.Equal(t, "9", rdb.Get(t.Context(), tokenKey("app:"+t.Name())).Val())
}
