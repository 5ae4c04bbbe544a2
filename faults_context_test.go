package holdfast_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/rlock"
)

// Whoever gives a hold back with the context of one that was taken inside it waits
// for the answer, although the release ends that context.
func TestUnlockWithTheContextOfAnInnerHold(t *testing.T) {
	rdb := server.Client(t)
	for what, c := range map[string]struct {
		outer, inner func(c *holdfast.Client, name string) rlock.Locker
	}{
		"two locks": {
			func(c *holdfast.Client, name string) rlock.Locker { return c.Lock(name + ":a") },
			func(c *holdfast.Client, name string) rlock.Locker { return c.Lock(name + ":b") },
		},
		"downgrade": {
			func(c *holdfast.Client, name string) rlock.Locker { return c.RWLock(name).Write() },
			func(c *holdfast.Client, name string) rlock.Locker { return c.RWLock(name).Read() },
		},
		"multi lock in one call": {
			func(c *holdfast.Client, name string) rlock.Locker {
				return c.MultiLock(c.Lock(name+":a"), c.Lock(name+":b"))
			},
			func(c *holdfast.Client, name string) rlock.Locker { return c.Lock(name + ":c") },
		},
		"multi lock one by one": {
			func(c *holdfast.Client, name string) rlock.Locker {
				return c.MultiLock(alone{c.Lock(name + ":a")}, alone{c.Lock(name + ":b")})
			},
			func(c *holdfast.Client, name string) rlock.Locker { return c.Lock(name + ":c") },
		},
	} {
		for how, unlock := range map[string]func(l rlock.Locker, h *holdfast.Hold, ctx context.Context) error{
			"hold": func(_ rlock.Locker, h *holdfast.Hold, ctx context.Context) error { return h.Unlock(ctx) },
			"lock": func(l rlock.Locker, _ *holdfast.Hold, ctx context.Context) error { return l.Unlock(ctx) },
		} {
			t.Run(what+"/"+how, func(t *testing.T) {
				p, client := connectVia(t, server, nil, holdfast.WithLease(never))
				l := c.outer(client, t.Name())
				outer, err := l.Lock(t.Context())
				require.NoError(t, err)
				inner, err := c.inner(client, t.Name()).Lock(outer.Context())
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(inner.Context(), never)
				defer cancel()

				arrives := make(chan struct{})
				held := p.Add(faultproxy.Rule{Match: anyScript, Times: 1, Do: faultproxy.HoldReply(arrives)})
				call := async(func() (*holdfast.Hold, error) { return nil, unlock(l, outer, ctx) })
				<-held.Done()
				<-ctx.Done()
				close(arrives)
				require.NoError(t, await(t, call, prompt, "the unlock").err)
				require.NoError(t, inner.Unlock(t.Context()))
				requireNoKeys(t, rdb, t.Name())
			})
		}
	}
}

// A holder is told that its lock was forced open, also if who did it has left
// before the answer.
func TestForcedOpenByACallerWhoLeft(t *testing.T) {
	p, c := connectVia(t, server, nil, holdfast.WithLease(never))
	l := c.Lock(t.Name())
	h, err := l.Lock(t.Context(), rlock.Lease(never))
	require.NoError(t, err)
	arrives := make(chan struct{})
	held := p.Add(faultproxy.Rule{Match: sending(t, "force.lua"), Times: 1, Do: faultproxy.HoldReply(arrives)})
	ctx, cancel := context.WithCancel(t.Context())
	call := async(func() (*holdfast.Hold, error) { _, err := l.ForceUnlock(ctx); return nil, err })
	<-held.Done()
	cancel()
	require.ErrorIs(t, await(t, call, prompt, "the caller leaves").err, context.Canceled)
	require.NoError(t, h.Context().Err())
	close(arrives)
	select {
	case <-h.Context().Done():
	case <-time.After(prompt):
		require.FailNow(t, "it was never told")
	}
	require.ErrorIs(t, context.Cause(h.Context()), holdfast.ErrLost)
}

// An outer hold that is given back while the inner one's members run out, one after
// the other, leaves nothing behind, also where nobody has looked at a clock.
func TestUnlockWhileAnInnerLeaseRunsOut(t *testing.T) {
	const delay, lease = 400 * time.Millisecond, 1500 * time.Millisecond
	rdb := server.Client(t)
	blocked, goOn := make(chan struct{}), make(chan struct{})
	p, c := connectVia(t, server, nil, holdfast.WithLease(never), holdfast.WithObserver(func(e holdfast.Event) {
		if lost, ok := e.(holdfast.HoldLost); ok && lost.Name == t.Name()+"-late" {
			close(blocked)
			<-goOn // the watchdog is late
		}
	}))
	t.Cleanup(func() { close(goOn) }) // before the client's Close
	l := c.MultiLock(members(t, c, multiWays["one by one"], 3)...)
	outer, err := l.Lock(t.Context())
	require.NoError(t, err)
	late := p.Add(faultproxy.Rule{Match: sending(t, "acquire.lua"), Do: faultproxy.Delay(delay)})
	inner, err := l.Lock(outer.Context(), rlock.Lease(lease))
	require.NoError(t, err)
	late.Remove()
	first := inner.ExpiresAt()
	_, err = c.Lock(t.Name()+"-late").Lock(t.Context(), rlock.Lease(time.Until(first)/2))
	require.NoError(t, err)
	<-blocked
	<-time.After(time.Until(first) + delay/4) // the first member has run out, the others haven't
	require.NoError(t, outer.Unlock(t.Context()))
	require.Empty(t, leftKeys(t, rdb, t.Name()))
	require.ErrorIs(t, inner.Unlock(t.Context()), holdfast.ErrLost)
}
