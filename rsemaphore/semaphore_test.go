package rsemaphore_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rsemaphore"
)

// prompt is how long what happens "at once" may take on a busy machine.
const prompt = 5 * time.Second

// newClient makes a client on rdb, closed with the test.
func newClient(t testing.TB, rdb redis.UniversalClient, opts ...holdfast.Option) *holdfast.Client {
	t.Helper()
	c, err := holdfast.New(rdb, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// connect makes a client on the shared server.
func connect(t testing.TB, opts ...holdfast.Option) *holdfast.Client {
	t.Helper()
	return newClient(t, rsemaphore.Server().Client(t), opts...)
}

// through makes a client behind a proxy of its own.
func through(t testing.TB, opts ...holdfast.Option) (*holdfast.Client, *faultproxy.Proxy) {
	t.Helper()
	proxy := faultproxy.New(t, rsemaphore.Server().Addr())
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: 200 * time.Millisecond, PoolSize: 50})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	return newClient(t, rdb, opts...), proxy
}

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	redistest.Eventually(t, prompt, cond, "%s", what)
}

// available asks a semaphore of either kind.
func available(t testing.TB, s interface {
	Available(context.Context) (int64, error)
},
) int64 {
	t.Helper()
	n, err := s.Available(context.Background())
	require.NoError(t, err)
	return n
}

// set gives a semaphore its permits.
func set(t testing.TB, s interface {
	TrySetPermits(context.Context, int64) (bool, error)
}, n int64,
) {
	t.Helper()
	ok, err := s.TrySetPermits(context.Background(), n)
	require.NoError(t, err)
	require.True(t, ok)
}

func subscribed(t testing.TB, name string) bool {
	t.Helper()
	channels, err := rsemaphore.Server().Client(t).PubSubChannels(context.Background(), "redisson_sc:*").Result()
	require.NoError(t, err)
	for _, c := range channels {
		if strings.Contains(c, name) {
			return true
		}
	}
	return false
}

func TestSemaphoreGivesAndTakes(t *testing.T) {
	ctx := t.Context()
	s := connect(t).Semaphore(t.Name())
	other := connect(t).Semaphore(t.Name())
	n, err := s.Drain(ctx)
	require.NoError(t, err)
	require.Zero(t, n)
	there, err := s.Exists(ctx)
	require.NoError(t, err)
	require.False(t, there)
	there, err = s.ReleaseIfExists(ctx, 1)
	require.NoError(t, err)
	require.False(t, there)

	set(t, s, 3)
	require.NoError(t, other.Acquire(ctx, 2))
	require.EqualValues(t, 1, available(t, s))
	err = s.TryAcquire(ctx, 2)
	require.ErrorIs(t, err, holdfast.ErrNotAcquired)
	require.Contains(t, err.Error(), "wanted 2, free 1")
	var taken *holdfast.NotAcquiredError
	require.ErrorAs(t, err, &taken)
	require.EqualValues(t, 2, taken.Wanted)
	require.EqualValues(t, 1, taken.Free)

	require.NoError(t, s.Release(ctx, 2), "a permit has no holder")
	there, err = s.ReleaseIfExists(ctx, 1)
	require.NoError(t, err)
	require.True(t, there)
	require.NoError(t, s.AddPermits(ctx, -10))
	require.EqualValues(t, -6, available(t, other))
	n, err = s.Drain(ctx)
	require.NoError(t, err)
	require.EqualValues(t, -6, n)
	require.Zero(t, available(t, s))
	require.NoError(t, s.AddPermits(ctx, 0))

	there, err = s.Expire(ctx, time.Hour)
	require.NoError(t, err)
	require.True(t, there)
	require.NoError(t, s.Release(ctx, 1))
	require.Greater(t, rsemaphore.Server().Client(t).PTTL(ctx, t.Name()).Val(), 50*time.Minute, "a release keeps the time to live")
	there, err = s.Delete(ctx)
	require.NoError(t, err)
	require.True(t, there)
	there, err = s.Delete(ctx)
	require.NoError(t, err)
	require.False(t, there)
	there, err = s.Expire(ctx, time.Hour)
	require.NoError(t, err)
	require.False(t, there)

	ok, err := s.TrySetPermitsFor(ctx, 1, 100*time.Millisecond)
	require.NoError(t, err)
	require.True(t, ok)
	eventually(t, "it goes", func() bool {
		there, err := s.Exists(ctx)
		require.NoError(t, err)
		return !there
	})
}

