package rlimiter

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/script"
)

// bench runs scripts on a real server, copy by copy.
type bench struct {
	*Limiter
	t   *testing.T
	rdb *redis.Client
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, rdb: server.Client(t)}
	b.Limiter = NewLimiter(&hold.Services{
		ClientID: "client-1",
		Runner:   script.NewRunner(b.rdb, nil, nil),
		MapName:  func(n string) string { return n },
	}, fmt.Sprint("scripts:", t.Name(), time.Now().UnixNano()))
	return b
}

func (b *bench) run(c script.Call) int64 {
	b.t.Helper()
	r := b.o.Runner.Do(b.t.Context(), time.Now(), time.Now(), c)
	require.NoError(b.t, r.Err)
	return r.Int()
}

func (b *bench) key(i int) string { return b.window[i].(string) }

// total is how many permits the grants in a sorted set stand for.
func (b *bench) total(i int) (n int64) {
	b.t.Helper()
	for _, m := range b.rdb.ZRange(context.Background(), b.key(i), 0, -1).Val() {
		n += permitsOf(m)
	}
	return n
}

// state is all that a copy might change: the rate, its time to live in tens of
// seconds, and the windows: value, number of grants, permits granted.
func (b *bench) state() string {
	b.t.Helper()
	ctx := context.Background()
	conf := b.rdb.HMGet(ctx, b.o.RedisKey(), "rate", "type").Val()
	ttl := b.rdb.PTTL(ctx, b.o.RedisKey()).Val()
	var s strings.Builder
	s.WriteString(fmt.Sprint(conf, ttl.Round(10*time.Second)))
	for i := 0; i < 4; i += 2 {
		s.WriteString(fmt.Sprintf(" [%s %d %d]", b.rdb.Get(ctx, b.key(i)).Val(), b.rdb.ZCard(ctx, b.key(i+1)).Val(), b.total(i+1)))
	}
	return s.String()
}

type step struct {
	name  string
	call  func(script.Keys) script.Call
	reply int64 // -1: a refusal with a time
	state string
}

func (b *bench) life() []step {
	rate := func(how string, k Kind, n int64, keep time.Duration) func(script.Keys) script.Call {
		return func(ks script.Keys) script.Call {
			return b.setRate(ks, how, Config{Kind: k, Rate: n, Interval: time.Hour, KeepAlive: keep})
		}
	}
	take := func(n int64) func(script.Keys) script.Call {
		return func(k script.Keys) script.Call { return b.take(k, n) }
	}
	back := func(n int64) func(script.Keys) script.Call {
		return func(k script.Keys) script.Call { return b.giveBack(k, n) }
	}
	return []step{
		{"take without a rate", take(1), unset, "[<nil> <nil>] 0s [ 0 0] [ 0 0]"},
		{"give back without a rate", back(1), unset, "[<nil> <nil>] 0s [ 0 0] [ 0 0]"},
		{"update without a rate", rate("update", Overall, 9, 0), 0, "[<nil> <nil>] 0s [ 0 0] [ 0 0]"},
		{"try to set", rate("try", Overall, 5, 0), 1, "[5 0] 0s [ 0 0] [ 0 0]"},
		{"try to set again", rate("try", PerClient, 7, 0), 0, "[5 0] 0s [ 0 0] [ 0 0]"},
		{"take 2", take(2), granted, "[5 0] 0s [3 1 2] [ 0 0]"},
		{"take 4, too many", take(4), -1, "[5 0] 0s [3 1 2] [ 0 0]"},
		{"take 6, never", take(6), beyond, "[5 0] 0s [3 1 2] [ 0 0]"},
		{"take 3", take(3), granted, "[5 0] 0s [0 2 5] [ 0 0]"},
		{"take 1, too many", take(1), -1, "[5 0] 0s [0 2 5] [ 0 0]"},
		{"give 1 back, a part of a grant", back(1), 1, "[5 0] 0s [1 2 4] [ 0 0]"},
		{"give 3 back, a grant and a part", back(3), 1, "[5 0] 0s [4 1 1] [ 0 0]"},
		{"give back more than there is", back(9), 1, "[5 0] 0s [5 0 0] [ 0 0]"},
		{"take all", take(5), granted, "[5 0] 0s [0 1 5] [ 0 0]"},
		{"raise", rate("update", Overall, 8, time.Minute), 1, "[8 0] 1m0s [3 1 5] [ 0 0]"},
		{"lower", rate("update", Overall, 4, 2*time.Minute), 1, "[4 0] 2m0s [-1 1 5] [ 0 0]"},
		{"take 1 after lowering", take(1), -1, "[4 0] 2m0s [-1 1 5] [ 0 0]"},
		{"per client", rate("set", PerClient, 3, 0), 1, "[3 1] 0s [-1 1 5] [ 0 0]"},
		{"take 1 per client", take(1), granted, "[3 1] 0s [-1 1 5] [2 1 1]"},
		{"expire", func(k script.Keys) script.Call { return b.expire(k, time.Minute) }, 1, "[3 1] 1m0s [-1 1 5] [2 1 1]"},
		{"clear", rate("set", PerClient, 2, 0), 1, "[2 1] 1m0s [-1 1 5] [ 0 0]"},
		{"delete", b.remove, 1, "[<nil> <nil>] 0s [ 0 0] [ 0 0]"},
		{"delete nothing", b.remove, 0, "[<nil> <nil>] 0s [ 0 0] [ 0 0]"},
		{"set anew", rate("try", Overall, 2, 0), 1, "[2 0] 0s [ 0 0] [ 0 0]"},
		{"take 1", take(1), granted, "[2 0] 0s [1 1 1] [ 0 0]"},
	}
}

