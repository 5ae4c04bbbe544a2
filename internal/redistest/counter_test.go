package redistest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestCounterCountsWhatTheClientSends(t *testing.T) {
	srv := Start(t)
	ctx := testContext(t)
	var c CommandCounter
	rdb := srv.Client(t, func(o *redis.Options) { o.DB = 1 })
	rdb.AddHook(&c)

	script := redis.NewScript(`redis.call('INCR', KEYS[1]); return redis.call('INCR', KEYS[1])`)
	require.NoError(t, script.Run(ctx, rdb, []string{"n"}).Err()) // EVALSHA, then EVAL
	require.NoError(t, rdb.Do(ctx, "GET", "n").Err())
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Incr(ctx, "n")
		p.Incr(ctx, "n")
		p.Get(ctx, "n")
		return nil
	})
	require.NoError(t, err)

	require.EqualValues(t, 1, c.Count("evalsha"))
	require.EqualValues(t, 2, c.Count("evalsha", "eval"))
	require.EqualValues(t, 2, c.Count("incr"), "calls inside the script must not count")
	require.EqualValues(t, 2, c.Count("get"))
	require.EqualValues(t, 6, c.Total())
	require.Zero(t, c.Count())
	require.NotZero(t, c.Count("hello"), "set-up is counted")
	require.NotZero(t, c.Count("select"))
	snapshot := c.Snapshot()
	require.EqualValues(t, 2, snapshot["get"])
	snapshot["get"] = 100
	require.EqualValues(t, 2, c.Count("get"))

	c.Reset()
	require.Zero(t, c.Total())
	require.Empty(t, c.Snapshot())

	_, err = rdb.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Get(ctx, "n").Err() })
	require.NoError(t, err)
	require.EqualValues(t, 3, c.Total())
	require.EqualValues(t, 3, c.Count("multi", "get", "exec"))
}

func TestCounterCountsEachAutoPipelinedCommandOnce(t *testing.T) {
	srv := Start(t)
	ctx := testContext(t)
	var c CommandCounter
	rdb := srv.Client(t)
	rdb.AddHook(&c)
	pipe, err := rdb.AutoPipeline()
	require.NoError(t, err)
	defer pipe.Close()

	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { pipe.Incr(ctx, "n") })
	}
	wg.Wait()
	require.Equal(t, "50", srv.Client(t).Get(ctx, "n").Val())
	require.EqualValues(t, 50, c.Count("incr"))
}

func TestCounterIsSafeForUseFromMany(t *testing.T) {
	srv := Start(t)
	ctx := testContext(t)
	var c CommandCounter
	var wg sync.WaitGroup
	for range 4 {
		rdb := srv.Client(t)
		rdb.AddHook(&c)
		wg.Go(func() {
			for range 100 {
				rdb.Incr(ctx, "n")
				c.Total()
				c.Snapshot()
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 400, c.Total())
}

func TestEventually(t *testing.T) {
	n := 0
	Eventually(t, time.Minute, func() bool { n++; return n == 3 }, "never")
	require.Equal(t, 3, n)
	Eventually(t, 0, func() bool { return true }, "a condition that holds needs no time")

	tb := &fakeTB{TB: t}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.True(t, tb.run(func() {
		Eventually(tb, 20*time.Millisecond, func() bool { return false }, "saw %d", 7)
	}))
	require.Error(t, ctx.Err(), "gave up early")
	require.Equal(t, []string{"not within 20ms: saw 7"}, tb.lines)
}
