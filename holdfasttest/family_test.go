package holdfasttest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/rlock"
)

func TestMultiLock(t *testing.T) {
	a, b := New(t), New(t)
	l := a.MultiLock(a.Lock("x"), a.Lock("y"), a.FairLock("z"), b.Lock("x"))
	h, err := l.Lock(t.Context())
	require.NoError(t, err)
	for _, member := range []rlock.Locker{a.Lock("x"), a.Lock("y"), a.FairLock("z"), b.Lock("x")} {
		_, err := member.TryLock(t.Context())
		require.ErrorIs(t, err, holdfast.ErrNotAcquired, member.Name())
	}
	inner, err := l.Lock(h.Context())
	require.NoError(t, err)
	require.NoError(t, inner.Unlock(t.Context()))
	require.NoError(t, h.Unlock(t.Context()))
	require.NoError(t, a.Lock("y").Do(t.Context(), func(ctx context.Context) error { return ctx.Err() }))
}

func TestQuorum(t *testing.T) {
	clients := []*holdfast.Client{New(t), New(t), New(t)}
	var members []rlock.Locker
	for _, c := range clients {
		members = append(members, c.Lock("q"))
	}
	h, err := rlock.Quorum(members...).TryLock(t.Context())
	require.NoError(t, err)
	_, err = rlock.Quorum(members...).TryLock(t.Context())
	require.ErrorIs(t, err, holdfast.ErrNotAcquired)
	require.NoError(t, h.Unlock(t.Context()))
}

func TestInspectAndLocks(t *testing.T) {
	c := New(t)
	h, err := c.Lock("x").Lock(t.Context())
	require.NoError(t, err)
	_, err = c.Semaphore("s").TrySetPermits(t.Context(), 2)
	require.NoError(t, err)
	i, err := c.Inspect(t.Context(), "x")
	require.NoError(t, err)
	require.Equal(t, holdfast.KindLock, i.Kind)
	require.Equal(t, h.Owner(), i.Holders[0].Owner)
	var names []string
	for i, err := range c.Locks(t.Context(), "*") {
		require.NoError(t, err)
		names = append(names, i.Name)
	}
	require.ElementsMatch(t, []string{"x", "s"}, names)
}
