package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/rlock"
)

// Goroutines of one owner that give their holds back at once don't read each
// other's work as a loss.
func TestUnlocksOfOneOwnerAtOnce(t *testing.T) {
	c := connect(t)
	l := c.Lock(t.Name())
	for range 50 {
		ctx := holdfast.WithOwner(t.Context())
		var holds []*holdfast.Hold
		for range 8 {
			h, err := l.Lock(ctx)
			require.NoError(t, err)
			holds = append(holds, h)
		}
		var wg sync.WaitGroup
		for i, h := range holds {
			wg.Go(func() {
				unlock := h.Unlock
				if i%2 == 0 {
					unlock = l.Unlock // whichever is the latest then
				}
				if err := unlock(ctx); err != nil && !(i%2 == 1 && errors.Is(err, holdfast.ErrNotHeld) && !errors.Is(err, holdfast.ErrLost)) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		// A hold that was given back twice leaves another one: give that back.
		for l.Unlock(ctx) == nil {
		}
		locked, err := l.IsLocked(ctx)
		require.NoError(t, err)
		require.False(t, locked)
	}
}

// Two Unlock(ctx) of one owner free two holds.
func TestUnlockByOwnerTwiceAtOnce(t *testing.T) {
	l := connect(t).Lock(t.Name())
	for range 200 {
		ctx := holdfast.WithOwner(t.Context())
		for range 2 {
			_, err := l.Lock(ctx)
			require.NoError(t, err)
		}
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if err := l.Unlock(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		locked, err := l.IsLocked(ctx)
		require.NoError(t, err)
		require.False(t, locked, "a hold was left behind")
	}
}

func TestNonReentrantAgainstSiblings(t *testing.T) {
	c := connect(t)
	l := c.Lock(t.Name(), rlock.NonReentrant())
	for range 50 {
		ctx := holdfast.WithOwner(t.Context())
		var wg sync.WaitGroup
		holds := make(chan *holdfast.Hold, 4)
		for range 4 {
			wg.Go(func() {
				h, err := l.TryLock(ctx, holdfast.Wait(time.Minute))
				switch {
				case err == nil:
					holds <- h
				case !errors.Is(err, holdfast.ErrReentry):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.Len(t, holds, 1)
		require.NoError(t, (<-holds).Unlock(ctx))
	}
}

// A sibling that stands in the local line behind somebody else walks in as soon
// as its owner has the lock: it must not wait for those whom its owner keeps out.
func TestSiblingStepsOutOfTheLine(t *testing.T) {
	c := connect(t)
	l := c.Lock(t.Name())
	first, err := l.Lock(t.Context())
	require.NoError(t, err)
	owner := holdfast.WithOwner(t.Context())
	type grant struct {
		who  string
		hold *holdfast.Hold
	}
	got := make(chan grant, 3)
	wait := func(who string, ctx context.Context) {
		go func() {
			h, err := l.Lock(ctx)
			if err != nil {
				t.Error(err)
			}
			got <- grant{who, h}
		}()
	}
	wait("sibling 1", owner)
	wait("stranger", holdfast.WithOwner(t.Context()))
	wait("sibling 2", owner)
	require.NoError(t, first.Unlock(t.Context()))

	byWho := map[string]*holdfast.Hold{}
	for range 2 {
		select {
		case g := <-got:
			byWho[g.who] = g.hold
			if g.who == "stranger" { // was first in line: the siblings' turn is next
				require.NoError(t, g.hold.Unlock(t.Context()))
				g = <-got
				byWho[g.who] = g.hold
			}
		case <-time.After(prompt):
			t.Fatalf("a sibling is locked out; in so far: %v", byWho)
		}
	}
	require.Contains(t, byWho, "sibling 1")
	require.Contains(t, byWho, "sibling 2")
	require.NoError(t, byWho["sibling 1"].Unlock(t.Context()))
	require.NoError(t, byWho["sibling 2"].Unlock(t.Context()))
	if _, done := byWho["stranger"]; !done {
		require.NoError(t, (<-got).hold.Unlock(t.Context()))
	}
}

// ForceUnlock while the owner re-enters: whatever the order, every hold is
// either told or really there.
func TestForceUnlockBesideReentry(t *testing.T) {
	c, other := connect(t), connect(t)
	for i := range 30 {
		l := c.Lock(fmt.Sprint(t.Name(), i))
		outer, err := l.Lock(t.Context())
		require.NoError(t, err)
		var inner *holdfast.Hold
		var wg sync.WaitGroup
		wg.Go(func() {
			h, err := l.Lock(outer.Context())
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			inner = h
		})
		wg.Go(func() {
			if _, err := l.ForceUnlock(t.Context()); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		if inner == nil || inner.Context().Err() != nil {
			continue
		}
		// It says that it is alive: then nobody else can get in.
		_, err = other.Lock(l.Name()).TryLock(t.Context())
		if inner.Context().Err() == nil {
			require.ErrorIs(t, err, holdfast.ErrNotAcquired)
		}
		require.NoError(t, inner.Unlock(t.Context()))
	}
}

// An owner whose id was chosen is known by that id, not by its context.
func TestLossIsRememberedByID(t *testing.T) {
	l := connect(t).Lock(t.Name())
	h, err := l.Lock(holdfast.WithOwnerID(t.Context(), "7"), holdfast.Lease(20*time.Millisecond))
	require.NoError(t, err)
	<-h.Context().Done()
	err = l.Unlock(holdfast.WithOwnerID(t.Context(), "7"))
	require.ErrorIs(t, err, holdfast.ErrNotHeld)
	require.ErrorIs(t, err, holdfast.ErrLost)
}

// A name may have any bytes, and a handle carries them.
func TestHandleOfAnyName(t *testing.T) {
	a, b := connect(t), connect(t)
	h, err := a.Lock(t.Name() + "\xff\x00é").Lock(t.Context())
	require.NoError(t, err)
	handle, err := h.Detach()
	require.NoError(t, err)
	taken, err := b.Resume(t.Context(), handle)
	require.NoError(t, err)
	require.Equal(t, h.Name(), taken.Name())
	require.NoError(t, taken.Unlock(t.Context()))
}

// Two holds, one inside the other, that are dropped together can be collected
// together: then neither is renewed any more.
func TestNestedHoldsDroppedTogether(t *testing.T) {
	c := connect(t, holdfast.WithLease(2*time.Second))
	l := c.Lock(t.Name())
	func() {
		outer, err := l.Lock(context.Background())
		require.NoError(t, err)
		_, err = l.Lock(outer.Context())
		require.NoError(t, err)
	}()
	eventually(t, "the holds are renewed although nobody can give them back", func() bool {
		runtime.GC()
		return !exists(t, server.Client(t), l.Name())
	})
}
