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

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/rlock"
)

// awaitWaiter waits until a waiter for name has subscribed.
func awaitWaiter(t testing.TB, rdb *redis.Client, name string) {
	t.Helper()
	channel := "redisson_lock__channel:{" + name + "}"
	eventually(t, "somebody waits", func() bool {
		return rdb.PubSubNumSub(context.Background(), channel).Val()[channel] > 0
	})
}

// Of thousands of owners in several processes one wins: ids don't collide.
func TestA20OneOfManyOwnersWins(t *testing.T) {
	var crowds []*child
	for range 4 {
		crowds = append(crowds, startChild(t, "crowd", server.Addr(), t.Name()))
	}
	c := connect(t)
	for _, p := range crowds {
		require.Equal(t, "ready", p.line(t))
	}
	for _, p := range crowds {
		_, err := fmt.Fprintln(p.stdin, "go")
		require.NoError(t, err)
	}
	var mine sync.Map // id -> owner context
	var wins []*holdfast.Hold
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range crowd / 20 {
				ctx := holdfast.WithOwner(t.Context())
				id, ok := holdfast.OwnerID(ctx)
				if _, twice := mine.LoadOrStore(id, true); twice || !ok {
					t.Errorf("owner id %q twice", id)
				}
				h, err := c.Lock(t.Name()).TryLock(ctx)
				if err == nil {
					mu.Lock()
					wins = append(wins, h)
					mu.Unlock()
				} else if !errors.Is(err, holdfast.ErrNotAcquired) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	won, clients, owners := len(wins), map[string]bool{c.ID(): true}, map[string]bool{}
	for _, p := range crowds {
		var n, distinct int
		var client, sample string
		_, err := fmt.Sscan(p.line(t), &n, &distinct, &client, &sample)
		require.NoError(t, err)
		require.Equal(t, crowd, distinct, "owner ids of a process collide")
		won += n
		clients[client], owners[sample] = true, true
		_, taken := mine.Load(sample)
		require.False(t, taken)
	}
	require.Equal(t, 1, won)
	require.Len(t, clients, 5)
	require.Len(t, owners, 4)
	_, err := c.Lock(t.Name()).ForceUnlock(t.Context())
	require.NoError(t, err)
}

// Unlocking what isn't held is an error, and touches nothing.
func TestA21UnlockingWhatIsNotHeld(t *testing.T) {
	rdb := server.Client(t)
	c1, c2 := connect(t, holdfast.WithLease(6*time.Second)), connect(t)
	a, b := holdfast.WithOwner(t.Context()), holdfast.WithOwner(t.Context())
	l, foreign := c1.Lock(t.Name()), c2.Lock(t.Name())
	refused := func(l holdfast.Locker, ctx context.Context, reason error) {
		t.Helper()
		before := rdb.HGetAll(t.Context(), t.Name()).Val()
		err := l.Unlock(ctx)
		require.ErrorIs(t, err, holdfast.ErrNotHeld)
		require.Equal(t, reason != nil, errors.Is(err, holdfast.ErrLost))
		require.Equal(t, before, rdb.HGetAll(t.Context(), t.Name()).Val())
	}
	refused(l, a, nil) // never locked
	h, err := l.Lock(a)
	require.NoError(t, err)
	refused(l, b, nil)
	refused(foreign, a, nil)
	require.NoError(t, h.Unlock(a))
	refused(l, a, nil) // twice
	again, err := l.Lock(a)
	require.NoError(t, err)
	err = h.Unlock(a) // twice, while its owner has another hold
	require.ErrorIs(t, err, holdfast.ErrNotHeld)
	require.NotErrorIs(t, err, holdfast.ErrLost)
	require.True(t, exists(t, rdb, t.Name()))
	require.NoError(t, again.Unlock(a))
	h, err = l.Lock(a, holdfast.Lease(30*time.Millisecond))
	require.NoError(t, err)
	eventually(t, "it expires", func() bool { return !exists(t, rdb, t.Name()) })
	refused(l, a, holdfast.ErrLost)
	require.ErrorIs(t, h.Unlock(a), holdfast.ErrLost)

	h, err = l.Lock(a)
	require.NoError(t, err)
	waiter := async(func() (*holdfast.Hold, error) { return foreign.Lock(b) })
	awaitWaiter(t, rdb, t.Name())
	opened, err := c2.Lock(t.Name()).ForceUnlock(b)
	require.NoError(t, err)
	require.True(t, opened)
	r := await(t, waiter, 4*time.Second, "force wakes") // sooner than a poll, or the lease
	require.NoError(t, r.err)
	locktest.RequireLost(t, h)
	require.NoError(t, r.hold.Unlock(b))
}

// Nothing depends on goroutines: the context is the owner.
func TestA22OwnersAreContexts(t *testing.T) {
	c := connect(t, holdfast.WithLease(never))
	l := c.Lock(t.Name())
	h, err := l.Lock(t.Context())
	require.NoError(t, err)
	apart := make(chan error, 4)
	go func() { // inside the critical section, without its context
		_, err := l.TryLock(t.Context())
		apart <- err
	}()
	require.ErrorIs(t, <-apart, holdfast.ErrNotAcquired)
	go func() { // with it
		inner, err := l.TryLock(h.Context())
		if err == nil {
			err = inner.Unlock(t.Context())
		}
		apart <- err
	}()
	require.NoError(t, <-apart)
	go func() { // with it, but as somebody else
		_, err := l.TryLock(holdfast.WithOwner(h.Context()))
		apart <- err
	}()
	require.ErrorIs(t, <-apart, holdfast.ErrNotAcquired)
	go func() { apart <- h.Unlock(t.Context()) }()
	require.NoError(t, <-apart)
}

// One owner enters a lock that isn't re-entrant once, however its goroutines
// meet, and a re-entrant one as often as they are.
func TestA22OneOwnerInManyGoroutines(t *testing.T) {
	c, other := connect(t, holdfast.WithLease(never)), connect(t, holdfast.WithLease(never))
	rdb := server.Client(t)
	for what, opts := range map[string][]rlock.LockOption{"NonReentrant": {rlock.NonReentrant()}, "Lock": nil} {
		t.Run(what, func(t *testing.T) {
			const goroutines = 8
			name := t.Name()
			first, err := other.Lock(name).Lock(t.Context())
			require.NoError(t, err)
			ctx := holdfast.WithOwner(t.Context())
			var calls []<-chan result
			for range goroutines {
				calls = append(calls, async(func() (*holdfast.Hold, error) { return c.Lock(name, opts...).Lock(ctx) }))
			}
			awaitWaiter(t, rdb, name)
			require.NoError(t, first.Unlock(t.Context()))
			granted := 0
			for _, call := range calls {
				r := await(t, call, 2*time.Second, "an owner needn't wait for itself")
				if r.err == nil {
					granted++
				} else {
					require.ErrorIs(t, r.err, holdfast.ErrReentry)
				}
			}
			want := goroutines
			if opts != nil {
				want = 1
			}
			require.Equal(t, want, granted)
			for range granted {
				require.NoError(t, c.Lock(name).Unlock(ctx))
			}
			require.False(t, exists(t, rdb, name))
		})
	}
}

// A name that holds something else is refused in words, and left alone.
func TestA24NamesThatHoldSomethingElse(t *testing.T) {
	rdb := server.Client(t)
	c := connect(t)
	for what, put := range map[string]func(key string) error{
		"string":      func(key string) error { return rdb.Set(t.Context(), key, `{"a":1}`, 0).Err() },
		"list":        func(key string) error { return rdb.RPush(t.Context(), key, "a").Err() },
		"set":         func(key string) error { return rdb.SAdd(t.Context(), key, "a").Err() },
		"semaphore":   func(key string) error { return rdb.Set(t.Context(), key, 3, 0).Err() },
		"read lock":   func(key string) error { return rdb.HSet(t.Context(), key, "mode", "read", "u:1", 1).Err() },
		"write lock":  func(key string) error { return rdb.HSet(t.Context(), key, "mode", "write", "u:1:write", 1).Err() },
		"rate limit":  func(key string) error { return rdb.HSet(t.Context(), key, "rate", 1, "interval", 1, "type", 0).Err() },
		"with expiry": func(key string) error { return rdb.Set(t.Context(), key, "x", time.Hour).Err() },
	} {
		t.Run(what, func(t *testing.T) {
			key := t.Name()
			t.Cleanup(func() { rdb.Del(context.Background(), key) })
			require.NoError(t, put(key))
			before, ends := rdb.Dump(t.Context(), key).Val(), rdb.PExpireTime(t.Context(), key).Val()
			l, ctx := c.Lock(key), holdfast.WithOwner(t.Context())
			_, err := l.TryLock(ctx)
			require.ErrorIs(t, err, holdfast.ErrInvalid)
			require.ErrorContains(t, err, key)
			_, err = l.Lock(ctx, holdfast.Wait(time.Second))
			require.ErrorIs(t, err, holdfast.ErrInvalid)
			_, err = l.ForceUnlock(ctx)
			require.ErrorIs(t, err, holdfast.ErrInvalid)
			require.ErrorIs(t, l.Unlock(ctx), holdfast.ErrNotHeld)
			require.Equal(t, before, rdb.Dump(t.Context(), key).Val())
			require.Equal(t, ends, rdb.PExpireTime(t.Context(), key).Val())
		})
		t.Run(what+" in place of a hold", func(t *testing.T) {
			key := t.Name()
			t.Cleanup(func() { rdb.Del(context.Background(), key) })
			h, err := c.Lock(key).Lock(t.Context())
			require.NoError(t, err)
			require.NoError(t, rdb.Del(t.Context(), key).Err())
			require.NoError(t, put(key))
			before := rdb.Dump(t.Context(), key).Val()
			require.ErrorIs(t, h.Extend(t.Context(), time.Minute), holdfast.ErrLost)
			require.ErrorIs(t, h.Unlock(t.Context()), holdfast.ErrLost)
			require.Equal(t, before, rdb.Dump(t.Context(), key).Val())
		})
	}
}

// A waiter that is cancelled at the very moment of the release either has the
// lock or an error, never something between.
func TestA25CancelledAtTheRelease(t *testing.T) {
	const workers, each = 10, 500
	rdb := server.Client(t, func(o *redis.Options) { o.PoolSize = workers })
	c1, c2 := connect(t, holdfast.WithLease(never)), connect(t, holdfast.WithLease(never))
	var wg sync.WaitGroup
	var won longest
	for w := range workers {
		wg.Go(func() {
			name := t.Name() + strconv.Itoa(w)
			a, b := c1.Lock(name), c2.Lock(name)
			for i := range each {
				h, err := a.TryLock(t.Context(), holdfast.Wait(2*prompt))
				if err != nil {
					t.Error("after", i, "rounds:", err)
					return
				}
				ctx, cancel := context.WithCancel(holdfast.WithOwner(t.Context()))
				waiter := async(func() (*holdfast.Hold, error) { return b.Lock(ctx) })
				if i%10 == 0 {
					if n, err := b.HoldCount(ctx); n != 0 || err != nil {
						t.Errorf("a waiter holds %d, %v", n, err)
					}
				}
				time.AfterFunc(rand.N(3*time.Millisecond), cancel)
				if i%2 == 0 {
					<-time.After(rand.N(3 * time.Millisecond))
				}
				if err := h.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
				r := <-waiter
				switch {
				case r.err == nil:
					won.Add(1)
					if v := rdb.HGet(t.Context(), name, r.hold.Owner()).Val(); v != "1" {
						t.Errorf("granted, but Redis says %q", v)
					}
					if err := r.hold.Unlock(t.Context()); err != nil {
						t.Error(err)
					}
				case !errors.Is(r.err, context.Canceled):
					t.Error(r.err)
				}
				cancel()
			}
			if !within(prompt, func() bool { return !exists(t, rdb, name) }) {
				t.Error("the key is left")
			}
		})
	}
	wg.Wait()
	t.Logf("%d of %d waiters were granted it", won.Load(), workers*each)
	require.Positive(t, won.Load())
	require.Less(t, won.Load(), int64(workers*each))
}
