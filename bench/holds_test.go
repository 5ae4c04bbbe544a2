package bench

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// Bar: 5000 renewed holds, lease 6 s, for 30 s: at most 30 commands a second,
// the same in the last 10 s as in the first, also after 100,000 pairs before;
// goroutines independent of the number of holds, none lost, at most 2 KiB of
// heap a hold.
func BenchmarkHolds5000(b *testing.B) {
	const holds = 5000
	for b.Loop() {
		s := newSide(b, redistest.Start(b).Options(), holdfast.WithLease(6*time.Second))
		ctx := context.Background()
		for i := range 100_000 {
			pair(ctx, b, s.Lock(fmt.Sprint("before-", i%100)))
		}
		goroutines, heap := runtime.NumGoroutine(), liveHeap()
		hs := make([]*holdfast.Hold, holds)
		for i := range hs {
			h, err := s.Lock(fmt.Sprint("holds-", i)).Lock(ctx)
			require.NoError(b, err)
			hs[i] = h
		}
		b.ReportMetric(float64(liveHeap()-heap)/holds, "B/hold")

		var perTenSeconds []int64
		var most atomic.Int64
		tick := time.NewTicker(100 * time.Millisecond)
		for range 3 {
			s.commands.Reset()
			for range 100 {
				<-tick.C
				most.Store(max(most.Load(), int64(runtime.NumGoroutine())))
			}
			perTenSeconds = append(perTenSeconds, s.commands.Total())
		}
		tick.Stop()
		lost := 0
		for _, h := range hs {
			if h.Context().Err() != nil {
				lost++
			}
			require.NoError(b, h.Unlock(ctx))
		}
		b.ReportMetric(float64(perTenSeconds[0])/10, "commands/s_first")
		b.ReportMetric(float64(perTenSeconds[2])/10, "commands/s_last")
		b.ReportMetric(float64(most.Load()-int64(goroutines)), "goroutines_more")
		b.ReportMetric(float64(lost), "lost")
	}
	b.ReportMetric(0, "ns/op")
}
