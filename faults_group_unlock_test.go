package holdfast_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/rlock"
)

// behind is a member that is asked when over is closed, by the answer of another.
type behind struct {
	rlock.Locker
	over <-chan struct{}
}

func (b *behind) Unlock(ctx context.Context) error {
	<-b.over
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("cut short: %w", err)
	}
	return b.Locker.Unlock(ctx)
}

// An Unlock by the multi lock, beside a re-entry of its owner that has one member and
// waits for the answer of the other, gives back the hold that there was, and leaves
// the re-entry alone.
func TestMultiUnlockBesideAnAcquisition(t *testing.T) {
	rdb := server.Client(t)
	p, c := connectVia(t, server, nil, holdfast.WithLease(never))
	names := []string{t.Name() + "-0", t.Name() + "-1"}
	lock := func() *rlock.MultiLock { return c.MultiLock(c.FairLock(names[1]), c.FairLock(names[0])) }
	ctx := func() context.Context { return holdfast.WithOwnerID(t.Context(), t.Name()) }
	outer, err := lock().Lock(ctx())
	require.NoError(t, err)

	arrives := make(chan struct{})
	held := p.Add(faultproxy.Rule{
		Match: func(cmd []string) bool { return anyScript(cmd) && slices.Contains(cmd, names[1]) },
		Times: 1, Do: faultproxy.HoldReply(arrives),
	})
	enters := async(func() (*holdfast.Hold, error) { return lock().TryLock(ctx()) })
	<-held.Done()
	leaves := async(func() (*holdfast.Hold, error) { return nil, lock().Unlock(ctx()) })
	<-outer.Context().Done()
	close(arrives)
	require.NoError(t, await(t, leaves, prompt, "the other's answer is there").err)
	in := await(t, enters, prompt, "its answer is there")
	require.NoError(t, in.err)
	require.NoError(t, in.hold.Context().Err())
	for _, name := range names {
		n, err := c.FairLock(name).HoldCount(ctx())
		require.NoError(t, err)
		require.Equal(t, 1, n, name)
	}
	require.ErrorIs(t, outer.Unlock(t.Context()), holdfast.ErrNotHeld)
	require.NoError(t, in.hold.Unlock(t.Context()))
	require.ErrorIs(t, lock().Unlock(ctx()), holdfast.ErrNotHeld)
	requireNoKeys(t, rdb, t.Name())
}

// gated is a member whose own Unlock waits.
type gated struct {
	rlock.Locker
	gate <-chan struct{}
}

func (g gated) Unlock(ctx context.Context) error {
	<-g.gate
	return g.Locker.Unlock(ctx)
}

// Of two who give back one hold, by the lock and by the hold, one does; the other has
// no half of it, nor of the hold around it.
func TestMultiUnlockBesideAnother(t *testing.T) {
	c := connect(t, holdfast.WithLease(never))
	gate := make(chan struct{})
	l := c.MultiLock(c.FairLock(t.Name()+"-0"), gated{c.FairLock(t.Name() + "-1"), gate})
	ctx := holdfast.WithOwner(t.Context())
	outer, err := l.Lock(ctx)
	require.NoError(t, err)
	inner, err := l.Lock(ctx)
	require.NoError(t, err)
	byLock := async(func() (*holdfast.Hold, error) { return nil, l.Unlock(ctx) })
	<-inner.Context().Done()
	require.ErrorIs(t, inner.Unlock(t.Context()), holdfast.ErrNotHeld)
	close(gate)
	require.NoError(t, await(t, byLock, prompt, "nothing to wait for").err)
	require.NoError(t, outer.Context().Err())
	require.NoError(t, outer.Unlock(t.Context()))
	require.Empty(t, leftKeys(t, server.Client(t), t.Name()))

	// Many times, whoever is the first.
	for range 100 {
		outer, err := l.Lock(ctx)
		require.NoError(t, err)
		inner, err := l.Lock(ctx)
		require.NoError(t, err)
		byLock := async(func() (*holdfast.Hold, error) { return nil, l.Unlock(ctx) })
		err = inner.Unlock(t.Context())
		require.NoError(t, await(t, byLock, prompt, "nothing to wait for").err)
		if err != nil {
			require.ErrorIs(t, err, holdfast.ErrNotHeld)
			require.NoError(t, outer.Unlock(t.Context()))
		} else {
			require.ErrorIs(t, outer.Unlock(t.Context()), holdfast.ErrNotHeld)
		}
		require.Empty(t, leftKeys(t, server.Client(t), t.Name()))
	}
}

// Holds of one quorum lock that have other members: an Unlock by the lock leaves the
// outer one its majority.
func TestQuorumUnlockOfOtherMembers(t *testing.T) {
	t.Parallel() // servers of its own, and mostly waiting
	f := newThree(t, holdfast.WithLease(time.Minute))
	f.servers[2].Pause()
	outer, err := f.quorum.Lock(t.Context())
	require.NoError(t, err)
	f.servers[2].Resume()
	f.servers[0].Pause()
	inner, err := f.quorum.Lock(outer.Context())
	require.NoError(t, err)
	f.servers[0].Resume()
	// Nothing is under way there any more once it answers to this.
	again, err := f.locks[0].Lock(outer.Context())
	require.NoError(t, err)
	require.NoError(t, again.Unlock(t.Context()))

	require.NoError(t, f.quorum.Unlock(inner.Context()))
	require.ErrorIs(t, context.Cause(inner.Context()), holdfast.ErrReleased)
	require.NoError(t, outer.Context().Err())
	require.NoError(t, outer.Unlock(t.Context()))
	require.ErrorIs(t, f.quorum.Unlock(outer.Context()), holdfast.ErrNotHeld)
	for _, srv := range f.servers {
		requireNoKeys(t, srv.Client(t), "quorum")
	}
}

