package holdfast_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
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

// The two ways in which a multi lock asks: several members in one script call, and
// each through its own methods.
var multiWays = map[string]func(l rlock.Locker) rlock.Locker{
	"one call":   func(l rlock.Locker) rlock.Locker { return l },
	"one by one": func(l rlock.Locker) rlock.Locker { return alone{l} },
}

// members are locks of c with names of the test's own.
func members(t testing.TB, c *holdfast.Client, way func(rlock.Locker) rlock.Locker, n int) (ls []rlock.Locker) {
	for i := range n {
		ls = append(ls, way(c.Lock(fmt.Sprintf("%s-%d", t.Name(), i))))
	}
	return ls
}

var acquiring = func(t testing.TB) faultproxy.Match {
	one, many := sending(t, "acquire.lua"), sending(t, "multi_acquire.lua")
	return func(cmd []string) bool { return one(cmd) || many(cmd) }
}

// A caller who leaves while the grant is on its way leaves nothing behind.
func TestA14MultiCallerLeavesDuringTheGrant(t *testing.T) {
	rdb := server.Client(t)
	for way, wrap := range multiWays {
		for end, leave := range map[string]func(context.Context) (context.Context, context.CancelFunc){
			"cancel": context.WithCancel,
			"deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, 1500*time.Millisecond) // after the script
			},
		} {
			t.Run(way+"/"+end, func(t *testing.T) {
				p, c := connectVia(t, server, nil, holdfast.WithLease(never))
				l := c.MultiLock(members(t, c, wrap, 3)...)
				arrives := make(chan struct{})
				held := p.Add(faultproxy.Rule{Match: acquiring(t), Times: 1, Do: faultproxy.HoldReply(arrives)})
				ctx, cancel := leave(holdfast.WithOwner(t.Context()))
				defer cancel()
				call := async(func() (*holdfast.Hold, error) { return l.Lock(ctx) })
				<-held.Done()
				require.NotEmpty(t, leftKeys(t, rdb, t.Name()), "the script ran")
				if end == "cancel" {
					cancel()
				}
				r := await(t, call, prompt, "the caller leaves")
				require.ErrorIs(t, r.err, ctx.Err())
				close(arrives)
				requireNoKeys(t, rdb, t.Name())
				requireNoChannels(t, rdb, t.Name())
			})
		}
	}
}

// nth matches the n-th of the commands that match, over all proxies that use it.
func nth(n int32, match faultproxy.Match) faultproxy.Match {
	var seen atomic.Int32
	return func(cmd []string) bool { return match(cmd) && seen.Add(1) == n }
}

