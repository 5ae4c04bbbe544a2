package fence_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/holdfasttest"
)

// both runs a test on a real server and on the embedded one.
func both(t *testing.T, test func(t *testing.T, rdb *redis.Client)) {
	t.Run("redis", func(t *testing.T) { test(t, server.Client(t)) })
	t.Run("embedded", func(t *testing.T) { test(t, holdfasttest.NewServer(t).Redis()) })
}

func TestSetRefusesAnEarlierHolder(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		for key, fenceKey := range map[string]string{
			"value-" + t.Name(): "{value-" + t.Name() + "}:fence", "x{y}" + t.Name(): "x{y}" + t.Name() + ":fence",
		} {
			v, err := fence.NewValues(rdb)
			require.NoError(t, err)
			ctx := t.Context()
			require.NoError(t, v.Set(ctx, key, 5, []byte("five"), 0))
			require.NoError(t, v.Set(ctx, key, 5, []byte("five again"), time.Hour))
			requireStale(t, v.Set(ctx, key, 4, []byte("four"), 0), 4, 5)
			requireStale(t, v.Claim(ctx, key, 1), 1, 5)
			require.Equal(t, "five again", rdb.Get(ctx, key).Val())
			require.Greater(t, rdb.PTTL(ctx, key).Val(), 50*time.Minute)
			require.NoError(t, v.Claim(ctx, key, 1<<52-2))
			require.Equal(t, "five again", rdb.Get(ctx, key).Val(), "a claim leaves the value alone")
			require.Greater(t, rdb.PTTL(ctx, key).Val(), 50*time.Minute)
			requireStale(t, v.Set(ctx, key, 6, []byte("six"), 0), 6, 1<<52-2)
			require.NoError(t, v.Set(ctx, key, 1<<52-1, nil, 500*time.Microsecond))
			require.Equal(t, time.Duration(-1), rdb.PTTL(ctx, fenceKey).Val(), "a fence stays")
			require.Equal(t, "4503599627370495", rdb.Get(ctx, fenceKey).Val())
		}
	})
}

func TestKeepFence(t *testing.T) {
	rdb := server.Client(t)
	v, err := fence.NewValues(rdb, fence.KeepFence(time.Hour), nil)
	require.NoError(t, err)
	require.NoError(t, v.Claim(t.Context(), t.Name(), 7))
	require.Greater(t, rdb.PTTL(t.Context(), "{"+t.Name()+"}:fence").Val(), 50*time.Minute)
	for _, d := range []time.Duration{-1, 1, 999 * time.Millisecond} {
		_, err = fence.NewValues(rdb, fence.KeepFence(d))
		require.ErrorIs(t, err, holdfast.ErrInvalid)
	}
}

// What isn't a value or a fence is refused, and left alone.
func TestValuesBadInput(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		v, err := fence.NewValues(rdb)
		require.NoError(t, err)
		ctx := t.Context()
		for what, put := range map[string]func(key string) error{
			"list": func(key string) error { return rdb.RPush(ctx, key, "a").Err() },
			"hash": func(key string) error { return rdb.HSet(ctx, key, "a", 1).Err() },
		} {
			key := what + t.Name()
			require.NoError(t, put(key))
			require.ErrorIs(t, v.Set(ctx, key, 1, []byte("x"), 0), holdfast.ErrInvalid)
			require.Zero(t, rdb.Exists(ctx, "{"+key+"}:fence").Val())
			require.Equal(t, what, rdb.Type(ctx, key).Val())

			key = "fenced-by-" + what + t.Name()
			require.NoError(t, put("{"+key+"}:fence"))
			require.ErrorIs(t, v.Set(ctx, key, 1, []byte("x"), 0), holdfast.ErrInvalid)
			require.Zero(t, rdb.Exists(ctx, key).Val())
		}
		for _, bad := range []string{"abc", "-1", "1.5", "12345678901234567"} {
			key := "fenced-by-" + bad + t.Name()
			require.NoError(t, rdb.Set(ctx, "{"+key+"}:fence", bad, 0).Err())
			require.ErrorIs(t, v.Claim(ctx, key, 1), holdfast.ErrInvalid)
		}
		for _, key := range []string{"", "a{", "}{", "{}", "a}b"} {
			require.ErrorIs(t, v.Set(ctx, key, 1, nil, 0), holdfast.ErrInvalid, "%q", key)
		}
		for _, token := range []int64{0, -1, 1 << 52} {
			require.ErrorIs(t, v.Set(ctx, t.Name(), token, nil, 0), holdfast.ErrInvalid)
		}
		require.ErrorIs(t, v.Set(ctx, t.Name(), 1, nil, -1), holdfast.ErrInvalid)
		gone, cancel := context.WithCancel(ctx)
		cancel()
		require.ErrorIs(t, v.Claim(gone, t.Name(), 1), context.Canceled)
		require.Zero(t, rdb.Exists(ctx, t.Name()).Val())
	})
	_, err := fence.NewValues(nil)
	require.ErrorIs(t, err, holdfast.ErrInvalid)
}
