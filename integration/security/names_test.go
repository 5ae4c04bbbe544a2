package security

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rlimiter"
	"github.com/holdfast-go/holdfast/rlock"
)

// odd are names that would be more than names to somebody who splices.
var odd = []string{
	"plain", "with space", `"quoted"`, `it's`, "back`tick", "line\nbreak", "crlf\r\n*1\r\n$8\r\nFLUSHALL\r\n", "nul\x00nul", "\x00", "\xff\xfe\xfd",
	"{tag}", "a{tag}b", "{", "}", "{}", "a}b{c", "]] redis.call('FLUSHALL') --[[", "' .. redis.call('FLUSHALL') .. '", "KEYS[1]", "%s%d%n", "*", "?", "[a-z]",
	"\\", "\\n", "$(id)", "; SHUTDOWN", "redisson_lock__channel:{x}", "{x}:holdfast:req:y", ":", "::", "a:b:write", "ünïcödé", "\u202e", strings.Repeat("n", 1<<10),
	strings.Repeat("n", 32<<10), strings.Repeat("n", 64<<10), "", "EVAL \"return 1\" 0", "mode", "0", "-1", "9223372036854775808", "nan",
}

// FuzzNames works with all primitives under a name on a real server. Nothing but
// the keys that are made of the name changes, whatever is in it; what isn't taken
// for a name is refused before anything is sent.
func FuzzNames(f *testing.F) {
	for _, name := range odd {
		f.Add(name)
	}
	srv := redistest.Start(f)
	rdb := srv.Client(f)
	c, err := holdfast.Open(srv.URL(), holdfast.WithLease(never))
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, c.Close()) })
	f.Fuzz(func(t *testing.T, name string) {
		ctx := within(t, 6*prompt)
		require.NoError(t, rdb.FlushDB(ctx).Err())
		require.NoError(t, rdb.Set(ctx, "bystander", "untouched", 0).Err())
		for _, work := range works {
			err := work(ctx, c, name)
			if err != nil {
				require.ErrorIs(t, err, holdfast.ErrInvalid)
			}
			for _, key := range allKeys(t, ctx, rdb) {
				require.NotErrorIs(t, err, holdfast.ErrInvalid, "refused, but it left %q", key)
				require.True(t, madeOf(key, name), "%q is not made of %q", key, name)
			}
			// One kind at a time: a name is one thing.
			require.Equal(t, "untouched", rdb.Get(ctx, "bystander").Val())
			require.NoError(t, rdb.FlushDB(ctx).Err())
			require.NoError(t, rdb.Set(ctx, "bystander", "untouched", 0).Err())
		}
	})
}

// madeOf reports whether a key is one of those that WIRE layouts make of a name.
func madeOf(key, name string) bool {
	wrapped := "{" + name + "}"
	if strings.Contains(name, "{") {
		wrapped = name
	}
	if key == name || strings.HasPrefix(key, wrapped+":") {
		return true
	}
	return slices.Contains([]string{
		"redisson_lock_token:" + wrapped, "redisson_lock_queue:" + wrapped, "redisson_lock_timeout:" + wrapped,
	}, key)
}

func allKeys(t *testing.T, ctx context.Context, rdb *redis.Client) (keys []string) {
	all := rdb.Scan(ctx, 0, "*", 1000).Iterator()
	for all.Next(ctx) {
		if all.Val() != "bystander" {
			keys = append(keys, all.Val())
		}
	}
	require.NoError(t, all.Err())
	return keys
}

// works leave something under a name, each of another kind.
var works = []func(ctx context.Context, c *holdfast.Client, name string) error{
	func(ctx context.Context, c *holdfast.Client, name string) error { return hold(ctx, c.Lock(name)) },
	func(ctx context.Context, c *holdfast.Client, name string) error { return hold(ctx, c.FairLock(name)) },
	func(ctx context.Context, c *holdfast.Client, name string) error { return hold(ctx, c.FencedLock(name)) },
	func(ctx context.Context, c *holdfast.Client, name string) error {
		return hold(ctx, c.SpinLock(name, nil))
	},
	func(ctx context.Context, c *holdfast.Client, name string) error {
		return hold(ctx, c.MultiLock(c.Lock(name)))
	},
	func(ctx context.Context, c *holdfast.Client, name string) error {
		return hold(ctx, c.RWLock(name).Read())
	},
	func(ctx context.Context, c *holdfast.Client, name string) error {
		return hold(ctx, c.RWLock(name).Write())
	},
	func(ctx context.Context, c *holdfast.Client, name string) error {
		s := c.Semaphore(name)
		_, err := s.TrySetPermits(ctx, 3)
		return errors.Join(err, s.Acquire(ctx, 1))
	},
	func(ctx context.Context, c *holdfast.Client, name string) error {
		e := c.ExpirableSemaphore(name)
		_, err := e.TrySetPermits(ctx, 3)
		p, err2 := e.Acquire(ctx)
		if err = errors.Join(err, err2); err == nil {
			err = errors.Join(e.Extend(ctx, p.ID(), time.Hour), p.Release(ctx))
		}
		return err
	},
	func(ctx context.Context, c *holdfast.Client, name string) error {
		l := c.Latch(name)
		_, err := l.TrySetCount(ctx, 2)
		return errors.Join(err, l.CountDown(ctx))
	},
	func(ctx context.Context, c *holdfast.Client, name string) error {
		l := c.RateLimiter(name)
		_, err := l.TrySetRate(ctx, rlimiter.PerClient, 5, time.Hour)
		return errors.Join(err, l.Acquire(ctx, 1))
	},
	func(ctx context.Context, c *holdfast.Client, name string) error {
		info, err := c.Inspect(ctx, name)
		if err == nil && info.Name != name {
			err = errors.New("another name was inspected")
		}
		return err
	},
}

// hold takes a lock, refuses somebody else, and leaves it held.
func hold(ctx context.Context, l rlock.Locker) error {
	h, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	inner, err := l.Lock(h.Context())
	if err != nil {
		return err
	}
	return errors.Join(inner.Extend(ctx, 2*never), inner.Unlock(ctx))
}

// An owner's id is data, too.
func TestOwnersAreData(t *testing.T) {
	c := open(t, server.URL(), holdfast.WithLease(never))
	rdb := server.Client(t)
	for _, id := range odd {
		ctx := holdfast.WithOwnerID(within(t, prompt), id)
		h, err := c.Lock("owned").Lock(ctx)
		if err != nil {
			require.ErrorIs(t, err, holdfast.ErrInvalid)
			continue
		}
		fields, err := rdb.HKeys(ctx, "owned").Result()
		require.NoError(t, err)
		require.Equal(t, []string{c.ID() + ":" + id}, fields)
		require.NoError(t, h.Unlock(ctx))
	}
	n, err := rdb.Exists(t.Context(), "owned").Result()
	require.NoError(t, err)
	require.Zero(t, n)
}
