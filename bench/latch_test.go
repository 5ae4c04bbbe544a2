package bench

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Bar: a count-down is one command, and so is a look at an open latch.
func BenchmarkLatch(b *testing.B) {
	const n = 1000
	s := newSide(b, server.Options())
	l := s.Latch("latch")
	for b.Loop() {
		ctx := b.Context()
		set, err := l.TrySetCount(ctx, n)
		require.NoError(b, err)
		require.True(b, set)
		s.commands.Reset()
		for range n {
			require.NoError(b, l.CountDown(ctx))
		}
		countDowns := s.commands.Total()
		s.commands.Reset()
		for range n {
			require.NoError(b, l.Await(ctx))
		}
		b.ReportMetric(float64(countDowns)/n, "commands/countdown")
		b.ReportMetric(float64(s.commands.Total())/n, "commands/await_open")
		if countDowns > n+1 || s.commands.Total() > n+1 { // one more loads the script
			b.Errorf("%d count-downs and looks sent %d and %d commands", n, countDowns, s.commands.Total())
		}
	}
}
