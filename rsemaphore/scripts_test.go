package rsemaphore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/script"
)

// copies are the copies of one request that a client may send.
type copies struct{ first, later script.Call }

// bench runs scripts on a real server, copy by copy.
type bench struct {
	t    *testing.T
	rdb  *redis.Client
	key  string
	more []any
	next int
}

func newBench(t *testing.T, more ...any) *bench {
	b := &bench{t: t, rdb: server.Client(t), key: "{scripts}:" + t.Name(), more: more}
	require.NoError(t, b.rdb.Del(t.Context(), b.key).Err())
	return b
}

// keys are those of a new request.
func (b *bench) keys() script.Keys {
	b.next++
	return script.Keys{Key: b.key, Marker: fmt.Sprintf("%s:holdfast:req:test-%d-%d", b.key, time.Now().UnixNano(), b.next), More: b.more}
}

func (b *bench) reply(c script.Call) script.Reply {
	return script.NewRunner(b.rdb, nil, nil).Do(b.t.Context(), time.Now(), time.Now(), c)
}

func (b *bench) run(c script.Call) int64 {
	b.t.Helper()
	r := b.reply(c)
	require.NoError(b.t, r.Err)
	return r.Int()
}

// state is the number of free permits, and the time to live in tens of seconds.
func (b *bench) state() string {
	b.t.Helper()
	ctx := context.Background()
	v, err := b.rdb.Get(ctx, b.key).Result()
	if errors.Is(err, redis.Nil) {
		return "none"
	}
	require.NoError(b.t, err)
	if ttl := b.rdb.PTTL(ctx, b.key).Val(); ttl > 0 {
		v += " " + ttl.Round(10*time.Second).String()
	}
	return v
}

const channel = "redisson_sc:{scripts}"

// life is what may happen to one semaphore.
var life = []struct {
	name   string
	script *script.Script
	argv   []any
	first  bool // its first copy carries no mark
	reply  int64
	state  string
}{
	{"acquire of nothing", acquireScript, []any{1}, true, 2, "none"},
	{"release of nothing", addScript, []any{1, channel, 1}, false, 0, "none"},
	{"set", setScript, []any{3, channel, 0}, false, 1, "3"},
	{"set again", setScript, []any{9, channel, 0}, false, 0, "3"},
	{"acquire 2", acquireScript, []any{2}, true, 1, "1"},
	{"acquire 2, refused", acquireScript, []any{2}, true, 11, "1"},
	{"acquire 1", acquireScript, []any{1}, true, 1, "0"},
	{"set at 0", setScript, []any{5, channel, 0}, false, 0, "0"},
	{"release 1", addScript, []any{1, channel, 0}, false, 1, "1"},
	{"acquire it", acquireScript, []any{1}, true, 1, "0"},
	{"take away", addScript, []any{-4, channel, 0}, false, 1, "-4"},
	{"acquire below 0", acquireScript, []any{1}, true, -4, "-4"},
	{"release 2", addScript, []any{2, channel, 1}, false, 1, "-2"},
	{"drain below 0", drainScript, nil, false, -2, "0"},
	{"expire", expireScript, []any{60000}, false, 1, "0 1m0s"},
	{"add 7", addScript, []any{7, channel, 0}, false, 1, "7 1m0s"},
	{"drain", drainScript, nil, false, 7, "0 1m0s"},
	{"drain nothing", drainScript, nil, false, 0, "0 1m0s"},
	{"too many", addScript, []any{int64(maxPermits) + 1, channel, 0}, false, 3, "0 1m0s"},
	{"delete", deleteScript, nil, false, 1, "none"},
	{"delete nothing", deleteScript, nil, false, 0, "none"},
	{"expire nothing", expireScript, []any{60000}, false, 0, "none"},
	{"set for a while", setScript, []any{2, channel, 30000}, false, 1, "2 30s"},
	{"acquire 2 of them", acquireScript, []any{2}, true, 1, "0 30s"},
	{"release 2 of them", addScript, []any{2, channel, 0}, false, 1, "2 30s"},
}

// A request whose first reply was lost is sent again. Whether the first copy ran
// before, runs after every later step, or never, the numbers are the same.
func TestScriptsResentAndLate(t *testing.T) {
	for _, firstRan := range []bool{false, true} {
		t.Run(fmt.Sprintf("firstCopyRan=%v", firstRan), func(t *testing.T) {
			b := newBench(t)
			var sent []copies
			for _, s := range life {
				first := script.NewMutation(s.script, b.keys(), nil, s.argv...)
				if !s.first {
					first = first.AlwaysMark()
				}
				c := copies{first, first.Resent()}
				if firstRan {
					require.Equal(t, s.reply, b.run(c.first), s.name)
				}
				require.Equal(t, s.reply, b.run(c.later), s.name)
				require.Equal(t, s.state, b.state(), s.name)
				sent = append(sent, c)
				for j, old := range sent {
					require.Equal(t, life[j].reply, b.run(old.first), "a late copy of %q answers otherwise", life[j].name)
					require.Equal(t, life[j].reply, b.run(old.later), "a late copy of %q answers otherwise", life[j].name)
					require.Equal(t, s.state, b.state(), "after %q late copies of %q changed it", s.name, life[j].name)
				}
			}
		})
	}
}