// A32: 0 counts as set.
func TestA32SetPermitsLeavesAUsedSemaphoreAlone(t *testing.T) {
	ctx := t.Context()
	p1, p2 := connect(t), connect(t)
	kinds := map[string]func(c *holdfast.Client, name string) interface {
		TrySetPermits(context.Context, int64) (bool, error)
		Available(context.Context) (int64, error)
	}{
		"plain": func(c *holdfast.Client, name string) interface {
			TrySetPermits(context.Context, int64) (bool, error)
			Available(context.Context) (int64, error)
		} {
			return c.Semaphore(name)
		},
	}
	for kind, of := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := of(p1, t.Name())
			set(t, s, 3)
			require.NoError(t, p1.Semaphore(t.Name()).Acquire(ctx, 3))
			ok, err := of(p2, t.Name()).TrySetPermits(ctx, 3)
			require.NoError(t, err)
			require.False(t, ok)
			require.Zero(t, available(t, s))

			zero := of(p1, t.Name()+":zero")
			set(t, zero, 0)
			ok, err = zero.TrySetPermits(ctx, 5)
			require.NoError(t, err)
			require.False(t, ok)
			require.Zero(t, available(t, zero))
		})
	}
}

// A03: as many waiters go on as there are permits.
func TestA03ManyPermitsWakeManyWaiters(t *testing.T) {
	ctx := t.Context()
	p1, p2 := connect(t, holdfast.WithPollFallback(time.Hour)), connect(t, holdfast.WithPollFallback(time.Hour))
	s := p1.Semaphore(t.Name())
	set(t, s, 0)
	served := make(chan error, 5)
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() { served <- p2.Semaphore(t.Name()).Acquire(ctx, 1) })
	}
	count := func(n int) {
		t.Helper()
		for range n {
			select {
			case err := <-served:
				require.NoError(t, err)
			case <-time.After(prompt):
				t.Fatal("a waiter sleeps on")
			}
		}
		require.Zero(t, available(t, s))
		require.Empty(t, served)
	}
	eventually(t, "they listen", func() bool { return subscribed(t, t.Name()) })
	require.NoError(t, s.Release(ctx, 3))
	count(3)
	require.NoError(t, s.AddPermits(ctx, 2))
	count(2)
	wg.Wait()
	require.Zero(t, available(t, s))
}

// Those who want other numbers are served past one who wants more than there is.
func TestBigWishDoesNotBlockSmallOnes(t *testing.T) {
	ctx := t.Context()
	c := connect(t, holdfast.WithPollFallback(time.Hour))
	s := c.Semaphore(t.Name())
	set(t, s, 0)
	big, small := make(chan error, 1), make(chan error, 2)
	go func() { big <- s.Acquire(ctx, 5) }()
	eventually(t, "it waits", func() bool { return subscribed(t, t.Name()) })
	go func() { small <- s.Acquire(ctx, 1) }()
	go func() { small <- s.Acquire(ctx, 2) }()
	require.NoError(t, s.Release(ctx, 3))
	require.NoError(t, <-small)
	require.NoError(t, <-small)
	require.Empty(t, big)
	require.NoError(t, s.Release(ctx, 5))
	require.NoError(t, <-big)
	require.Zero(t, available(t, s))
}

// An uncontended acquisition and its release are two commands.
func TestUncontendedPairIsTwoCommands(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	commands := &redistest.CommandCounter{}
	rdb := rsemaphore.Server().Client(t)
	rdb.AddHook(commands)
	s := newClient(t, rdb).Semaphore(t.Name())
	set(t, s, 1)
	pair := func() {
		require.NoError(t, s.Acquire(ctx, 1))
		require.NoError(t, s.Release(ctx, 1))
	}
	pair() // loads the scripts
	commands.Reset()
	for range 10 {
		pair()
	}
	require.EqualValues(t, 20, commands.Total())
	require.EqualValues(t, 20, commands.Count("evalsha"))
}

func TestSemaphoreRefusesBadInput(t *testing.T) {
	ctx := t.Context()
	c := connect(t)
	s := c.Semaphore(t.Name())
	set(t, s, 5)
	for _, n := range []int64{0, -1, math.MinInt64, math.MaxInt64, 1 << 53} {
		what := fmt.Sprint(n)
		require.ErrorIs(t, s.Acquire(ctx, n), holdfast.ErrInvalid, what)
		require.ErrorIs(t, s.TryAcquire(ctx, n), holdfast.ErrInvalid, what)
		require.ErrorIs(t, s.Release(ctx, n), holdfast.ErrInvalid, what)
		_, err := s.ReleaseIfExists(ctx, n)
		require.ErrorIs(t, err, holdfast.ErrInvalid, what)
	}
	for _, n := range []int64{-1, math.MinInt64, math.MaxInt64, 1 << 53} {
		_, err := s.TrySetPermits(ctx, n)
		require.ErrorIs(t, err, holdfast.ErrInvalid)
	}
	for _, n := range []int64{math.MinInt64, math.MaxInt64, 1 << 53, 1<<53 - 1} {
		require.ErrorIs(t, s.AddPermits(ctx, n), holdfast.ErrInvalid)
	}
	require.ErrorIs(t, s.Release(ctx, 1<<53-1), holdfast.ErrInvalid, "5 are there")
	for _, d := range []time.Duration{0, -time.Second} {
		_, err := s.TrySetPermitsFor(ctx, 1, d)
		require.ErrorIs(t, err, holdfast.ErrInvalid)
		_, err = s.Expire(ctx, d)
		require.ErrorIs(t, err, holdfast.ErrInvalid)
	}
	require.ErrorIs(t, s.TryAcquire(ctx, 1, rsemaphore.Lease(time.Second)), holdfast.ErrInvalid)
	require.ErrorIs(t, s.Acquire(nil, 1), holdfast.ErrInvalid) //nolint:staticcheck // the nil is the point
	_, err := s.Available(nil)                                 //nolint:staticcheck // likewise
	require.ErrorIs(t, err, holdfast.ErrInvalid)
	for _, name := range []string{"", "a}b", "a{b", strings.Repeat("x", 1<<20)} {
		bad := c.Semaphore(name)
		require.ErrorIs(t, bad.Acquire(ctx, 1), holdfast.ErrInvalid)
		require.ErrorIs(t, bad.Release(ctx, 1), holdfast.ErrInvalid)
		_, err := bad.Available(ctx)
		require.ErrorIs(t, err, holdfast.ErrInvalid)
	}
	require.EqualValues(t, 5, available(t, s))
	require.NoError(t, s.Release(nil, 1), "giving back doesn't fail over that") //nolint:staticcheck // likewise
	require.EqualValues(t, 6, available(t, s))
}

