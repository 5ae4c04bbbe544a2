package rsemaphore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/rsemaphore"
)

// A18: a request whose reply is lost counts once.
func TestA18LostRepliesCountOnce(t *testing.T) {
	for _, do := range []faultproxy.Action{faultproxy.DropReply, faultproxy.CloseAfterForward} {
		c, proxy := through(t)
		s := c.Semaphore(fmt.Sprint(t.Name(), do))
		set(t, s, 10)
		lose := func(call func() error) {
			t.Helper()
			f := proxy.Add(faultproxy.Rule{Match: faultproxy.Cmd("evalsha", "eval"), Times: 1, Do: do})
			require.NoError(t, call())
			require.Equal(t, 1, f.Hits())
			f.Remove()
		}
		for range 3 { // with the script loaded and without
			lose(func() error { return s.Acquire(t.Context(), 4) })
			require.EqualValues(t, 6, available(t, s))
			lose(func() error { return s.Release(t.Context(), 4) })
			require.EqualValues(t, 10, available(t, s))
			lose(func() error { return s.AddPermits(t.Context(), -3) })
			require.EqualValues(t, 7, available(t, s))
			lose(func() error { n, err := s.Drain(t.Context()); require.EqualValues(t, 7, n); return err })
			lose(func() error { return s.AddPermits(t.Context(), 10) })
		}
	}
}

// A copy that comes late, after everything else, changes nothing.
func TestLateCopiesMintNothing(t *testing.T) {
	c, proxy := through(t)
	look := rsemaphore.Server().Client(t)
	s := c.Semaphore(t.Name())
	set(t, s, 5)
	require.NoError(t, s.Acquire(t.Context(), 1)) // both scripts are loaded
	require.NoError(t, s.Release(t.Context(), 1))
	late := make(chan struct{})
	for _, call := range []func() error{
		func() error { return s.Acquire(t.Context(), 2) },
		func() error { return s.Release(t.Context(), 2) },
	} {
		f := proxy.Add(faultproxy.Rule{Match: faultproxy.Cmd("evalsha"), Times: 1, Do: faultproxy.HoldRequest(late)})
		require.NoError(t, call(), "its further copy is answered")
		f.Remove()
	}
	require.EqualValues(t, 5, available(t, s))
	before := calls(t, look)
	close(late)
	eventually(t, "both have run", func() bool { return calls(t, look) >= before+2 })
	require.EqualValues(t, 5, available(t, s))
}

// calls counts the scripts that the server has run.
func calls(t testing.TB, rdb *redis.Client) (n int) {
	t.Helper()
	info, err := rdb.InfoMap(context.Background(), "commandstats").Result()
	require.NoError(t, err)
	for _, section := range info {
		if line, ok := section["cmdstat_evalsha"]; ok {
			_, err := fmt.Sscanf(line, "calls=%d", &n)
			require.NoError(t, err)
		}
	}
	return n
}

// A14: an acquisition that was cancelled on its way is undone.
func TestA14CancelledAcquireIsUndone(t *testing.T) {
	c, proxy := through(t)
	s := c.Semaphore(t.Name())
	set(t, s, 5)
	require.NoError(t, s.Acquire(t.Context(), 1)) // the scripts are loaded
	require.NoError(t, s.Release(t.Context(), 1))
	for _, action := range []func(<-chan struct{}) faultproxy.Action{faultproxy.HoldReply, faultproxy.HoldRequest} {
		release := make(chan struct{})
		f := proxy.Add(faultproxy.Rule{Match: faultproxy.Cmd("evalsha", "eval"), Do: action(release)})
		ctx, cancel := context.WithCancel(t.Context())
		back := make(chan error, 1)
		go func() { back <- s.Acquire(ctx, 2) }()
		if action(nil) == faultproxy.HoldReply(nil) {
			eventually(t, "it is taken", func() bool { return taken(t, t.Name(), "3") })
		}
		cancel()
		require.ErrorIs(t, <-back, context.Canceled)
		f.Remove()
		close(release)
		eventually(t, "it is given back", func() bool { return taken(t, t.Name(), "5") })
	}
	require.NoError(t, c.Shutdown(t.Context()))
	require.True(t, taken(t, t.Name(), "5"))
}

// taken reports whether the key of a semaphore has a value.
func taken(t testing.TB, key, value string) bool {
	t.Helper()
	v, err := rsemaphore.Server().Client(t).Get(context.Background(), key).Result()
	require.NoError(t, err)
	return v == value
}

// A33: acquisitions that are cancelled at any moment eat no permit.
func TestA33CancelledAcquiresEatNoPermit(t *testing.T) {
	c, proxy := through(t)
	proxy.SetLatency(time.Millisecond, 10*time.Millisecond)
	s := c.Semaphore(t.Name())
	set(t, s, 5)
	var wg sync.WaitGroup
	for g := range 20 {
		wg.Go(func() {
			for i := range 20 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration((g*7+i*3)%25)*time.Millisecond)
				switch err := s.Acquire(ctx, 1); {
				case err == nil:
					if err := s.Release(ctx, 1); err != nil && !errors.Is(err, holdfast.ErrUncertain) {
						t.Error(err)
					}
				case !errors.Is(err, context.DeadlineExceeded):
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	require.NoError(t, c.Shutdown(t.Context()), "which waits for what goes on behind the callers")
	require.True(t, taken(t, t.Name(), "5"))
}

// A49: a context that has ended doesn't keep a permit from being given back.
func TestA49ReleaseWithAnEndedContext(t *testing.T) {
	s := connect(t).Semaphore(t.Name())
	set(t, s, 1)
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, s.Acquire(ctx, 1))
	cancel()
	require.NoError(t, s.Release(ctx, 1))
	require.EqualValues(t, 1, available(t, s))
	require.ErrorIs(t, s.Acquire(ctx, 1), context.Canceled)
	require.ErrorIs(t, s.AddPermits(ctx, 1), context.Canceled)
	require.EqualValues(t, 1, available(t, s))
}

// A release without an answer goes on behind its caller, and counts once.
func TestReleaseGoesOnBehindItsCaller(t *testing.T) {
	c, proxy := through(t, holdfast.WithCommandTimeout(300*time.Millisecond))
	s := c.Semaphore(t.Name())
	set(t, s, 3)
	require.NoError(t, s.Acquire(t.Context(), 2))
	proxy.Blackhole(true)
	require.ErrorIs(t, s.Release(t.Context(), 2), holdfast.ErrUncertain)
	require.True(t, taken(t, t.Name(), "1"))
	proxy.Blackhole(false)
	eventually(t, "it is given back", func() bool { return taken(t, t.Name(), "3") })
}

func TestClosedClientRefuses(t *testing.T) {
	ctx := t.Context()
	c := connect(t)
	s := c.Semaphore(t.Name())
	set(t, s, 1)
	require.NoError(t, s.Acquire(ctx, 1))
	waiting := make(chan error, 1)
	go func() { waiting <- s.Acquire(ctx, 1) }()
	eventually(t, "it waits", func() bool { return subscribed(t, t.Name()) })
	require.NoError(t, c.Close())
	require.ErrorIs(t, <-waiting, holdfast.ErrClosed)
	require.ErrorIs(t, s.Acquire(ctx, 1), holdfast.ErrClosed)
	require.ErrorIs(t, s.Release(ctx, 1), holdfast.ErrClosed)
	_, err := s.Available(ctx)
	require.ErrorIs(t, err, holdfast.ErrClosed)
	require.True(t, taken(t, t.Name(), "0"), "plain permits have no holder who gives them back")
}