// An acquisition that nobody waits for is undone once, by what its marker says:
// not if it was refused, or never ran; and it never runs afterwards.
func TestUndoGivesBackWhatWasGranted(t *testing.T) {
	for _, c := range []struct {
		name         string
		free         int
		ran, resent  bool
		after, reply int64
	}{
		{"granted", 5, true, false, 5, 1},
		{"granted, resent", 5, true, true, 5, 1},
		{"refused", 1, true, false, 1, 0},
		{"refused, resent", 1, true, true, 1, 0},
		{"never ran", 5, false, false, 5, 0},
		{"only a later copy ran", 5, false, true, 5, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			require.NoError(t, b.rdb.Set(t.Context(), b.key, c.free, 0).Err())
			k := b.keys()
			acquire := script.NewMutation(acquireScript, k, nil, 3)
			if c.ran {
				b.run(acquire)
			}
			if c.resent {
				b.run(acquire.Resent())
			}
			u := b.keys()
			u.Voided = k.Marker
			undo := script.NewMutation(undoScript, u, nil, 3, channel)
			require.Equal(t, c.reply, b.run(undo.AlwaysMark()))
			for range 2 {
				b.run(undo)
				b.run(undo.Resent())
				b.run(acquire)
				b.run(acquire.Resent())
				require.Equal(t, fmt.Sprint(c.after), b.state())
			}
		})
	}
}

// What is given back to a semaphore that was deleted meanwhile doesn't bring it
// into being.
func TestUndoLeavesADeletedSemaphoreAlone(t *testing.T) {
	b := newBench(t)
	require.NoError(t, b.rdb.Set(t.Context(), b.key, 5, 0).Err())
	k := b.keys()
	require.EqualValues(t, 1, b.run(script.NewMutation(acquireScript, k, nil, 3)))
	require.NoError(t, b.rdb.Del(t.Context(), b.key).Err())
	u := b.keys()
	u.Voided = k.Marker
	require.EqualValues(t, 0, b.run(script.NewMutation(undoScript, u, nil, 3, channel).AlwaysMark()))
	require.Equal(t, "none", b.state())
}

// Every script refuses a value that is no number of permits, and leaves it.
func TestScriptsLeaveForeignValuesAlone(t *testing.T) {
	b := newBench(t)
	for _, value := range []string{`{"json": 1}`, "", " 5", "5 ", "05", "-0", "+5", "0x10", "1e3", "1.5", "nan", "inf", "9007199254740992", "-9007199254740992", "99999999999999999999999"} {
		require.NoError(t, b.rdb.Set(t.Context(), b.key, value, 0).Err())
		for _, s := range life {
			r := b.reply(script.NewMutation(s.script, b.keys(), nil, s.argv...).AlwaysMark())
			require.True(t, script.IsWrongType(r.Err), "%s on %q: %v, %v", s.name, value, r.Val, r.Err)
			require.Equal(t, value, b.rdb.Get(t.Context(), b.key).Val())
		}
	}
	for _, make := range []func() error{
		func() error { return b.rdb.RPush(t.Context(), b.key, "x").Err() },
		func() error { return b.rdb.HSet(t.Context(), b.key, "owner", 1).Err() },
	} {
		require.NoError(t, b.rdb.Del(t.Context(), b.key).Err())
		require.NoError(t, make())
		was := b.rdb.Dump(t.Context(), b.key).Val()
		for _, s := range life {
			r := b.reply(script.NewMutation(s.script, b.keys(), nil, s.argv...).AlwaysMark())
			require.True(t, script.IsWrongType(r.Err), "%s: %v, %v", s.name, r.Val, r.Err)
		}
		require.Equal(t, was, b.rdb.Dump(t.Context(), b.key).Val())
	}
}

// The last number that fits is exact, and one more is refused.
func TestNumbersAreExactUpToTheLimit(t *testing.T) {
	b := newBench(t)
	require.EqualValues(t, 1, b.run(script.NewMutation(setScript, b.keys(), nil, int64(maxPermits)-1, channel, 0).AlwaysMark()))
	require.EqualValues(t, 1, b.run(script.NewMutation(addScript, b.keys(), nil, 1, channel, 0).AlwaysMark()))
	require.Equal(t, "9007199254740991", b.state())
	require.EqualValues(t, 3, b.run(script.NewMutation(addScript, b.keys(), nil, 1, channel, 0).AlwaysMark()))
	require.EqualValues(t, 1, b.run(script.NewMutation(acquireScript, b.keys(), nil, int64(maxPermits)-1)))
	require.Equal(t, "1", b.state())
	require.EqualValues(t, 1, b.run(script.NewMutation(addScript, b.keys(), nil, int64(maxPermits)-1, channel, 0).AlwaysMark()))
	require.EqualValues(t, int64(maxPermits), b.run(script.NewMutation(drainScript, b.keys(), nil).AlwaysMark()))
	require.Equal(t, "0", b.state())
}
