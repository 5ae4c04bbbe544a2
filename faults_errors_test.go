package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// everywhere runs a test on a single server and on a cluster.
func everywhere(t *testing.T, test func(t *testing.T, connect func(...holdfast.Option) *holdfast.Client, nodes []*redis.Client)) {
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		srv := redistest.Start(t)
		test(t, func(o ...holdfast.Option) *holdfast.Client { return newClient(t, srv.Client(t), o...) }, []*redis.Client{srv.Client(t)})
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		c := redistest.StartCluster(t, 3)
		var nodes []*redis.Client
		for _, n := range c.Nodes() {
			nodes = append(nodes, n.Client(t))
		}
		test(t, func(o ...holdfast.Option) *holdfast.Client { return newClient(t, c.Client(t), o...) }, nodes)
	})
}

// A server that forgets its scripts all the time is no error for anybody.
func TestA43ScriptsAreFlushed(t *testing.T) {
	everywhere(t, func(t *testing.T, connect func(...holdfast.Option) *holdfast.Client, nodes []*redis.Client) {
		const lease = 5 * time.Second // among fifty goroutines
		log := &logged{}
		a, b := connect(holdfast.WithLease(lease), holdfast.WithLogger(log.logger())), connect(holdfast.WithLease(lease))
		flushing, stop := context.WithCancel(t.Context())
		var flusher, wg sync.WaitGroup
		flusher.Go(func() {
			for tick := time.NewTicker(50 * time.Millisecond); flushing.Err() == nil; <-tick.C {
				for _, n := range nodes {
					if err := n.ScriptFlush(t.Context()).Err(); err != nil {
						t.Error(err)
					}
				}
			}
		})
		var kept []*holdfast.Hold // renewed in one pipeline meanwhile
		for i := range 30 {
			h, err := a.Lock("kept" + strconv.Itoa(i)).Lock(t.Context())
			require.NoError(t, err)
			kept = append(kept, h)
		}
		parked := async(func() (*holdfast.Hold, error) { return b.Lock("kept0").Lock(t.Context()) })
		var pairs atomic.Int32
		end := time.Now().Add(lease) // by then each was renewed twice
		for i := range 50 {
			c := a
			if i%2 == 1 {
				c = b
			}
			l := c.Lock("busy" + strconv.Itoa(i%20))
			wg.Go(func() {
				for time.Now().Before(end) {
					h, err := l.Lock(t.Context())
					if err == nil {
						_, err = l.HoldCount(h.Context())
					}
					if err == nil {
						err = errors.Join(h.Extend(t.Context(), 2*lease), h.Unlock(t.Context()))
					}
					if err != nil {
						t.Error(err)
						return
					}
					pairs.Add(1)
				}
			})
		}
		wg.Wait()
		stop()
		flusher.Wait()
		unknown := 0
		for _, n := range nodes {
			stats, err := n.InfoMap(t.Context(), "errorstats").Result()
			require.NoError(t, err)
			var count int
			if _, err := fmt.Sscanf(stats["Errorstats"]["errorstat_NOSCRIPT"], "count=%d", &count); err == nil {
				unknown += count
			}
		}
		t.Logf("%d pairs, %d times NOSCRIPT", pairs.Load(), unknown)
		require.Greater(t, unknown, 10, "the fault wasn't made")
		for _, h := range kept {
			require.NoError(t, h.Context().Err())
			require.NoError(t, h.Unlock(t.Context()))
		}
		require.Zero(t, log.about("NOSCRIPT"), "a renewal told of it")
		r := await(t, parked, prompt, "the parked waiter gets it")
		require.NoError(t, r.err)
		require.NoError(t, r.hold.Unlock(t.Context()))
	})
}

// requireError requires that an error matches all of want, and of the sentinels
// that callers branch on nothing else.
func requireError(t testing.TB, err error, want ...error) {
	t.Helper()
	for _, target := range []error{
		holdfast.ErrNotAcquired, holdfast.ErrNotHeld, holdfast.ErrLost, holdfast.ErrUnavailable, holdfast.ErrDenied,
		holdfast.ErrUncertain, holdfast.ErrClosed, holdfast.ErrInvalid, context.Canceled, context.DeadlineExceeded,
	} {
		require.Equal(t, slices.Contains(want, target), errors.Is(err, target), "%q, against %q", err, target)
	}
}

