package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/rlock"
)

// Bar: five names of one slot are taken and given back with 2 commands.
func BenchmarkMultiLock(b *testing.B) {
	const names, rounds, pairs = 5, 10, 200
	s := newSide(b, server.Options())
	ctx := context.Background()
	var locks []rlock.Locker
	for i := range names {
		locks = append(locks, s.Lock(fmt.Sprintf("{multi}:%d", i)))
	}
	multi := s.MultiLock(locks...)
	together := func() {
		for range pairs {
			pair(ctx, b, multi)
		}
	}
	apart := func() {
		for range pairs {
			var holds []*holdfast.Hold
			for _, l := range locks {
				h, err := l.Lock(ctx)
				require.NoError(b, err)
				holds = append(holds, h)
			}
			for _, h := range holds {
				require.NoError(b, h.Unlock(ctx))
			}
		}
	}
	together() // loads the scripts
	apart()
	for b.Loop() {
		var one, five []float64
		var commands [2]int64
		for range rounds {
			for i, f := range []func(){together, apart} {
				s.commands.Reset()
				start := time.Now()
				f()
				took := float64(time.Since(start)) / pairs / 1e3
				commands[i] = s.commands.Total() / pairs
				if i == 0 {
					one = append(one, took)
				} else {
					five = append(five, took)
				}
			}
		}
		require.EqualValues(b, 2, commands[0], "commands")
		b.ReportMetric(float64(commands[0]), "commands/multi")
		b.ReportMetric(float64(commands[1]), "commands/one_by_one")
		b.ReportMetric(median(one), "µs/multi")
		b.ReportMetric(median(five), "µs/one_by_one")
	}
	b.ReportMetric(0, "ns/op")
}
