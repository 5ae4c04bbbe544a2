package holdfast_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// witness writes down what an observer is told.
type witness struct {
	mu     sync.Mutex
	events []holdfast.Event
}

func (d *witness) note(e holdfast.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, e)
}

func (d *witness) all() []holdfast.Event {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.events)
}

// kinds are the types of what was told, without renewals.
func (d *witness) kinds() string {
	var words []string
	for _, e := range d.all() {
		if word := strings.TrimPrefix(fmt.Sprintf("%T", e), "event."); word != "Renewed" {
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

// of answers the events of one type.
func of[E holdfast.Event](d *witness) (found []E) {
	for _, e := range d.all() {
		if e, ok := e.(E); ok {
			found = append(found, e)
		}
	}
	return found
}

func TestObserverIsToldOfHolds(t *testing.T) {
	var d witness
	c := connect(t, holdfast.WithObserver(d.note))
	l, other := c.Lock(t.Name()), connect(t).Lock(t.Name())
	ctx := holdfast.WithOwner(t.Context())

	h, err := l.Lock(ctx)
	require.NoError(t, err)
	about := holdfast.Subject{Name: t.Name(), Kind: "lock", Owner: h.Owner()}
	inner, err := l.Lock(ctx)
	require.NoError(t, err)
	require.NoError(t, inner.Unlock(ctx))
	require.NoError(t, l.Unlock(ctx))
	require.ErrorIs(t, l.Unlock(ctx), holdfast.ErrNotHeld)
	require.Equal(t, "Acquired Acquired Released Released", d.kinds())
	for _, e := range d.all() {
		require.Equal(t, about, e.About())
	}
	for _, e := range of[holdfast.Released](&d) {
		require.NoError(t, e.Err)
		require.Positive(t, e.Held)
	}

	// Refused, with the wait; bad arguments ask nobody.
	theirs, err := other.Lock(t.Context())
	require.NoError(t, err)
	const wait = 300 * time.Millisecond
	_, err = l.TryLock(ctx, holdfast.Wait(wait))
	require.ErrorIs(t, err, holdfast.ErrNotAcquired)
	_, err = l.TryLock(ctx, holdfast.Lease(0))
	require.ErrorIs(t, err, holdfast.ErrInvalid)
	refused := of[holdfast.Refused](&d)
	require.Len(t, refused, 1)
	require.ErrorIs(t, refused[0].Err, holdfast.ErrNotAcquired)
	require.GreaterOrEqual(t, refused[0].Waited, wait)
	require.Equal(t, about, refused[0].About())
	require.NoError(t, theirs.Unlock(t.Context()))

	// Detached and resumed: given back here, acquired there.
	h, err = l.Lock(ctx)
	require.NoError(t, err)
	handle, err := h.Detach()
	require.NoError(t, err)
	h, err = c.Resume(t.Context(), handle)
	require.NoError(t, err)
	_, err = c.Resume(t.Context(), handle)
	require.ErrorIs(t, err, holdfast.ErrNotHeld)
	require.NoError(t, h.Unlock(t.Context()))
	require.Equal(t, "Acquired Acquired Released Released Refused Acquired Released Acquired Refused Released", d.kinds())
}

func TestObserverIsToldOfLosses(t *testing.T) {
	rdb := server.Client(t)
	for what, lose := range map[string]func(l holdfast.Locker, h *holdfast.Hold){
		"at a renewal": func(_ holdfast.Locker, h *holdfast.Hold) {
			require.NoError(t, rdb.Del(t.Context(), h.Name()).Err())
		},
		"at the unlock": func(_ holdfast.Locker, h *holdfast.Hold) {
			require.NoError(t, rdb.Del(t.Context(), h.Name()).Err())
			_ = h.Unlock(t.Context()) // or the renewal comes first
		},
		"by force": func(l holdfast.Locker, _ *holdfast.Hold) {
			_, err := l.ForceUnlock(t.Context())
			require.NoError(t, err)
		},
	} {
		t.Run(what, func(t *testing.T) {
			var d witness
			c := connect(t, holdfast.WithObserver(d.note), holdfast.WithLease(watched))
			l := c.Lock(t.Name())
			h, err := l.Lock(t.Context())
			require.NoError(t, err)
			lose(l, h)
			eventually(t, "the loss is told", func() bool { return len(of[holdfast.HoldLost](&d)) > 0 })
			require.Equal(t, "Acquired HoldLost", d.kinds())
			e := of[holdfast.HoldLost](&d)[0]
			require.ErrorIs(t, e.Cause, holdfast.ErrLost)
			require.Positive(t, e.Held)
			require.Equal(t, holdfast.Subject{Name: t.Name(), Kind: "lock", Owner: h.Owner()}, e.About())
		})
	}
}

func TestObserverIsToldOfRenewals(t *testing.T) {
	t.Parallel() // it waits for renewals
	const lease = 3 * time.Second
	var d witness
	p, c := connectVia(t, server, func(o *redis.Options) {
		o.DialerRetries, o.MaxRetries = 1, -1 // go-redis would try until the lease has ended
	}, holdfast.WithObserver(d.note), holdfast.WithLease(lease))
	h, err := c.Lock(t.Name()).Lock(t.Context())
	require.NoError(t, err)
	eventually(t, "a renewal is told", func() bool { return len(of[holdfast.Renewed](&d)) > 0 })
	e := of[holdfast.Renewed](&d)[0]
	require.Equal(t, holdfast.Subject{Name: t.Name(), Kind: "lock", Owner: h.Owner()}, e.About())

	p.Refuse(true)
	p.Cut()
	eventually(t, "a failure is told", func() bool { return len(of[holdfast.RenewalFailed](&d)) > 0 })
	f := of[holdfast.RenewalFailed](&d)[0]
	require.ErrorIs(t, f.Err, holdfast.ErrUnavailable)
	require.Equal(t, e.About(), f.About())
	redistest.Eventually(t, lease+prompt, func() bool { return len(of[holdfast.HoldLost](&d)) > 0 }, "the loss is told")
	require.False(t, time.Now().Before(f.Until), "it was lost before it said")
	runtime.KeepAlive(h) // or nobody renews it
	p.Refuse(false)
}

// Every hold that was acquired has one end, whatever happens to it: who counts
// can tell how many there are.
func TestObserverSeesOneEndPerHold(t *testing.T) {
	var d witness
	p, c := connectVia(t, server, readTimeout(200*time.Millisecond), holdfast.WithObserver(d.note), holdfast.WithCommandTimeout(time.Second))
	// One is given back without an answer, one is left to Close, one is normal.
	cut, err := c.Lock(t.Name() + "-cut").Lock(t.Context())
	require.NoError(t, err)
	_, err = c.Lock(t.Name() + "-left").Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, c.Lock(t.Name()+"-usual").Do(t.Context(), func(context.Context) error { return nil }))
	p.Refuse(true)
	p.Cut()
	require.ErrorIs(t, cut.Unlock(t.Context()), holdfast.ErrUncertain)
	require.NoError(t, c.Close())

	ends := make(map[string][]string)
	for _, e := range d.all() {
		switch e := e.(type) {
		case holdfast.Acquired:
			ends[e.Name] = append(ends[e.Name], "acquired")
		case holdfast.Released:
			ends[e.Name] = append(ends[e.Name], fmt.Sprint("released ", e.Err == nil))
		case holdfast.HoldLost:
			require.ErrorIs(t, e.Cause, holdfast.ErrClosed)
			ends[e.Name] = append(ends[e.Name], "closed")
		}
	}
	require.Equal(t, map[string][]string{
		t.Name() + "-cut":   {"acquired", "released false"},
		t.Name() + "-left":  {"acquired", "closed"},
		t.Name() + "-usual": {"acquired", "released true"},
	}, ends)
}

// An observer that panics, on whichever goroutine, spoils nothing: calls get
// their answers, renewal and losses go on.
func TestObserverThatPanics(t *testing.T) {
	t.Parallel() // it waits for renewals
	var d witness
	var log diary
	c := connect(t, holdfast.WithLease(3*time.Second), holdfast.WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
		holdfast.WithObserver(func(e holdfast.Event) {
			d.note(e)
			panic("no metrics today")
		}))
	h, err := c.Lock(t.Name()).Lock(t.Context())
	require.NoError(t, err)
	first := h.ExpiresAt()
	eventually(t, "it is renewed twice", func() bool { return len(of[holdfast.Renewed](&d)) > 1 })
	require.True(t, h.ExpiresAt().After(first))
	require.NoError(t, server.Client(t).Del(t.Context(), t.Name()).Err())
	locktest.RequireLost(t, h)
	require.Contains(t, log.String(), "no metrics today")
	require.NoError(t, c.Lock(t.Name()).Do(t.Context(), func(context.Context) error { return nil }))
}

func TestObserverMustBeThere(t *testing.T) {
	_, err := holdfast.New(server.Client(t), holdfast.WithObserver(nil))
	require.ErrorIs(t, err, holdfast.ErrInvalid)
}

// Permits, and locks that are taken together, are told of as single locks are.
func TestObserverIsToldOfPermitsAndMultiLocks(t *testing.T) {
	t.Parallel() // it waits for renewals
	var d witness
	c := connect(t, holdfast.WithObserver(d.note), holdfast.WithLease(3*time.Second))
	h, err := c.MultiLock(c.Lock(t.Name()+"-1"), c.Lock(t.Name()+"-2")).Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, h.Unlock(t.Context()))
	require.Equal(t, "Acquired Acquired Released Released", d.kinds())

	theirs, err := connect(t).Lock(t.Name() + "-2").Lock(t.Context())
	require.NoError(t, err)
	_, err = c.MultiLock(c.Lock(t.Name()+"-1"), c.Lock(t.Name()+"-2")).TryLock(t.Context())
	require.ErrorIs(t, err, holdfast.ErrNotAcquired)
	refused := of[holdfast.Refused](&d)
	require.Len(t, refused, 1, "one member refused")
	require.Equal(t, t.Name()+"-2", refused[0].Name)
	require.NoError(t, theirs.Unlock(t.Context()))

	s := c.ExpirableSemaphore(t.Name() + "-permits")
	_, err = s.TrySetPermits(t.Context(), 1)
	require.NoError(t, err)
	p, err := s.Acquire(t.Context())
	require.NoError(t, err)
	_, err = s.TryAcquire(t.Context())
	require.ErrorIs(t, err, holdfast.ErrNotAcquired)
	eventually(t, "a renewal is told", func() bool {
		renewed := of[holdfast.Renewed](&d)
		return len(renewed) > 0 && renewed[len(renewed)-1].Kind == "permit"
	})
	require.NoError(t, p.Release(t.Context()))
	require.Equal(t, "Acquired Acquired Released Released Refused Acquired Refused Released", d.kinds())
	last := of[holdfast.Released](&d)[2]
	require.Equal(t, holdfast.Subject{Name: s.Name(), Kind: "permit", Owner: p.ID()}, last.About())
}