// short is the time that calls are given which somebody answers, and shorter that
// of those which nobody does.
const (
	short   = time.Second
	shorter = 400 * time.Millisecond
)

// "Taken", "no answer", "refused" and "your time is over" are told apart.
func TestA47ErrorsAreToldApart(t *testing.T) {
	t.Parallel() // a server of its own, and mostly waiting
	// Each case is made after a hold was taken by c.
	srv := redistest.Start(t)
	setup := func(t *testing.T, short time.Duration) (p *faultproxy.Proxy, c *holdfast.Client, h *holdfast.Hold) {
		p, c = connectVia(t, srv, func(o *redis.Options) {
			o.ReadTimeout, o.DialTimeout, o.DialerRetries = short*2/3, short*2/3, 1
			o.MaxRetries = -1 // go-redis would try for longer than the calls below may
		}, holdfast.WithCommandTimeout(2*short), holdfast.WithLease(never))
		h, err := c.Lock(t.Name()).Lock(t.Context())
		require.NoError(t, err)
		return p, c, h
	}
	soon := func(t *testing.T) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), short)
		t.Cleanup(cancel)
		return ctx
	}

	t.Run("taken", func(t *testing.T) {
		_, c, h := setup(t, short)
		l := c.Lock(t.Name())
		var err error
		for _, opts := range [][]rlock.Option{nil, {holdfast.Wait(50 * time.Millisecond)}} {
			err = locktest.Answered(func() error {
				_, err := l.TryLock(t.Context(), opts...)
				return err
			})
			requireError(t, err, holdfast.ErrNotAcquired)
		}
		var taken *holdfast.NotAcquiredError
		require.ErrorAs(t, err, &taken)
		require.Positive(t, taken.Remaining)
		_, err = l.Lock(soon(t))
		requireError(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "is taken for another")
		requireError(t, l.Unlock(holdfast.WithOwner(t.Context())), holdfast.ErrNotHeld)
		require.NoError(t, h.Unlock(t.Context()))
		requireError(t, h.Extend(t.Context(), time.Second), holdfast.ErrNotHeld)
	})
	t.Run("unreachable", func(t *testing.T) {
		p, c, h := setup(t, shorter)
		p.Refuse(true)
		p.Cut()
		l := c.Lock(t.Name() + "2")
		_, err := l.TryLock(t.Context())
		requireError(t, err, holdfast.ErrUnavailable)
		_, err = l.TryLock(t.Context(), holdfast.Wait(shorter))
		requireError(t, err, holdfast.ErrUnavailable)
		_, err = l.IsLocked(t.Context())
		requireError(t, err, holdfast.ErrUnavailable)
		err = h.Extend(t.Context(), time.Second)
		require.ErrorIs(t, err, holdfast.ErrUnavailable)
		requireError(t, h.Unlock(t.Context()), holdfast.ErrUncertain, holdfast.ErrUnavailable)
	})
	t.Run("denied", func(t *testing.T) {
		p, c, h := setup(t, short)
		rdb := srv.Client(t)
		require.NoError(t, rdb.ConfigSet(t.Context(), "requirepass", password).Err())
		defer func() {
			admin := srv.Client(t, func(o *redis.Options) { o.Password = password })
			require.NoError(t, admin.ConfigSet(t.Context(), "requirepass", "").Err())
		}()
		p.Cut() // new connections have to say who they are
		l := c.Lock(t.Name() + "2")
		for _, f := range []func() error{
			func() error { _, err := l.TryLock(t.Context()); return err },
			func() error { _, err := l.TryLock(t.Context(), holdfast.Wait(time.Minute)); return err },
			func() error { _, err := l.Lock(t.Context()); return err },
			func() error { _, err := l.IsLocked(t.Context()); return err },
			func() error { return h.Extend(t.Context(), time.Second) },
			func() error { return h.Unlock(t.Context()) },
		} {
			err := f()
			requireError(t, err, holdfast.ErrDenied)
			require.ErrorContains(t, err, "NOAUTH")
			require.NotContains(t, err.Error(), password)
		}
		wrong := newClient(t, srv.Client(t, func(o *redis.Options) { o.Password = "wrong" }))
		_, err := wrong.Lock(t.Name()).Lock(t.Context())
		requireError(t, err, holdfast.ErrDenied)
		require.ErrorContains(t, err, "WRONGPASS")
	})
	t.Run("context ended while waiting", func(t *testing.T) {
		_, c, h := setup(t, short)
		_, err := c.Lock(t.Name()).Lock(soon(t))
		requireError(t, err, context.DeadlineExceeded)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = c.Lock(t.Name()).Lock(gone)
		requireError(t, err, context.Canceled)
		_, err = c.Lock(t.Name()).TryLock(gone)
		requireError(t, err, context.Canceled)
		require.NoError(t, h.Unlock(gone))
	})
	t.Run("context ended while unreachable", func(t *testing.T) {
		p, c, h := setup(t, short)
		p.Refuse(true)
		p.Cut()
		l := c.Lock(t.Name() + "2")
		_, err := l.Lock(soon(t))
		requireError(t, err, context.DeadlineExceeded, holdfast.ErrUnavailable)
		longer, cancel := context.WithTimeout(t.Context(), 2*short)
		defer cancel()
		other := async(func() (*holdfast.Hold, error) { return l.Lock(longer) })
		_, err = l.Lock(soon(t)) // one of the two is second in the local line
		requireError(t, err, context.DeadlineExceeded, holdfast.ErrUnavailable)
		requireError(t, await(t, other, prompt, "it ends").err, context.DeadlineExceeded, holdfast.ErrUnavailable)
		err = h.Unlock(soon(t))
		requireError(t, err, holdfast.ErrUncertain, holdfast.ErrUnavailable, context.DeadlineExceeded)
	})
}