// A24: a name that holds something else is told, and left alone.
func TestA24NameHoldsSomethingElse(t *testing.T) {
	ctx := t.Context()
	c := connect(t)
	rdb := rsemaphore.Server().Client(t)
	s := c.Semaphore(t.Name())
	for what, put := range map[string]func() error{
		"a string that is no number": func() error { return rdb.Set(ctx, t.Name(), `{"a": 1}`, 0).Err() },
		"a list":                     func() error { return rdb.RPush(ctx, t.Name(), "x").Err() },
		"a hash": func() error {
			_, err := c.Lock(t.Name()).Lock(ctx)
			return err
		},
	} {
		require.NoError(t, rdb.Del(ctx, t.Name()).Err())
		require.NoError(t, put())
		was := rdb.Dump(ctx, t.Name()).Val()
		for name, call := range map[string]func() error{
			"Acquire":       func() error { return s.Acquire(ctx, 1) },
			"TryAcquire":    func() error { return s.TryAcquire(ctx, 1, rsemaphore.Wait(time.Minute)) },
			"Release":       func() error { return s.Release(ctx, 1) },
			"AddPermits":    func() error { return s.AddPermits(ctx, 1) },
			"TrySetPermits": func() error { _, err := s.TrySetPermits(ctx, 1); return err },
			"Available":     func() error { _, err := s.Available(ctx); return err },
			"Drain":         func() error { _, err := s.Drain(ctx); return err },
			"Expire":        func() error { _, err := s.Expire(ctx, time.Hour); return err },
			"Delete":        func() error { _, err := s.Delete(ctx); return err },
		} {
			err := call()
			require.ErrorIs(t, err, holdfast.ErrInvalid, "%s on %s", name, what)
			require.Contains(t, err.Error(), what, name)
			require.Contains(t, err.Error(), t.Name(), name)
		}
		require.Equal(t, was, rdb.Dump(ctx, t.Name()).Val(), what)
	}
	require.NoError(t, rdb.Del(ctx, t.Name()).Err())
	set(t, s, 1)
	_, err := c.Lock(t.Name()).TryLock(ctx)
	require.ErrorIs(t, err, holdfast.ErrInvalid, "a lock doesn't take a semaphore's name")
	require.EqualValues(t, 1, available(t, s))
}

// Who asks before anybody has set the number is told so, and not that all are
// taken; after that not any more.
func TestNeverSet(t *testing.T) {
	c := connect(t)
	ctx := t.Context()
	s, e := c.Semaphore(t.Name()), c.ExpirableSemaphore(t.Name()+":expirable")
	ask := map[string]func() error{
		"semaphore": func() error { return s.TryAcquire(ctx, 1) },
		"waiting":   func() error { return s.TryAcquire(ctx, 1, holdfast.Wait(50*time.Millisecond)) },
		"expirable": func() error { _, err := e.TryAcquire(ctx); return err },
	}
	for what, f := range ask {
		var refused *holdfast.NotAcquiredError
		require.ErrorAs(t, locktest.Answered(f), &refused, what)
		require.True(t, refused.Unset, what)
		require.ErrorContains(t, refused, "TrySetPermits", what)
	}
	_, err := s.TrySetPermits(ctx, 0)
	require.NoError(t, err)
	_, err = e.TrySetPermits(ctx, 0)
	require.NoError(t, err)
	for what, f := range ask {
		var refused *holdfast.NotAcquiredError
		require.ErrorAs(t, locktest.Answered(f), &refused, what)
		require.False(t, refused.Unset, what)
	}
}
