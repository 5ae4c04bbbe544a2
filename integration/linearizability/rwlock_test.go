package linearizability

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/rlock"
)

func TestRWLock(t *testing.T) {
	last := connect(t)
	h := run(t, (*worker).useRWLock)
	requireTelling(t, h, lock)
	requireTelling(t, h, readLock)
	nothingHeld(t)
	h.takeAll(t, func(name string) rlock.Locker { return last.RWLock(name).Write() })
	h.check(t, rwModel)
	h.rejectWithout(t, rwModel, unlock)
	h.rejectWithout(t, rwModel, readUnlock)
}

// useRWLock reads, writes, reads while it writes and stays to read, or tries to
// write while it reads, which is refused.
func (w *worker) useRWLock() {
	l := w.client.RWLock(w.name())
	ctx := holdfast.WithOwner(context.Background())
	switch {
	case w.chance(0.4):
		w.hold(ctx, l.Read(), readLock, readUnlock, readCount, 0)
	case w.chance(0.5):
		w.hold(ctx, l.Write(), lock, unlock, holdCount, 0)
	case w.chance(0.5):
		w.downgrade(ctx, l.Read(), l.Write())
	default:
		w.holding(ctx, l.Read(), readLock, readUnlock, func() {
			w.hold(ctx, l.Write(), lock, unlock, holdCount, 2)
		})
	}
}

// downgrade goes from writing to reading, without letting a writer in between.
func (w *worker) downgrade(ctx context.Context, read, write rlock.Locker) {
	owner, _ := holdfast.OwnerID(ctx)
	var reads *rlock.Hold
	w.holding(ctx, write, lock, unlock, func() {
		in := input{name: read.Name(), verb: readLock, owner: owner, n: 1}
		from := w.now()
		hold, err := read.TryLock(ctx)
		if w.took(from, in, err) {
			reads = hold
		}
	})
	if reads == nil {
		return
	}
	w.pause()
	from := w.now()
	w.gave(from, input{name: read.Name(), verb: readUnlock, owner: owner, n: 1}, reads.Unlock(context.Background()))
}