// An acquisition that ends half-way leaves none of its members taken, on neither
// server.
func TestA36InterruptedHalfWay(t *testing.T) {
	second := redistest.Start(t)
	rdbs := []*redis.Client{server.Client(t), second.Client(t)}
	requireFree := func(t *testing.T) {
		t.Helper()
		for _, rdb := range rdbs {
			requireNoKeys(t, rdb, t.Name())
			requireNoChannels(t, rdb, t.Name())
		}
	}
	// Five names on two servers; the clients lose patience soon.
	setup := func(t *testing.T, wrap func(rlock.Locker) rlock.Locker) (ps []*faultproxy.Proxy, l *rlock.MultiLock) {
		var ls []rlock.Locker
		var c *holdfast.Client
		for i, srv := range []*redistest.Server{server, second} {
			var p *faultproxy.Proxy
			p, c = connectVia(t, srv, readTimeout(100*time.Millisecond), holdfast.WithLease(never), holdfast.WithCommandTimeout(2*time.Second))
			ps = append(ps, p)
			ls = append(ls, members(t, c, wrap, 2+i)...)
		}
		return ps, c.MultiLock(ls...)
	}
	for way, wrap := range multiWays {
		last := int32(4) // the command that takes the fourth
		if way == "one call" {
			last = 2
		}
		t.Run(way+"/cancelled", func(t *testing.T) {
			t.Parallel()
			ps, l := setup(t, wrap)
			arrives := make(chan struct{})
			match := nth(last-1, acquiring(t))
			hit := make(chan *faultproxy.Fault, 2)
			for _, p := range ps {
				f := p.Add(faultproxy.Rule{Match: match, Times: 1, Do: faultproxy.HoldReply(arrives)})
				go func() {
					select {
					case <-f.Done():
						hit <- f
					case <-t.Context().Done():
					}
				}()
			}
			ctx, cancel := context.WithCancel(holdfast.WithOwner(t.Context()))
			call := async(func() (*holdfast.Hold, error) { return l.Lock(ctx) })
			<-hit
			cancel()
			r := await(t, call, prompt, "the caller leaves")
			require.ErrorIs(t, r.err, context.Canceled)
			close(arrives)
			requireFree(t)
		})
		t.Run(way+"/one reply lost", func(t *testing.T) {
			t.Parallel()
			ps, l := setup(t, wrap)
			match := nth(last, acquiring(t))
			for _, p := range ps {
				p.Add(faultproxy.Rule{Match: match, Times: 1, Do: faultproxy.DropReply})
			}
			h, err := l.Lock(holdfast.WithOwner(t.Context()))
			require.NoError(t, err)
			n, err := l.HoldCount(h.Context())
			require.NoError(t, err)
			require.Equal(t, 1, n)
			require.NoError(t, h.Unlock(t.Context()))
			requireFree(t)
		})
		t.Run(way+"/all replies lost from there on", func(t *testing.T) {
			t.Parallel()
			ps, l := setup(t, wrap)
			var seen atomic.Int32
			match := func(cmd []string) bool { return acquiring(t)(cmd) && seen.Add(1) >= last }
			var faults []*faultproxy.Fault
			for _, p := range ps {
				faults = append(faults, p.Add(faultproxy.Rule{Match: match, Do: faultproxy.DropReply}))
			}
			_, err := l.TryLock(t.Context())
			require.ErrorIs(t, err, holdfast.ErrUnavailable)
			require.Positive(t, faults[0].Hits()+faults[1].Hits())
			requireFree(t)
		})
		t.Run(way+"/wait ends", func(t *testing.T) {
			t.Parallel()
			_, l := setup(t, wrap)
			blocker, err := newClient(t, second.Client(t)).Lock(t.Name() + "-1").Lock(t.Context())
			require.NoError(t, err)
			_, err = l.TryLock(t.Context(), holdfast.Wait(2*time.Second))
			require.ErrorIs(t, err, holdfast.ErrNotAcquired)
			require.ErrorContains(t, err, blocker.Name())
			require.Empty(t, leftKeys(t, rdbs[0], t.Name()), "nothing is held when the call returns")
			require.Equal(t, []string{blocker.Name()}, leftKeys(t, rdbs[1], t.Name()))
			require.NoError(t, blocker.Unlock(t.Context()))
			requireFree(t)
		})
		t.Run(way+"/cancelled while it waits", func(t *testing.T) {
			t.Parallel()
			_, l := setup(t, wrap)
			blocker, err := newClient(t, second.Client(t)).Lock(t.Name() + "-1").Lock(t.Context())
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			call := async(func() (*holdfast.Hold, error) { return l.Lock(ctx) })
			awaitWaiter(t, rdbs[1], blocker.Name())
			require.Empty(t, leftKeys(t, rdbs[0], t.Name()), "who waits holds nothing back")
			cancel()
			require.ErrorIs(t, await(t, call, prompt, "the caller leaves").err, context.Canceled)
			require.NoError(t, blocker.Unlock(t.Context()))
			requireFree(t)
		})
	}
}

