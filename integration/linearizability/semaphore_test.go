package linearizability

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/internal/history"
	"github.com/holdfast-go/holdfast/rsemaphore"
)

// enough permits that several are in at a time, and too few for all.
const enough = 4

func TestSemaphore(t *testing.T) {
	direct := connect(t)
	h := run(t, history.Semaphore, (*worker).useSemaphore)
	requireTelling(t, h, history.Acquire)
	for _, name := range h.names() {
		set, err := direct.Semaphore(name).Exists(t.Context())
		require.NoError(t, err)
		if !set {
			continue // all who tried to set it left without an answer
		}
		eventually(t, "no permit is lost", func(rdb *redis.Client) (bool, error) {
			n, err := rdb.Get(t.Context(), name).Int()
			return n == enough, err
		})
		op := begin(history.Op{Name: name, Call: history.Available})
		op.Value = enough
		h.add(op, history.Done)
	}
	h.check(t)
	h.rejectWithout(t, history.Release)
}

// useSemaphore sets permits, takes some and gives them back, perhaps in parts.
func (w *worker) useSemaphore() {
	name, ctx := w.name(), context.Background()
	s := w.client.Semaphore(name)
	if w.chance(0.2) {
		op := begin(history.Op{Name: name, Call: history.Available})
		n, err := s.Available(ctx)
		w.saw(op, n, err)
		return
	}
	op := begin(history.Op{Name: name, Call: history.Set, N: enough})
	set, err := s.TrySetPermits(ctx, enough)
	if err == nil && !set {
		w.add(op, history.Refused)
	} else {
		w.took(op, err)
	}

	n := 1 + w.Int64N(enough)
	op = begin(history.Op{Name: name, Call: history.Acquire, N: n})
	if !w.took(op, w.permits(ctx, s, n)) {
		return
	}
	w.pause()
	if n > 1 && w.chance(0.5) {
		n--
		op := begin(history.Op{Name: name, Call: history.Release, N: 1})
		w.gave(op, s.Release(ctx, 1))
	}
	op = begin(history.Op{Name: name, Call: history.Release, N: n})
	w.gave(op, s.Release(ctx, n))
}

// permits asks for n in one of the ways to ask.
func (w *worker) permits(ctx context.Context, s *rsemaphore.Semaphore, n int64) error {
	if w.chance(0.15) {
		ctx, cancel := w.impatient(ctx)
		defer cancel()
		return s.Acquire(ctx, n)
	}
	if w.chance(0.3) {
		return s.TryAcquire(ctx, n)
	}
	return s.TryAcquire(ctx, n, holdfast.Wait(w.upTo(30*time.Millisecond)))
}