// back is after how long a silent server answers again.
const back = 5 * time.Second

// silences are the ways in which a server doesn't answer.
func silences(t *testing.T, test func(t *testing.T, silent func(bool), c *holdfast.Client, h *holdfast.Hold)) {
	for what, kind := range map[string]func(t *testing.T, srv *redistest.Server, p *faultproxy.Proxy, on bool){
		"black hole": func(_ *testing.T, _ *redistest.Server, p *faultproxy.Proxy, on bool) { p.Blackhole(on) },
		"stopped": func(_ *testing.T, srv *redistest.Server, _ *faultproxy.Proxy, on bool) {
			if on {
				srv.Pause()
			} else {
				srv.Resume()
			}
		},
		"client pause": func(t *testing.T, srv *redistest.Server, _ *faultproxy.Proxy, on bool) {
			if on { // it ends by itself: an unpause would be kept waiting, too
				rdb := redis.NewClient(srv.Options())
				defer rdb.Close()
				require.NoError(t, rdb.Do(t.Context(), "client", "pause", back.Milliseconds(), "all").Err())
			}
		},
		"gone": func(_ *testing.T, srv *redistest.Server, _ *faultproxy.Proxy, on bool) {
			if on {
				srv.Kill()
			} else {
				srv.Restart()
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			p, c := connectVia(t, srv, readTimeout(time.Second), holdfast.WithLease(never), holdfast.WithCommandTimeout(time.Second))
			h, err := c.Lock("held").Lock(t.Context())
			require.NoError(t, err)
			test(t, func(on bool) { kind(t, srv, p, on) }, c, h)
		})
	}
}

