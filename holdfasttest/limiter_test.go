package holdfasttest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/rlimiter"
)

func TestRateLimiter(t *testing.T) {
	s := NewServer(t)
	a, b := s.Client().RateLimiter("api"), s.Client(holdfast.WithPollFallback(time.Hour)).RateLimiter("api")
	ctx := t.Context()
	set, err := a.TrySetRate(ctx, rlimiter.Overall, 5, time.Hour)
	require.NoError(t, err)
	require.True(t, set)
	require.NoError(t, a.Acquire(ctx, 2))
	require.NoError(t, b.Acquire(ctx, 3))
	require.ErrorIs(t, b.TryAcquire(ctx, 1), holdfast.ErrNotAcquired)
	require.NoError(t, a.Release(ctx, 4))
	n, err := b.Available(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 4, n)
	require.NoError(t, b.UpdateRate(ctx, rlimiter.Overall, 1, time.Hour))
	require.ErrorIs(t, a.TryAcquire(ctx, 1, rlimiter.Wait(time.Minute)), holdfast.ErrNotAcquired)

	const interval = 100 * time.Millisecond
	require.NoError(t, a.SetRate(ctx, rlimiter.PerClient, 1, interval, rlimiter.KeepAlive(time.Hour)))
	from := time.Now()
	for range 3 {
		require.NoError(t, a.Acquire(ctx, 1))
	}
	require.GreaterOrEqual(t, time.Since(from), 2*interval)
	require.NoError(t, b.TryAcquire(ctx, 1))
	c, err := b.Config(ctx)
	require.NoError(t, err)
	require.Equal(t, rlimiter.Config{Kind: rlimiter.PerClient, Rate: 1, Interval: interval, KeepAlive: time.Hour}, c)
	there, err := a.Expire(ctx, time.Minute)
	require.NoError(t, err)
	require.True(t, there)
	was, err := a.Delete(ctx)
	require.NoError(t, err)
	require.True(t, was)
}