// It never succeeds while one member is somebody else's, whatever it is told of
// waits and leases.
func TestA38NeverWithoutOneMember(t *testing.T) {
	rdb := server.Client(t)
	for way, wrap := range multiWays {
		t.Run(way, func(t *testing.T) {
			c := connect(t, holdfast.WithLease(never))
			ls := members(t, c, wrap, 3)
			theirs, err := connect(t, holdfast.WithLease(never)).Lock(ls[1].Name()).Lock(t.Context())
			require.NoError(t, err)
			for _, wait := range []time.Duration{-1, 0, 100 * time.Millisecond} {
				for _, lease := range []time.Duration{-1, 50 * time.Millisecond, 10 * time.Second} {
					opts := []rlock.Option{holdfast.Wait(wait)}
					if lease > 0 {
						opts = append(opts, holdfast.Lease(lease))
					}
					for _, lock := range []func(context.Context, ...rlock.Option) (*rlock.Hold, error){c.MultiLock(ls...).TryLock, c.MultiLock(ls...).Lock} {
						err := locktest.Answered(func() error {
							start := time.Now()
							_, err := lock(t.Context(), opts...)
							require.GreaterOrEqual(t, time.Since(start), wait)
							return err
						})
						require.ErrorIs(t, err, holdfast.ErrNotAcquired)
						require.Equal(t, []string{ls[1].Name()}, leftKeys(t, rdb, t.Name()))
					}
				}
			}
			require.NoError(t, theirs.Context().Err())
			require.NoError(t, theirs.Unlock(t.Context()))
		})
	}
}

// A lease counts from the end of the acquisition; if the first member's was used
// up before the last one was taken, it is a failure, and nothing stays taken.
func TestA38LeaseUsedUpOnTheWay(t *testing.T) {
	const delay = 100 * time.Millisecond
	rdb := server.Client(t)
	p, c := connectVia(t, server, nil)
	l := c.MultiLock(members(t, c, multiWays["one by one"], 5)...)
	p.Add(faultproxy.Rule{Match: acquiring(t), Do: faultproxy.Delay(delay)})
	for what, opts := range map[string][]rlock.Option{"TryLock": nil, "Wait": {holdfast.Wait(time.Minute)}} {
		t.Run(what, func(t *testing.T) {
			_, err := l.TryLock(t.Context(), append(opts, holdfast.Lease(250*time.Millisecond))...)
			require.ErrorIs(t, err, holdfast.ErrLost)
			require.Empty(t, leftKeys(t, rdb, "TestA38LeaseUsedUpOnTheWay"), "all were given back")
		})
	}
	t.Run("long enough", func(t *testing.T) {
		const lease = 5 * time.Second
		start := time.Now()
		h, err := l.TryLock(t.Context(), holdfast.Lease(lease))
		require.NoError(t, err)
		// The first member alone would end 5 s after start, less a margin.
		require.Greater(t, h.ExpiresAt().Sub(start), lease-lease/100+3*delay)
		require.NoError(t, h.Unlock(t.Context()))
	})
}

