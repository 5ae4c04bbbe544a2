package linearizability

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/internal/history"
)

func TestLatch(t *testing.T) {
	connect(t)
	h := run(t, history.Latch, (*worker).useLatch)
	requireTelling(t, h, history.Await)
	h.check(t)
	h.rejectWithout(t, history.CountDown)
	h.rejectWithout(t, history.Set)
}

// useLatch sets it, counts down, waits, or looks.
func (w *worker) useLatch() {
	name, ctx := w.name(), context.Background()
	l := w.client.Latch(name)
	switch {
	case w.chance(0.25):
		op := begin(history.Op{Name: name, Call: history.Set, N: 2})
		set, err := l.TrySetCount(ctx, op.N)
		if err == nil && !set {
			w.add(op, history.Refused)
			return
		}
		w.took(op, err)
	case w.chance(0.5):
		op := begin(history.Op{Name: name, Call: history.CountDown})
		w.gave(op, l.CountDown(ctx))
	case w.chance(0.3):
		op := begin(history.Op{Name: name, Call: history.Available})
		n, err := l.Count(ctx)
		w.saw(op, n, err)
	default:
		op := begin(history.Op{Name: name, Call: history.Await})
		ctx, cancel := w.impatient(ctx)
		defer cancel()
		if w.chance(0.3) {
			w.took(op, l.Await(ctx))
			return
		}
		w.took(op, l.TryAwait(context.Background(), holdfast.Wait(w.upTo(30*time.Millisecond))))
	}
}
