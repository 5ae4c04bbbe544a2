package rlock

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestExponentialBackoff(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		backoff ExponentialBackoff
		attempt int
		whole   time.Duration
	}{
		{ExponentialBackoff{}, 1, ms},
		{ExponentialBackoff{}, 2, 2 * ms},
		{ExponentialBackoff{}, 8, 128 * ms},
		{ExponentialBackoff{}, 9, 128 * ms},
		{ExponentialBackoff{}, math.MaxInt, 128 * ms},
		{ExponentialBackoff{}, 0, ms},
		{ExponentialBackoff{}, math.MinInt, ms},
		{ExponentialBackoff{Initial: time.Second}, 5, time.Second},
		{ExponentialBackoff{Initial: time.Second, Max: 100 * ms}, 1, 100 * ms},
		{ExponentialBackoff{Initial: 10 * ms, Max: time.Hour, Multiplier: 1.5}, 3, 22500 * time.Microsecond},
		{ExponentialBackoff{Initial: 10 * ms, Max: time.Hour, Multiplier: 1}, 1000, 10 * ms},
		{ExponentialBackoff{Initial: math.MaxInt64, Max: math.MaxInt64, Multiplier: math.Inf(1)}, 7, math.MaxInt64},
	} {
		least, most := time.Duration(math.MaxInt64), time.Duration(0)
		for range 300 {
			d := c.backoff.Delay(c.attempt)
			least, most = min(least, d), max(most, d)
		}
		require.GreaterOrEqual(t, least, c.whole/2, "%+v", c)
		require.LessOrEqual(t, most, c.whole, "%+v", c)
		require.Greater(t, most-least, c.whole/4, "no jitter: %+v", c)
	}
	require.Equal(t, 7*ms, ConstantBackoff(7*ms).Delay(99))
}
