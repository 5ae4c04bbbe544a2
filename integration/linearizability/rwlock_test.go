package linearizability

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/internal/history"
	"github.com/holdfast-go/holdfast/rlock"
)

func TestRWLock(t *testing.T) {
	last := connect(t)
	h := run(t, history.RW, (*worker).useRWLock)
	requireTelling(t, h, history.Acquire)
	requireTelling(t, h, history.Read)
	nothingHeld(t)
	h.takeAll(t, func(name string) rlock.Locker { return last.RWLock(name).Write() })
	h.check(t)
	h.rejectWithout(t, history.Release)
	h.rejectWithout(t, history.ReadEnd)
}

// useRWLock reads, writes, reads while it writes and stays to read, or tries to
// write while it reads, which is refused.
func (w *worker) useRWLock() {
	l := w.client.RWLock(w.name())
	ctx := holdfast.WithOwner(context.Background())
	switch {
	case w.chance(0.4):
		w.hold(ctx, l.Read(), read, 0)
	case w.chance(0.5):
		w.hold(ctx, l.Write(), write, 0)
	case w.chance(0.5):
		w.downgrade(ctx, l.Read(), l.Write())
	default:
		w.holding(ctx, l.Read(), read, func() {
			w.hold(ctx, l.Write(), write, 2)
		})
	}
}

// downgrade goes from writing to reading, without letting a writer in between.
func (w *worker) downgrade(ctx context.Context, reads, writes rlock.Locker) {
	owner, _ := holdfast.OwnerID(ctx)
	var kept *rlock.Hold
	w.holding(ctx, writes, write, func() {
		op := begin(history.Op{Name: reads.Name(), Call: history.Read, Owner: owner})
		hold, err := reads.TryLock(ctx)
		if w.took(op, err) {
			kept = hold
		}
	})
	if kept == nil {
		return
	}
	w.pause()
	op := begin(history.Op{Name: reads.Name(), Call: history.ReadEnd, Owner: owner})
	w.gave(op, kept.Unlock(context.Background()))
}
