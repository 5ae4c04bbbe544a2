package main

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/integration/internal/topology"
)

// Which keys may be left, by their exact form and by whose they are.
func TestKeysLeft(t *testing.T) {
	top, err := topology.Start(t.Context(), topology.Single, topology.Options{Dir: t.TempDir()})
	require.NoError(t, err)
	defer func() { require.NoError(t, top.Close()) }()
	rdb := top.Nodes()[0].Admin()
	x := excuse{killed: []int{3}, lost: func(name string) bool { return name == "chaos:fair-1-1" }}
	const day = 24 * time.Hour
	text := func(key string, ttl time.Duration) func() error {
		return func() error { return rdb.Set(t.Context(), key, "1", ttl).Err() }
	}
	list := func(key string, ttl time.Duration, members ...any) func() error {
		return func() error {
			if err := rdb.RPush(t.Context(), key, members...).Err(); err != nil || ttl == 0 {
				return err
			}
			return rdb.Expire(t.Context(), key, ttl).Err()
		}
	}
	sorted := func(key string, ttl time.Duration, until time.Time, members ...string) func() error {
		return func() error {
			for _, m := range members {
				if err := rdb.ZAdd(t.Context(), key, redis.Z{Score: float64(until.UnixMilli()), Member: m}).Err(); err != nil {
					return err
				}
			}
			if ttl == 0 {
				return nil
			}
			return rdb.Expire(t.Context(), key, ttl).Err()
		}
	}
	soon := time.Now().Add(time.Minute)
	for what, c := range map[string]struct {
		left bool
		put  func() error
	}{
		"a number":                        {false, text("chaos:semaphore-0-1", 0)},
		"a limiter's window":              {false, text("{chaos:limiter-0-1}:value", 0)},
		"a token":                         {false, text("redisson_lock_token:{chaos:fenced-0-1}", 0)},
		"a lock with the name of another": {true, text("chaos:lock-semaphore-0-1", 0)},
		"a lock":                          {true, text("chaos:lock-0-1", day)},
		"a token of what has none":        {true, text("redisson_lock_token:{chaos:fair-0-1}", 0)},
		"a marker":                        {false, text("{chaos:lock-0-1}:holdfast:req:x:1", time.Minute)},
		"a marker that stays":             {true, text("{chaos:lock-0-1}:holdfast:req:x:1", day)},
		"a latch was opened":              {false, text("{chaos:latch-0-1}:holdfast:opened", time.Minute)},
		"a permit":                        {true, sorted("{chaos:expirable-0-1}:timeout", 0, soon, "p")},
		"a permit that has expired":       {false, sorted("{chaos:expirable-0-1}:timeout", 0, time.Now().Add(-time.Minute), "p")},
		"a queue of one that was killed":  {false, list("redisson_lock_queue:{chaos:fair-0-1}", day, "id:3-1-1")},
		"a queue for ever":                {true, list("redisson_lock_queue:{chaos:fair-0-1}", 0, "id:3-1-1")},
		"a queue of one that lived":       {true, list("redisson_lock_queue:{chaos:fair-0-1}", day, "id:3-1-1", "id:33-1-1")},
		"a queue that came back":          {false, list("redisson_lock_queue:{chaos:fair-1-1}", day, "id:33-1-1")},
		"a reader that was killed":        {false, sorted("{chaos:rw-0-1}:holdfast:readers", day, soon, "id:3-1-1", "")},
		"a reader that lived":             {true, sorted("{chaos:rw-0-1}:holdfast:readers", day, soon, "id:4-1-1", "")},
	} {
		require.NoError(t, rdb.FlushAll(t.Context()).Err())
		require.NoError(t, c.put())
		left, err := keysLeft(t.Context(), rdb, x)
		require.NoError(t, err)
		require.Equal(t, c.left, len(left) > 0, "%s: %v", what, left)
	}
}
