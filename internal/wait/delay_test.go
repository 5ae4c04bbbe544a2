package wait

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Who has a delay listens to nothing, and asks after each pause, or when the
// holder's lease runs out before; even if the pauses are longer than the poll.
func TestDelayStandsInForTheChannel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		n := 0
		b := newBench(func(context.Context, string, time.Time) (Outcome, error) {
			n++
			switch n {
			case 4: // the lease is nearly over
				return Outcome{TTL: 30 * ms}, nil
			case 5:
				return Outcome{TTL: -1}, nil
			}
			return Outcome{TTL: time.Hour, Granted: n == 7}, nil
		})
		spec := b.forever("a")
		var refusals []int
		spec.Delay = func(n int) time.Duration {
			refusals = append(refusals, n)
			if n == 3 {
				return -time.Hour // a millisecond
			}
			return time.Duration(n) * 2 * poll
		}
		c := b.start(t.Context(), spec)
		time.Sleep(100 * poll)
		synctest.Wait()
		require.True(t, c.done())
		require.NoError(t, c.err)
		require.Equal(t, []int{1, 2, 3, 4, 5, 6}, refusals)
		at := 6*poll + ms + 30*ms + settle
		require.Equal(t, []time.Duration{0, 2 * poll, 6 * poll, 6*poll + ms, at, at + 10*poll, at + 22*poll}, times(b.asked()))
		_, made := b.subscriptions()
		require.Zero(t, made)
		b.idle(t)
	})
}

// In a line the first alone asks; a release by this client wakes it at once.
func TestDelayEndsWithAReleaseNearby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := heldLock()
		b := newBench(l.answer)
		spec := b.forever("a")
		spec.Delay = func(int) time.Duration { return 24 * time.Hour }
		l.ttl = 240 * time.Hour
		first := b.start(t.Context(), spec)
		synctest.Wait()
		time.Sleep(time.Second)
		l.free()
		b.Released(spec.Line, false)
		synctest.Wait()
		require.True(t, first.done())
		require.NoError(t, first.err)
		require.Equal(t, time.Second, first.at)
		b.idle(t)
	})
}
