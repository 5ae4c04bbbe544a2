package bench

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
)

// Bar: a read lock and its unlock are 2 commands, and so are a write lock and its
// unlock.
func BenchmarkRWUncontended(b *testing.B) {
	const pairs = 500
	s := newSide(b, server.Options())
	rw := s.RWLock("rw-uncontended")
	for b.Loop() {
		for what, l := range map[string]holdfast.Locker{"read": rw.Read(), "write": rw.Write()} {
			pair(b.Context(), b, l) // loads the scripts
			s.commands.Reset()
			start := time.Now()
			for range pairs {
				pair(b.Context(), b, l)
			}
			require.EqualValues(b, 2*pairs, s.commands.Total(), what)
			b.ReportMetric(float64(s.commands.Total())/pairs, "commands/"+what)
			b.ReportMetric(float64(time.Since(start).Microseconds())/pairs, "µs/"+what)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// Bar: 100 readers that come and go, each for 50 ms, so that somebody always reads:
// a writer gets in within 2 s.
func BenchmarkRWStarvation(b *testing.B) {
	const readers, hold, writes = 100, 50 * time.Millisecond, 20
	for b.Loop() {
		sides := []*side{newSide(b, server.Options()), newSide(b, server.Options())}
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for i := range readers {
			l := sides[i%2].RWLock("rw-starvation").Read()
			wg.Go(func() {
				for ctx.Err() == nil {
					h, err := l.Lock(ctx)
					if err != nil {
						if !errors.Is(err, context.Canceled) {
							b.Error(err)
						}
						return
					}
					time.Sleep(hold)
					if err := h.Unlock(context.Background()); err != nil {
						b.Error(err)
					}
				}
			})
		}
		w := sides[0].RWLock("rw-starvation").Write()
		var waits []time.Duration
		for range writes {
			start := time.Now()
			h, err := w.Lock(ctx)
			require.NoError(b, err)
			waits = append(waits, time.Since(start))
			require.NoError(b, h.Unlock(ctx))
		}
		cancel()
		wg.Wait()
		longest := waits[0]
		for _, d := range waits {
			longest = max(longest, d)
		}
		require.Less(b, longest, 2*time.Second)
		b.ReportMetric(float64(median(waits).Milliseconds()), "ms_median")
		b.ReportMetric(float64(longest.Milliseconds()), "ms_longest")
	}
	b.ReportMetric(0, "ns/op")
}