// Members that were asked one after the other on a slow link run out as one. Those
// that Redis has still don't count for an outer hold, and whoever gives back what is
// left, in whatever order, leaves nothing behind.
func TestMultiLeaseRunsOutAsOne(t *testing.T) {
	const delay, lease = 100 * time.Millisecond, time.Second
	rdb := server.Client(t)
	type both struct {
		c            *holdfast.Client
		l            *rlock.MultiLock
		outer, inner *holdfast.Hold
	}
	for name, check := range map[string]func(t *testing.T, b both){
		"the outer hold is given back": func(t *testing.T, b both) {
			require.NoError(t, b.outer.Unlock(t.Context()))
			require.Empty(t, leftKeys(t, rdb, t.Name()))
			require.ErrorIs(t, b.inner.Unlock(t.Context()), holdfast.ErrLost)
		},
		"by the lock itself": func(t *testing.T, b both) {
			require.NoError(t, b.l.Unlock(b.outer.Context()))
			require.ErrorIs(t, context.Cause(b.outer.Context()), holdfast.ErrReleased)
			require.Empty(t, leftKeys(t, rdb, t.Name()))
		},
		"the inner one first": func(t *testing.T, b both) {
			require.ErrorIs(t, b.inner.Unlock(t.Context()), holdfast.ErrLost)
			require.NoError(t, b.outer.Context().Err())
			n, err := b.l.HoldCount(b.outer.Context())
			require.NoError(t, err)
			require.Equal(t, 1, n)
			require.NoError(t, b.outer.Unlock(t.Context()))
			require.Empty(t, leftKeys(t, rdb, t.Name()))
		},
		"entered again, and detached": func(t *testing.T, b both) {
			again, err := b.l.TryLock(b.outer.Context())
			require.NoError(t, err)
			require.NoError(t, again.Unlock(t.Context()))
			require.NoError(t, b.outer.Context().Err())
			handle, err := b.outer.Detach()
			require.NoError(t, err, "it is the only one")
			taken, err := b.c.Resume(t.Context(), handle)
			require.NoError(t, err)
			require.NoError(t, taken.Unlock(t.Context()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, c := connectVia(t, server, nil, holdfast.WithLease(never))
			b := both{c: c, l: c.MultiLock(members(t, c, multiWays["one by one"], 3)...)}
			var err error
			b.outer, err = b.l.Lock(t.Context())
			require.NoError(t, err)
			// The first two get their lease anew after the last one's answer: theirs ends
			// later by the delay.
			late := p.Add(faultproxy.Rule{Match: sending(t, "acquire.lua"), Do: faultproxy.Delay(delay)})
			b.inner, err = b.l.Lock(b.outer.Context(), holdfast.Lease(lease))
			require.NoError(t, err)
			late.Remove()
			<-b.inner.Context().Done()
			require.ErrorIs(t, context.Cause(b.inner.Context()), holdfast.ErrLost)
			require.NoError(t, b.outer.Context().Err())
			check(t, b)
		})
	}
	t.Run("without an outer hold", func(t *testing.T) {
		p, c := connectVia(t, server, nil, holdfast.WithLease(never))
		l := c.MultiLock(members(t, c, multiWays["one by one"], 3)...)
		p.Add(faultproxy.Rule{Match: sending(t, "acquire.lua"), Do: faultproxy.Delay(delay)})
		h, err := l.Lock(t.Context(), holdfast.Lease(lease))
		require.NoError(t, err)
		<-h.Context().Done()
		require.ErrorIs(t, h.Unlock(t.Context()), holdfast.ErrLost)
		// Whoever ran out goes by itself, a margin later.
		require.Subset(t, []string{t.Name() + "-2"}, leftKeys(t, rdb, t.Name()), "those that had some time left are given back")
	})
}

// Who gives back, or opens, with the hold's own context isn't cut short by what the
// first member's answer ends. What the caller ends does.
func TestFromInsideTheHold(t *testing.T) {
	rdb := server.Client(t)
	setup := func(t *testing.T) (*faultproxy.Proxy, rlock.Locker, *holdfast.Hold) {
		p, c := connectVia(t, server, nil, holdfast.WithLease(never))
		l := c.MultiLock(members(t, c, multiWays["one by one"], 3)...)
		h, err := l.Lock(t.Context())
		require.NoError(t, err)
		return p, l, h
	}
	t.Run("unlock", func(t *testing.T) {
		_, l, h := setup(t)
		require.NoError(t, l.Unlock(h.Context()))
		require.ErrorIs(t, context.Cause(h.Context()), holdfast.ErrReleased)
		require.Empty(t, leftKeys(t, rdb, t.Name()))
	})
	t.Run("force unlock", func(t *testing.T) {
		_, l, h := setup(t)
		opened, err := l.ForceUnlock(h.Context())
		require.NoError(t, err)
		require.True(t, opened)
		require.ErrorIs(t, context.Cause(h.Context()), holdfast.ErrLost)
		require.Empty(t, leftKeys(t, rdb, t.Name()))
	})
	t.Run("its caller's deadline", func(t *testing.T) {
		p, l, h := setup(t)
		arrives := make(chan struct{})
		p.Add(faultproxy.Rule{Match: sending(t, "multi_release.lua"), Do: faultproxy.HoldReply(arrives)})
		ctx, cancel := context.WithTimeout(h.Context(), 300*time.Millisecond)
		defer cancel()
		err := await(t, async(func() (*holdfast.Hold, error) { return nil, l.Unlock(ctx) }), prompt, "the caller leaves").err
		close(arrives)
		require.ErrorIs(t, err, holdfast.ErrUncertain)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		requireNoKeys(t, rdb, t.Name())
	})
	t.Run("its caller's cancellation", func(t *testing.T) {
		p, l, h := setup(t)
		_, err := l.Lock(h.Context())
		require.NoError(t, err)
		arrives := make(chan struct{})
		held := p.Add(faultproxy.Rule{Match: sending(t, "multi_release.lua"), Do: faultproxy.HoldReply(arrives)})
		ctx, cancel := context.WithCancel(h.Context())
		call := async(func() (*holdfast.Hold, error) { return nil, l.Unlock(ctx) })
		<-held.Done()
		cancel()
		err = await(t, call, prompt, "the caller leaves").err
		close(arrives)
		require.ErrorIs(t, err, holdfast.ErrUncertain)
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, h.Unlock(t.Context()))
		requireNoKeys(t, rdb, t.Name())
	})
}

