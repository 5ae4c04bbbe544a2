package linearizability

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/internal/history"
	"github.com/holdfast-go/holdfast/rlock"
)

func TestLock(t *testing.T) {
	last := connect(t)
	h := run(t, history.Lock, (*worker).useLock)
	requireTelling(t, h, history.Acquire)
	nothingHeld(t)
	h.takeAll(t, func(name string) rlock.Locker { return last.Lock(name) })
	h.check(t)
	h.rejectWithout(t, history.Release)
}

// Tokens rise with each holder, also where calls without an answer took some.
func TestFencedLock(t *testing.T) {
	last := connect(t)
	h := run(t, history.Fenced, (*worker).useFencedLock)
	requireTelling(t, h, history.Acquire)
	nothingHeld(t)
	h.takeAll(t, func(name string) rlock.Locker { return last.FencedLock(name) })
	h.check(t)
	h.rejectWithout(t, history.Release)
}

// takeAll takes each lock once more: a hold that was left would show.
func (h *record) takeAll(t *testing.T, make func(name string) rlock.Locker) {
	t.Helper()
	ctx := holdfast.WithOwnerID(t.Context(), "last")
	for _, name := range h.names() {
		op := begin(history.Op{Name: name, Call: history.Acquire, Owner: "last"})
		hold, err := make(name).TryLock(ctx)
		require.NoError(t, err)
		op.Granted = hold.Token()
		h.add(op, history.Done)
	}
}

// useLock takes a lock, perhaps more than once, and gives it back.
func (w *worker) useLock() {
	name := w.name()
	l := w.client.Lock(name)
	if w.chance(0.1) {
		op := begin(history.Op{Name: name, Call: history.IsLocked})
		is, err := l.IsLocked(context.Background())
		n := int64(0)
		if is {
			n = 1
		}
		w.saw(op, n, err)
		return
	}
	ctx := holdfast.WithOwner(context.Background())
	w.hold(ctx, l, write, 0)
}

func (w *worker) useFencedLock() {
	ctx := holdfast.WithOwner(context.Background())
	w.hold(ctx, w.client.FencedLock(w.name()), write, 0)
}

// mode is how a lock is used.
type mode struct{ take, give, count history.Call }

var (
	write = mode{history.Acquire, history.Release, history.HoldCount}
	read  = mode{history.Read, history.ReadEnd, history.ReadCount}
)

// hold takes any kind of lock for ctx's owner, perhaps more than once, and looks
// at it.
func (w *worker) hold(ctx context.Context, l rlock.Locker, m mode, depth int) {
	owner, _ := holdfast.OwnerID(ctx)
	w.holding(ctx, l, m, func() {
		w.pause()
		if depth < 2 && w.chance(0.3) {
			w.hold(ctx, l, m, depth+1)
		}
		if w.chance(0.2) {
			op := begin(history.Op{Name: l.Name(), Call: m.count, Owner: owner})
			n, err := l.HoldCount(ctx)
			w.saw(op, int64(n), err)
		}
	})
}

// holding does something with a lock held, if it gets it.
func (w *worker) holding(ctx context.Context, l rlock.Locker, m mode, do func()) {
	owner, _ := holdfast.OwnerID(ctx)
	op := begin(history.Op{Name: l.Name(), Call: m.take, Owner: owner})
	hold, err := w.take(ctx, l)
	if err == nil {
		op.Granted = hold.Token()
	}
	if !w.took(op, err) {
		return
	}
	do()
	op = begin(history.Op{Name: l.Name(), Call: m.give, Owner: owner})
	w.gave(op, hold.Unlock(context.Background()))
}

// take asks in one of the ways to ask.
func (w *worker) take(ctx context.Context, l rlock.Locker) (*rlock.Hold, error) {
	if w.chance(0.15) {
		ctx, cancel := w.impatient(ctx)
		defer cancel()
		return l.Lock(ctx)
	}
	if w.chance(0.3) {
		return l.TryLock(ctx)
	}
	return l.TryLock(ctx, holdfast.Wait(w.upTo(30*time.Millisecond)))
}