// Whether the first copy of a request ran before the one that was answered, runs
// after every later step, or never: the window is the same.
func TestScriptsResentAndLate(t *testing.T) {
	for _, firstRan := range []bool{false, true} {
		t.Run(fmt.Sprintf("firstCopyRan=%v", firstRan), func(t *testing.T) {
			b := newBench(t)
			var sent []script.Call
			for _, s := range b.life() {
				c := s.call(b.o.Keys())
				if firstRan {
					b.run(c)
				}
				reply := b.run(c.Resent())
				if s.reply < 0 {
					require.InDelta(t, time.Hour.Milliseconds(), reply-grantedIn, 60000, s.name)
				} else {
					require.Equal(t, s.reply, reply, s.name)
				}
				require.Equal(t, s.state, b.state(), s.name)
				sent = append(sent, c)
				for i, old := range sent {
					b.run(old)
					require.Equal(t, s.state, b.state(), "after %q a late copy of %q changed it", s.name, b.life()[i].name)
				}
			}
		})
	}
}

// A copy that comes when its grant has left the window takes nothing either.
func TestLateCopyAfterTheInterval(t *testing.T) {
	b := newBench(t)
	c := Config{Rate: 3, Interval: 50 * time.Millisecond}
	b.run(b.setRate(b.o.Keys(), "try", c))
	first := b.take(b.o.Keys(), 3)
	require.EqualValues(t, granted, b.run(first))
	redistest.Eventually(t, 10*time.Second, func() bool { return b.run(b.look()) == 3 }, "the window doesn't empty")
	require.EqualValues(t, granted, b.run(first), "the answer of its request")
	require.EqualValues(t, 3, b.run(b.look()))
}

// An acquisition that nobody waits for is undone, and its late copies take nothing,
// whether it had run before or not, and whatever rate is set meanwhile.
func TestUndoneAcquisitionStaysUndone(t *testing.T) {
	for _, ran := range []bool{false, true} {
		for _, kind := range []Kind{Overall, PerClient} {
			t.Run(fmt.Sprint("ran=", ran, "/", kind), func(t *testing.T) {
				b := newBench(t)
				c := Config{Kind: kind, Rate: 9, Interval: time.Hour}
				b.run(b.setRate(b.o.Keys(), "try", c))
				require.EqualValues(t, granted, b.run(b.take(b.o.Keys(), 1)))
				want := b.state()
				k := b.o.Keys()
				late := b.take(k, 4)
				if ran {
					require.EqualValues(t, granted, b.run(late))
				}
				undo := b.o.Keys()
				undo.Voided = k.Marker
				reply := b.run(b.untake(undo, 4))
				require.Equal(t, ran, reply == 1)
				for range 2 {
					require.Equal(t, want, b.state())
					b.run(late)
					b.run(late.Resent())
					require.Equal(t, want, b.state(), "a late copy took permits for nobody")
					b.run(b.untake(undo, 4))
				}
			})
		}
	}
}

