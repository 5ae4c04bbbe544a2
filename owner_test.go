package holdfast_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
)

// WithOwner always makes somebody new, also of a context that has an owner.
func TestWithOwnerIsAlwaysFresh(t *testing.T) {
	_, ok := holdfast.OwnerID(t.Context())
	require.False(t, ok)
	seen := map[string]bool{}
	ctx := t.Context()
	for range 1000 {
		ctx = holdfast.WithOwner(ctx)
		id, ok := holdfast.OwnerID(ctx)
		require.True(t, ok)
		require.NotEmpty(t, id)
		require.False(t, seen[id], "%q twice", id)
		seen[id] = true
	}
}

// An owner travels with derived contexts, into Redis as <client>:<owner>.
func TestOwnerInRedis(t *testing.T) {
	c, rdb := connect(t), server.Client(t)
	ctx := holdfast.WithOwnerID(t.Context(), "7")
	derived, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	id, ok := holdfast.OwnerID(derived)
	require.True(t, ok)
	require.Equal(t, "7", id)

	h, err := c.Lock(t.Name()).Lock(derived)
	require.NoError(t, err)
	require.Equal(t, c.ID()+":7", h.Owner())
	require.Equal(t, map[string]string{h.Owner(): "1"}, rdb.HGetAll(t.Context(), t.Name()).Val())
	inner, ok := holdfast.OwnerID(h.Context())
	require.True(t, ok)
	require.Equal(t, "7", inner)

	// Two contexts with one chosen id are one owner.
	again := holdfast.WithOwnerID(t.Context(), "7")
	_, err = c.Lock(t.Name()).TryLock(again)
	require.NoError(t, err)
	require.NoError(t, c.Lock(t.Name()).Unlock(again))
	require.NoError(t, c.Lock(t.Name()).Unlock(again))
	require.False(t, exists(t, rdb, t.Name()))
}

// Whoever locks without an owner gets one, in Hold.Context alone.
func TestOwnerIsMinted(t *testing.T) {
	c := connect(t)
	l := c.Lock(t.Name())
	h, err := l.Lock(t.Context())
	require.NoError(t, err)
	id, ok := holdfast.OwnerID(h.Context())
	require.True(t, ok)
	require.Equal(t, c.ID()+":"+id, h.Owner())
	err = l.Unlock(t.Context())
	require.ErrorIs(t, err, holdfast.ErrNoOwner)
	require.ErrorContains(t, err, "Hold.Context()", "the text says how to mend it")
	require.ErrorContains(t, err, "WithOwner")
	require.NoError(t, l.Unlock(h.Context()))
}

// The owner of a hold stays the one that took it, whatever comes after.
func TestHoldBelongsToWhoTookIt(t *testing.T) {
	c := connect(t)
	l := c.Lock(t.Name())
	h, err := l.Lock(holdfast.WithOwnerID(t.Context(), "a"))
	require.NoError(t, err)
	other := holdfast.WithOwnerID(h.Context(), "b")
	_, err = l.TryLock(other)
	require.ErrorIs(t, err, holdfast.ErrNotAcquired)
	require.ErrorIs(t, l.Unlock(other), holdfast.ErrNotHeld)
	require.NoError(t, h.Unlock(other), "a Hold needs no owner to be given back")
}

// Ids that can't be told apart from other things in Redis are refused.
func TestOwnerIDIsChecked(t *testing.T) {
	c, rdb := connect(t), server.Client(t)
	l := c.Lock(t.Name())
	for _, id := range []string{"", "x:write", ":write", strings.Repeat("x", 1025)} {
		ctx := holdfast.WithOwnerID(t.Context(), id)
		_, err := l.Lock(ctx)
		require.ErrorIs(t, err, holdfast.ErrInvalid, "%.20q", id)
		_, err = l.TryLock(ctx)
		require.ErrorIs(t, err, holdfast.ErrInvalid)
		require.ErrorIs(t, l.Unlock(ctx), holdfast.ErrInvalid)
		_, err = l.IsHeld(ctx)
		require.ErrorIs(t, err, holdfast.ErrInvalid)
		_, err = l.HoldCount(ctx)
		require.ErrorIs(t, err, holdfast.ErrInvalid)
	}
	require.False(t, exists(t, rdb, t.Name()))
	for _, id := range []string{"1", "x:writer", "write", "a:b", " ", "\x00\xff", "\n", strings.Repeat("x", 1024)} {
		h, err := l.TryLock(holdfast.WithOwnerID(t.Context(), id))
		require.NoError(t, err, "%.20q", id)
		require.NoError(t, h.Unlock(t.Context()))
	}
}

// An id that was learned from one context may be used in another, as when it
// travels with a message: that is the same owner.
func TestMintedIDUsedElsewhere(t *testing.T) {
	c := connect(t)
	l := c.Lock(t.Name())
	first := holdfast.WithOwner(t.Context())
	id, _ := holdfast.OwnerID(first)
	_, err := l.TryLock(first)
	require.NoError(t, err)
	second := holdfast.WithOwnerID(context.Background(), id)
	_, err = l.TryLock(second)
	require.NoError(t, err)
	n, err := l.HoldCount(first)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.NoError(t, l.Unlock(second))
	require.NoError(t, l.Unlock(second))
	require.ErrorIs(t, l.Unlock(first), holdfast.ErrNotHeld)
}