// However a server is silent, calls keep to their time, and one that may wait
// for ever succeeds when it is back.
func TestA48TimesAreKeptWithoutAServer(t *testing.T) {
	const slack = 2500 * time.Millisecond // less than back, with the time of any call
	silences(t, func(t *testing.T, silent func(bool), c *holdfast.Client, h *holdfast.Hold) {
		start := time.Now() // before it is silent, which ends by itself in some cases
		silent(true)
		background := async(func() (*holdfast.Hold, error) { return c.Lock("a").Lock(context.Background()) })
		type call struct {
			within time.Duration
			want   []error
			result <-chan result
		}
		second := func() context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			t.Cleanup(cancel)
			return ctx
		}
		// A single sending may take the read timeout beyond the command timeout.
		const once = 2 * time.Second
		calls := map[string]call{
			"try": {once, []error{holdfast.ErrUnavailable}, async(func() (*holdfast.Hold, error) {
				return c.Lock("b").TryLock(t.Context())
			})},
			"try for 1 s": {time.Second, []error{holdfast.ErrUnavailable}, async(func() (*holdfast.Hold, error) {
				return c.Lock("c").TryLock(context.Background(), holdfast.Wait(time.Second))
			})},
			"try for 1 s, second in line": {time.Second, []error{holdfast.ErrUnavailable}, async(func() (*holdfast.Hold, error) {
				return c.Lock("a").TryLock(context.Background(), holdfast.Wait(time.Second))
			})},
			"lock for 1 s": {time.Second, []error{context.DeadlineExceeded}, async(func() (*holdfast.Hold, error) {
				return c.Lock("d").Lock(second())
			})},
			"unlock": {once, []error{holdfast.ErrUncertain, holdfast.ErrUnavailable}, async(func() (*holdfast.Hold, error) {
				return nil, h.Unlock(context.Background())
			})},
		}
		for what, call := range calls {
			r := await(t, call.result, call.within+slack+prompt, what)
			require.Less(t, r.at.Sub(start), call.within+slack, what)
			for _, want := range call.want {
				require.ErrorIs(t, r.err, want, what)
			}
			require.NotErrorIs(t, r.err, holdfast.ErrNotAcquired, what)
		}
		<-time.After(time.Until(start.Add(back - 1500*time.Millisecond)))
		select {
		case r := <-background:
			t.Fatal("a call without a limit ended: ", r.err)
		default:
		}
		silent(false)
		r := await(t, background, prompt, "the server is back")
		require.NoError(t, r.err)
		require.NoError(t, r.hold.Unlock(t.Context()))
		for _, name := range []string{"b", "c", "d", "held"} { // no call that gave up has left something
			h, err := c.Lock(name).TryLock(t.Context(), holdfast.Wait(prompt))
			require.NoError(t, err)
			require.NoError(t, h.Unlock(t.Context()))
		}
	})
}

// A context that is over still gives back.
func TestA49UnlockUnderADeadContext(t *testing.T) {
	t.Parallel() // it waits for deadlines
	c, rdb := connect(t, holdfast.WithLease(never)), server.Client(t)
	l := c.Lock(t.Name())
	for what, over := range map[string]func() (context.Context, context.CancelFunc){
		"cancelled": func() (context.Context, context.CancelFunc) {
			return context.WithCancel(holdfast.WithOwner(t.Context()))
		},
		"deadline": func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(holdfast.WithOwner(t.Context()), 2*time.Second)
		},
	} {
		t.Run(what, func(t *testing.T) {
			for _, by := range []string{"hold", "owner", "do"} {
				ctx, cancel := over()
				end := func() {
					if what == "cancelled" {
						cancel()
					}
					<-ctx.Done()
				}
				var err error
				if by == "do" {
					err = l.Do(ctx, func(ctx context.Context) error { end(); <-ctx.Done(); return nil })
				} else {
					h, lockErr := l.Lock(ctx)
					require.NoError(t, lockErr)
					end()
					<-h.Context().Done()
					require.Equal(t, ctx.Err(), h.Context().Err())
					require.True(t, exists(t, rdb, l.Name()), "ending gives nothing back by itself")
					if by == "hold" {
						err = h.Unlock(ctx)
					} else {
						err = l.Unlock(ctx)
					}
				}
				require.NoError(t, err, by)
				require.False(t, exists(t, rdb, l.Name()), by)
				cancel()
			}
			ctx, cancel := over()
			require.Panics(t, func() {
				_ = l.Do(ctx, func(context.Context) error { cancel(); panic("boom") }) // doesn't return
			})
			require.False(t, exists(t, rdb, l.Name()))
		})
	}
}

// Who waits for a server that is gone leaves word of it in the log, once.
func TestSilenceOfTheServerIsLogged(t *testing.T) {
	srv := redistest.Start(t)
	p := newParty(t, srv.Client(t, func(o *redis.Options) { o.DialerRetries = 1 }))
	srv.Kill()
	ctx, cancel := context.WithCancel(t.Context())
	waiter := begin(func() (*rlock.Hold, error) { return p.Lock("n").Lock(ctx) })
	said := func() int { return p.log.count("no answer, sending again") }
	redistest.Eventually(t, 4*prompt, func() bool { return said() > 0 }, "nothing is said")
	cancel()
	v := <-waiter
	require.ErrorIs(t, v.err, context.Canceled)
	require.Equal(t, 1, said())
	srv.Restart()
}