// ofThree runs a test of a multi lock of three members, taken in either way.
func ofThree(t *testing.T, test func(t *testing.T, ls []rlock.Locker, l *rlock.MultiLock)) {
	for way, wrap := range multiWays {
		t.Run(way, func(t *testing.T) {
			c := connect(t, holdfast.WithLease(never))
			ls := members(t, c, wrap, 3)
			test(t, ls, c.MultiLock(ls...))
		})
	}
}

// What is left of the newest hold is given back, with what is missing told, and not
// that of the hold around it.
func TestMultiUnlockOfWhatIsLeft(t *testing.T) {
	ofThree(t, func(t *testing.T, ls []rlock.Locker, l *rlock.MultiLock) {
		outer, err := l.Lock(t.Context())
		require.NoError(t, err)
		_, err = l.Lock(outer.Context())
		require.NoError(t, err)
		require.NoError(t, ls[1].Unlock(outer.Context()))
		require.ErrorIs(t, l.Unlock(outer.Context()), holdfast.ErrNotHeld)
		require.NoError(t, outer.Context().Err())
		require.NoError(t, l.Unlock(outer.Context()))
		require.Empty(t, leftKeys(t, server.Client(t), t.Name()))
	})
}

// A multi lock one of whose members was lost, given back once more, was lost, although
// the others were given back: errors.As agrees with errors.Is.
func TestMultiUnlockAfterALoss(t *testing.T) {
	ofThree(t, func(t *testing.T, ls []rlock.Locker, l *rlock.MultiLock) {
		h, err := l.Lock(holdfast.WithOwner(t.Context()))
		require.NoError(t, err)
		require.NoError(t, server.Client(t).Del(t.Context(), ls[1].Name()).Err())
		requireLost(t, h.Unlock(t.Context()))
		requireLost(t, l.Unlock(h.Context()))
		require.Empty(t, leftKeys(t, server.Client(t), t.Name()))
	})
}

func requireLost(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, holdfast.ErrLost)
	var e *holdfast.NotHeldError
	require.ErrorAs(t, err, &e)
	require.Equal(t, holdfast.Lost, e.Reason)
}

// A multi lock inside another, and one that was resumed, are given back whole, too;
// members that were taken one at a time each by its own Unlock, which the end of
// another doesn't cut short.
func TestMultiUnlockOfOthers(t *testing.T) {
	rdb := server.Client(t)
	c := connect(t, holdfast.WithLease(never))
	ctx := holdfast.WithOwner(t.Context())
	t.Run("nested", func(t *testing.T) {
		ls := members(t, c, multiWays["one call"], 4)
		l := c.MultiLock(ls[0], c.MultiLock(ls[1:]...))
		h, err := l.Lock(ctx)
		require.NoError(t, err)
		one, err := ls[2].Lock(ctx)
		require.NoError(t, err)
		require.NoError(t, l.Unlock(ctx))
		require.NoError(t, one.Context().Err())
		require.ErrorIs(t, h.Unlock(t.Context()), holdfast.ErrNotHeld)
		require.NoError(t, one.Unlock(t.Context()))
		require.Empty(t, leftKeys(t, rdb, t.Name()))
	})
	t.Run("resumed", func(t *testing.T) {
		ls := members(t, c, multiWays["one call"], 4)
		l := c.MultiLock(ls...)
		h, err := l.Lock(ctx)
		require.NoError(t, err)
		handle, err := h.Detach()
		require.NoError(t, err)
		_, err = c.Resume(ctx, handle)
		require.NoError(t, err)
		one, err := ls[2].Lock(ctx)
		require.NoError(t, err)
		require.NoError(t, c.MultiLock(ls...).Unlock(ctx))
		require.NoError(t, one.Context().Err())
		require.NoError(t, one.Unlock(t.Context()))
		require.Empty(t, leftKeys(t, rdb, t.Name()))
	})
	t.Run("each on its own", func(t *testing.T) {
		ls := members(t, c, multiWays["one call"], 4)
		last := &behind{Locker: ls[3]}
		h, err := ls[0].Lock(t.Context())
		require.NoError(t, err)
		_, err = last.Lock(h.Context())
		require.NoError(t, err)
		last.over = h.Context().Done()
		require.NoError(t, c.MultiLock(ls[0], last).Unlock(h.Context()))
		require.Empty(t, leftKeys(t, rdb, t.Name()))
	})
	t.Run("each on its own, of a quorum", func(t *testing.T) {
		f := newThree(t, holdfast.WithLease(time.Minute))
		f.servers[0].Kill() // so that both others are needed
		last := &behind{Locker: f.locks[2]}
		h, err := f.locks[1].Lock(ctx)
		require.NoError(t, err)
		_, err = last.Lock(ctx)
		require.NoError(t, err)
		last.over = h.Context().Done()
		require.NoError(t, rlock.Quorum(f.locks[0], f.locks[1], last).Unlock(h.Context()))
		requireNoKeys(t, f.servers[2].Client(t), "quorum")
	})
}
