package rlimiter_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rlimiter"
)

// throughProxy is a client whose connections go through a proxy, which gives up a
// read after so long.
func throughProxy(t testing.TB, read time.Duration, opts ...holdfast.Option) (*holdfast.Client, *faultproxy.Proxy) {
	t.Helper()
	proxy := faultproxy.New(t, rlimiter.Server().Addr())
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: read})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	return newClient(t, rdb, opts...), proxy
}

var anyScript = faultproxy.Cmd("EVALSHA", "EVAL")

// What is sent twice is taken, or given back, once; also if the first copy runs when
// the second has been answered.
func TestA18SentTwice(t *testing.T) {
	c, proxy := throughProxy(t, 200*time.Millisecond)
	l, watch := c.RateLimiter(name(t)), connect(t).RateLimiter(name(t))
	ctx := t.Context()
	set(t, l, 100, time.Hour)
	require.NoError(t, l.Acquire(ctx, 10)) // the scripts are loaded from here on
	require.NoError(t, l.Release(ctx, 1))
	require.EqualValues(t, 91, available(t, watch))
	free := make(chan struct{})
	left := int64(91)
	for _, fault := range []faultproxy.Action{faultproxy.DropReply, faultproxy.CloseAfterForward, faultproxy.HoldRequest(free)} {
		for _, call := range []struct {
			do    func(context.Context, int64) error
			taken int64
		}{{l.Acquire, 5}, {l.Release, -2}} {
			f := proxy.Add(faultproxy.Rule{Match: anyScript, Do: fault, Times: 1})
			require.NoError(t, call.do(ctx, max(call.taken, -call.taken)))
			left -= call.taken
			require.EqualValues(t, left, available(t, watch))
			f.Remove()
		}
	}
	before := rlimiter.Scripts(t)
	close(free)
	redistest.Eventually(t, prompt, func() bool { return rlimiter.Scripts(t) >= before+2 }, "the late copies didn't run")
	require.EqualValues(t, left, available(t, watch))
}

// An acquisition whose caller leaves while its reply is under way takes nothing in
// the end, whether it ran or not.
func TestA14CancelledAcquireGivesItsGrantBack(t *testing.T) {
	for _, hold := range []func(<-chan struct{}) faultproxy.Action{faultproxy.HoldReply, faultproxy.HoldRequest} {
		c, proxy := throughProxy(t, 10*time.Second)
		n := name(t)
		l, watch := c.RateLimiter(n), connect(t).RateLimiter(n)
		require.NoError(t, watch.SetRate(t.Context(), rlimiter.Overall, 10, time.Hour))
		require.NoError(t, l.Acquire(t.Context(), 1))
		free := make(chan struct{})
		held := proxy.Add(faultproxy.Rule{Match: anyScript, Do: hold(free), Times: 1})
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 1)
		go func() { got <- l.Acquire(ctx, 4) }()
		<-held.Done()
		cancel()
		require.ErrorIs(t, <-got, context.Canceled)
		close(free)
		redistest.Eventually(t, prompt, func() bool { return available(t, watch) == 9 }, "the grant stays with nobody")
		require.NoError(t, c.Close()) // waits for what goes on behind
		require.EqualValues(t, 9, available(t, watch))
		require.Len(t, rlimiter.Grants(t, n), 1)
	}
}

// Contexts that end at any moment of an acquisition, on a slow link: each call ends
// with its permit or without, and nothing is left of those without.
func TestA33CancelledAtRandom(t *testing.T) {
	c, proxy := throughProxy(t, 10*time.Second)
	proxy.SetLatency(time.Millisecond, 8*time.Millisecond)
	l, watch := c.RateLimiter(name(t)), connect(t).RateLimiter(name(t))
	set(t, watch, 100000, time.Hour)
	require.NoError(t, l.Acquire(t.Context(), 1))
	var wg sync.WaitGroup
	var mu sync.Mutex
	got := int64(1)
	for range 10 {
		wg.Go(func() {
			for range 30 {
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(20*time.Millisecond))
				err := l.Acquire(ctx, 1)
				cancel()
				switch {
				case err == nil:
					mu.Lock()
					got++
					mu.Unlock()
				case !errors.Is(err, context.DeadlineExceeded):
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	redistest.Eventually(t, 2*prompt, func() bool { return available(t, watch) == 100000-got }, "grants stay with nobody, or are gone")
	require.Len(t, rlimiter.Grants(t, name(t)), int(got))
}

// No answer is never a refusal.
func TestA47WithoutServer(t *testing.T) {
	c, proxy := throughProxy(t, 200*time.Millisecond, holdfast.WithCommandTimeout(500*time.Millisecond))
	l := c.RateLimiter(name(t))
	set(t, l, 1, time.Hour)
	proxy.Refuse(true)
	proxy.Cut()
	require.ErrorIs(t, l.TryAcquire(t.Context(), 1), holdfast.ErrUnavailable)
	require.ErrorIs(t, l.TryAcquire(t.Context(), 1, rlimiter.Wait(100*time.Millisecond)), holdfast.ErrUnavailable)
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	err := l.Acquire(ctx, 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, holdfast.ErrUnavailable)
	back := make(chan error, 1)
	go func() { back <- l.Acquire(t.Context(), 1) }()
	proxy.Refuse(false)
	require.NoError(t, <-back, "it waits until the server is back")
}