// What a limiter leaves in Redis, call by call: the record of a running Redisson
// 4.7.0, chapter RateLimiter; the expiry by keepAlive was seen there too.
func TestWireLayout(t *testing.T) {
	b := newBench(t)
	ctx, key := t.Context(), b.o.RedisKey()
	require.Equal(t, "{"+key+"}:value", b.key(0))
	require.Equal(t, "{"+key+"}:permits", b.key(1))
	require.Equal(t, "{"+key+"}:value:client-1", b.key(2))
	require.Equal(t, "{"+key+"}:permits:client-1", b.key(3))

	b.run(b.setRate(b.o.Keys(), "try", Config{Rate: 5, Interval: 10 * time.Second}))
	require.Equal(t, map[string]string{"rate": "5", "interval": "10000", "keepAliveTime": "0", "type": "0"}, b.rdb.HGetAll(ctx, key).Val())

	before := b.rdb.Time(ctx).Val()
	require.EqualValues(t, granted, b.run(b.take(b.o.Keys(), 2)))
	after := b.rdb.Time(ctx).Val()
	require.Equal(t, "3", b.rdb.Get(ctx, b.key(0)).Val())
	grants := b.rdb.ZRangeWithScores(ctx, b.key(1), 0, -1).Val()
	require.Len(t, grants, 1)
	m := grants[0].Member.(string)
	require.Len(t, m, 1+16+4)
	require.Equal(t, byte(16), m[0])
	require.Equal(t, "\x02\x00\x00\x00", m[17:])
	require.GreaterOrEqual(t, int64(grants[0].Score), before.UnixMilli())
	require.LessOrEqual(t, int64(grants[0].Score), after.UnixMilli())
	require.Equal(t, time.Duration(-1), b.rdb.PTTL(ctx, b.key(0)).Val())
	require.Equal(t, time.Duration(-1), b.rdb.PTTL(ctx, b.key(1)).Val())

	b.run(b.setRate(b.o.Keys(), "set", Config{Kind: PerClient, Rate: 3, Interval: 10 * time.Second, KeepAlive: time.Minute}))
	require.EqualValues(t, 1, b.rdb.Exists(ctx, b.key(1)).Val(), "the window of the other kind stays")
	require.InDelta(t, time.Minute, b.rdb.PTTL(ctx, key).Val(), float64(20*time.Second))
	require.NoError(t, b.rdb.PExpire(ctx, key, time.Second).Err())
	require.EqualValues(t, granted, b.run(b.take(b.o.Keys(), 1)))
	require.Equal(t, "2", b.rdb.Get(ctx, b.key(2)).Val())
	for _, k := range []string{key, b.key(2), b.key(3)} {
		require.InDelta(t, time.Minute, b.rdb.PTTL(ctx, k).Val(), float64(20*time.Second), "used: it lives on")
	}
}

// Redisson gives permits back by raising the value alone, without limit, and may
// leave it behind the rate. Neither lets too many through, nor locks up for ever.
func TestValueThatDoesNotFitTheGrants(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	b.run(b.setRate(b.o.Keys(), "try", Config{Rate: 5, Interval: time.Hour}))
	for range 5 {
		require.EqualValues(t, granted, b.run(b.take(b.o.Keys(), 1)))
	}
	for _, value := range []string{"3", "5", "100"} {
		require.NoError(t, b.rdb.Set(ctx, b.key(0), value, 0).Err())
		require.Zero(t, b.run(b.look()), "value %s", value)
		require.Greater(t, b.run(b.take(b.o.Keys(), 1)), int64(grantedIn))
	}
	require.NoError(t, b.rdb.Del(ctx, b.key(0)).Err())
	require.Zero(t, b.run(b.look()), "a value that is gone isn't a full window")

	require.NoError(t, b.rdb.HSet(ctx, b.o.RedisKey(), "rate", 20).Err())
	require.NoError(t, b.rdb.Set(ctx, b.key(0), 0, 0).Err())
	require.EqualValues(t, granted, b.run(b.take(b.o.Keys(), 10)), "the grants don't account for so little")
}

// Grants and the waits for them beyond a hundred, where the set is read in pieces.
func TestManyGrants(t *testing.T) {
	b := newBench(t)
	b.run(b.setRate(b.o.Keys(), "try", Config{Rate: 350, Interval: time.Hour}))
	for range 350 {
		require.EqualValues(t, granted, b.run(b.take(b.o.Keys(), 1)))
	}
	require.Greater(t, b.run(b.take(b.o.Keys(), 340)), int64(grantedIn))
	require.EqualValues(t, 1, b.run(b.giveBack(b.o.Keys(), 345)))
	require.EqualValues(t, 345, b.run(b.look()))
	require.EqualValues(t, 5, b.total(1))
	b.run(b.setRate(b.o.Keys(), "set", Config{Rate: 1 << 53, Interval: time.Hour}))
	require.EqualValues(t, granted, b.run(b.take(b.o.Keys(), 1<<32-1)))
	require.EqualValues(t, 1<<53-1<<32+1, b.run(b.look()), "large numbers are exact")
	require.EqualValues(t, 1, b.run(b.giveBack(b.o.Keys(), 70000)))
	require.EqualValues(t, 1<<32-1-70000, b.total(1))
}

// Names of commands are literals, all that a script touches comes in KEYS and ARGV;
// and no client's clock: a time in an argument is a length, never a date (A31).
func TestA31ScriptSources(t *testing.T) {
	for _, s := range []*script.Script{acquireScript, undoScript, releaseScript, rateScript, expireScript, deleteScript, availableScript} {
		require.NotRegexp(t, `redis\.p?call\(\s*[^'\s]`, s.Source(), s.Name())
		require.Contains(t, s.Source(), "redis.call('TIME')")
	}
}
