package linearizability

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/rlock"
)

func TestLock(t *testing.T) {
	last := connect(t)
	h := run(t, (*worker).useLock)
	requireTelling(t, h, lock)
	nothingHeld(t)
	h.takeAll(t, func(name string) rlock.Locker { return last.Lock(name) })
	h.check(t, lockModel)
	h.rejectWithout(t, lockModel, unlock)
}

// takeAll takes each lock once more: a hold that was left would show.
func (h *history) takeAll(t *testing.T, make func(name string) rlock.Locker) {
	t.Helper()
	ctx := holdfast.WithOwnerID(t.Context(), "last")
	for _, name := range h.names() {
		from := h.now()
		_, err := make(name).TryLock(ctx)
		require.NoError(t, err)
		h.add(from, input{name: name, verb: lock, owner: "last"}, output{})
	}
}

// useLock takes a lock, perhaps more than once, and gives it back.
func (w *worker) useLock() {
	name := w.name()
	l := w.client.Lock(name)
	if w.chance(0.1) {
		from := w.now()
		is, err := l.IsLocked(context.Background())
		n := int64(0)
		if is {
			n = 1
		}
		w.saw(from, input{name: name, verb: isLocked}, n, err)
		return
	}
	ctx := holdfast.WithOwner(context.Background())
	w.hold(ctx, l, lock, unlock, holdCount, 0)
}

// hold takes any kind of lock for ctx's owner, perhaps more than once, and looks
// at it.
func (w *worker) hold(ctx context.Context, l rlock.Locker, take, give, count verb, depth int) {
	owner, _ := holdfast.OwnerID(ctx)
	w.holding(ctx, l, take, give, func() {
		w.pause()
		if depth < 2 && w.chance(0.3) {
			w.hold(ctx, l, take, give, count, depth+1)
		}
		if w.chance(0.2) {
			from := w.now()
			n, err := l.HoldCount(ctx)
			w.saw(from, input{name: l.Name(), verb: count, owner: owner}, int64(n), err)
		}
	})
}

// holding does something with a lock held, if it gets it.
func (w *worker) holding(ctx context.Context, l rlock.Locker, take, give verb, do func()) {
	owner, _ := holdfast.OwnerID(ctx)
	in := input{name: l.Name(), verb: take, owner: owner}
	if take == readLock {
		in.n = 1
	}
	from := w.now()
	hold, err := w.take(ctx, l)
	if !w.took(from, in, err) {
		return
	}
	do()
	from = w.now()
	in.verb = give
	w.gave(from, in, hold.Unlock(context.Background()))
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