// The loss of one member ends the context of all; Unlock frees the others.
func TestMultiMemberIsLost(t *testing.T) {
	t.Parallel() // it waits for renewals
	rdb := server.Client(t)
	for way, wrap := range multiWays {
		t.Run(way, func(t *testing.T) {
			c := connect(t, holdfast.WithLease(3*time.Second))
			ls := members(t, c, wrap, 3)
			h, err := c.MultiLock(ls...).Lock(t.Context())
			require.NoError(t, err)
			require.NoError(t, rdb.Del(t.Context(), ls[1].Name()).Err())
			select {
			case <-h.Context().Done():
			case <-time.After(prompt):
				t.Fatal("the holder wasn't told")
			}
			require.ErrorIs(t, context.Cause(h.Context()), holdfast.ErrLost)
			require.ErrorContains(t, context.Cause(h.Context()), ls[1].Name())
			require.True(t, h.ExpiresAt().IsZero())
			require.Len(t, leftKeys(t, rdb, t.Name()), 2, "the others are kept until the unlock")
			err = h.Unlock(t.Context())
			require.ErrorIs(t, err, holdfast.ErrNotHeld)
			require.ErrorIs(t, err, holdfast.ErrLost)
			require.Empty(t, leftKeys(t, rdb, t.Name()))
			require.ErrorIs(t, h.Unlock(t.Context()), holdfast.ErrLost)
		})
	}
}

// A member that its own Locker gives back is missing: the context ends.
func TestMultiMemberIsGivenBack(t *testing.T) {
	c := connect(t)
	ls := members(t, c, multiWays["one call"], 3)
	h, err := c.MultiLock(ls...).Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, ls[1].Unlock(h.Context()))
	require.Error(t, h.Context().Err())
	require.ErrorIs(t, context.Cause(h.Context()), holdfast.ErrReleased)
	require.ErrorIs(t, h.Unlock(t.Context()), holdfast.ErrNotHeld)
	require.Empty(t, leftKeys(t, server.Client(t), t.Name()))
}

// Nothing that nobody can give back is renewed.
func TestMultiDropped(t *testing.T) {
	t.Parallel() // it mostly waits
	log, c := logging(t)
	func() {
		h, err := c.MultiLock(members(t, c, multiWays["one call"], 3)...).Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Context().Err())
	}()
	collected(t, "the members expire", func() bool { return len(leftKeys(t, server.Client(t), t.Name())) == 0 })
	require.Equal(t, 3, log.about(dropped))
}

