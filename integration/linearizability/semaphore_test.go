package linearizability

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/rsemaphore"
)

// enough permits that several are in at a time, and too few for all.
const enough = 4

func TestSemaphore(t *testing.T) {
	direct := connect(t)
	for i := range (length/perNames + 1) * names {
		set, err := direct.Semaphore(nameOf(t, i)).TrySetPermits(t.Context(), enough)
		require.NoError(t, err)
		require.True(t, set)
	}

	h := run(t, (*worker).useSemaphore)
	requireTelling(t, h, acquire)
	for _, name := range h.names() {
		from := h.now()
		eventually(t, "no permit is lost", func(rdb *redis.Client) (bool, error) {
			n, err := rdb.Get(t.Context(), name).Int()
			return n == enough, err
		})
		h.add(from, input{name: name, verb: available}, output{n: enough})
	}
	h.check(t, semaphoreModel(enough))
	h.rejectWithout(t, semaphoreModel(enough), release)
}

// useSemaphore takes permits and gives them back, perhaps in parts.
func (w *worker) useSemaphore() {
	name, ctx := w.name(), context.Background()
	s := w.client.Semaphore(name)
	if w.chance(0.2) {
		from := w.now()
		n, err := s.Available(ctx)
		w.saw(from, input{name: name, verb: available}, n, err)
		return
	}
	in := input{name: name, verb: acquire, n: 1 + w.Int64N(enough)}
	from := w.now()
	if !w.took(from, in, w.permits(ctx, s, in.n)) {
		return
	}
	w.pause()
	in.verb = release
	if in.n > 1 && w.chance(0.5) {
		in.n--
		part := in
		part.n = 1
		from := w.now()
		w.gave(from, part, s.Release(ctx, part.n))
	}
	from = w.now()
	w.gave(from, in, s.Release(ctx, in.n))
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