// What makes no sense is refused in words, at the first call.
func TestMultiInvalid(t *testing.T) {
	c, sibling := connect(t), connect(t)
	elsewhere := newClient(t, redistest.Start(t).Client(t))
	var none *rlock.Lock
	n := t.Name()
	for what, ls := range map[string][]rlock.Locker{
		"no members": {}, "nil": {c.Lock(n), nil}, "typed nil": {none, c.Lock(n)}, "bad name": {c.Lock(n), c.Lock("a{")},
		"one name by two clients": {c.Lock(n), sibling.Lock(n)},
		"no hold":                 {c.Lock(n), noHold{c.Lock(n + "2")}},
	} {
		l := c.MultiLock(ls...)
		_, err := l.TryLock(t.Context())
		require.ErrorIs(t, err, holdfast.ErrInvalid, what)
		require.Empty(t, leftKeys(t, server.Client(t), n), what)
		_ = l.Name() // must not panic
	}
	_, err := c.MultiLock(c.Lock(n)).Lock(nil) //nolint:staticcheck // a caller's mistake
	require.ErrorIs(t, err, holdfast.ErrInvalid)

	for what, ls := range map[string][]rlock.Locker{
		"one name twice":          {c.Lock(n), c.Lock(n + "2"), c.Lock(n)},
		"one name on two servers": {c.Lock(n), elsewhere.Lock(n)},
		"twice, in two ways":      {c.Lock(n), alone{c.Lock(n)}, c.Lock(n + "2")},
	} {
		l := c.MultiLock(ls...)
		h, err := l.TryLock(t.Context())
		require.NoError(t, err, what)
		require.Equal(t, strings.Join([]string{ls[0].Name(), ls[1].Name()}, ","), strings.Join(strings.Split(l.Name(), ",")[:2], ","))
		_, err = c.MultiLock(ls[0]).TryLock(t.Context())
		require.ErrorIs(t, err, holdfast.ErrNotAcquired)
		require.NoError(t, h.Unlock(t.Context()), what)
		require.Empty(t, leftKeys(t, server.Client(t), n), what)
	}

	// A handle is resumed by one client.
	h, err := c.MultiLock(c.Lock(n), elsewhere.Lock(n)).Lock(t.Context())
	require.NoError(t, err)
	_, err = h.Detach()
	require.ErrorIs(t, err, holdfast.ErrInvalid)
	require.NoError(t, h.Context().Err(), "it is held as before")
	require.NoError(t, h.Unlock(t.Context()))

	// A lock that isn't re-entrant says so, and the others are given back.
	ctx := holdfast.WithOwner(t.Context())
	_, err = c.Lock(n + "2").Lock(ctx)
	require.NoError(t, err)
	_, err = c.MultiLock(c.Lock(n), c.Lock(n+"2", rlock.NonReentrant())).Lock(ctx)
	require.ErrorIs(t, err, holdfast.ErrReentry)
	require.NoError(t, c.Lock(n+"2").Unlock(ctx))
	require.Empty(t, leftKeys(t, server.Client(t), n))
}

// noHold is a Locker that breaks its promise.
type noHold struct{ rlock.Locker }

func (noHold) TryLock(context.Context, ...rlock.Option) (*rlock.Hold, error) { return nil, nil }

// Five names of one slot cost as many commands as one.
func TestMultiCommands(t *testing.T) {
	count := &redistest.CommandCounter{}
	rdb := server.Client(t)
	rdb.AddHook(count)
	c := newClient(t, rdb)
	loadScripts(t, server.Client(t))
	for what, unlock := range map[string]func(l *rlock.MultiLock, h *rlock.Hold) error{
		"Hold.Unlock":      func(_ *rlock.MultiLock, h *rlock.Hold) error { return h.Unlock(t.Context()) },
		"MultiLock.Unlock": func(l *rlock.MultiLock, h *rlock.Hold) error { return l.Unlock(h.Context()) },
	} {
		l := c.MultiLock(members(t, c, multiWays["one call"], 5)...)
		count.Reset()
		h, err := l.Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, unlock(l, h))
		require.EqualValues(t, 2, count.Total(), what)
	}
}

// One owner holds all, whatever the client that a member belongs to.
func TestMultiOneOwner(t *testing.T) {
	c, other := connect(t), connect(t)
	ls := slices.Concat(members(t, c, multiWays["one call"], 2), []rlock.Locker{other.Lock(t.Name() + "-other")})
	l := c.MultiLock(ls...)
	h, err := l.Lock(t.Context())
	require.NoError(t, err)
	for _, m := range ls {
		held, err := m.IsHeld(h.Context())
		require.NoError(t, err)
		require.True(t, held)
		inner, err := m.Lock(h.Context()) // re-enters
		require.NoError(t, err)
		require.NoError(t, inner.Unlock(t.Context()))
	}
	require.Zero(t, h.Token())
	require.NoError(t, l.Unlock(h.Context()))
	require.ErrorIs(t, h.Unlock(t.Context()), holdfast.ErrNotHeld)
	_, err = l.HoldCount(t.Context())
	require.ErrorIs(t, err, holdfast.ErrNoOwner)
}
