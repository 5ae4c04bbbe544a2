package rlatch

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/script"
)

// bench runs scripts on a real server, copy by copy.
type bench struct {
	*Latch
	t   *testing.T
	rdb *redis.Client
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, rdb: server.Client(t)}
	b.Latch = NewLatch(&hold.Services{
		Runner:  script.NewRunner(b.rdb, nil, nil),
		MapName: func(n string) string { return n },
	}, fmt.Sprint("scripts:", t.Name(), time.Now().UnixNano()))
	return b
}

func (b *bench) run(c script.Call) int64 {
	b.t.Helper()
	r := b.o.Runner.Do(b.t.Context(), time.Now(), time.Now(), c)
	require.NoError(b.t, r.Err)
	return r.Int()
}

// state is all that a copy might change.
func (b *bench) state() string {
	b.t.Helper()
	ctx := context.Background()
	return fmt.Sprint(b.rdb.Get(ctx, b.o.RedisKey()).Val(), " ", b.rdb.Get(ctx, b.opened.(string)).Val() != "")
}

type step struct {
	name  string
	call  func(script.Keys) script.Call
	reply int64
	state string // the count, and whether the latch was opened before
}

func (b *bench) life() []step {
	set := func(n int64) func(script.Keys) script.Call {
		return func(k script.Keys) script.Call { return b.set(k, n) }
	}
	return []step{
		{"an open latch is counted down", b.countDown, 0, " false"},
		{"there is nothing to delete", b.remove, 0, " false"},
		{"set to 0", set(0), 1, " false"},
		{"set to 3", set(3), 1, "3 false"},
		{"set to 5, too late", set(5), 0, "3 false"},
		{"3 to 2", b.countDown, 1, "2 false"},
		{"2 to 1", b.countDown, 1, "1 false"},
		{"1 to 0", b.countDown, 2, " true"},
		{"0 stays 0", b.countDown, 0, " true"},
		{"a round of 2", set(2), 1, "2 true"},
		{"set to 0, too late", set(0), 0, "2 true"},
		{"deleted", b.remove, 1, " true"},
		{"a round of 4", set(4), 1, "4 true"},
		{"4 to 3", b.countDown, 1, "3 true"},
	}
}

// Whether the first copy of a request ran before the one that was answered, runs
// after every later step, or never: the count is the same.
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
				require.Equal(t, s.reply, b.run(c.Resent()), s.name)
				require.Equal(t, s.state, b.state(), s.name)
				sent = append(sent, c)
				for i, old := range sent {
					b.run(old)
					require.Equal(t, s.state, b.state(), "after %q a late copy of %q changed it", s.name, b.life()[i].name)
				}
			}
			ttl, err := b.rdb.PTTL(t.Context(), b.opened.(string)).Result()
			require.NoError(t, err)
			require.Positive(t, ttl, "private keys don't stay")
		})
	}
}

// Who began to wait before the latch was opened is let go, whatever round runs
// when it looks again, and whether or not the note of the opening still stands.
func TestLookKnowsItsRound(t *testing.T) {
	b := newBench(t)
	open := func() {
		b.run(b.set(b.o.Keys(), 1))
		require.EqualValues(t, 2, b.run(b.countDown(b.o.Keys())))
		b.run(b.set(b.o.Keys(), 1))
	}
	b.run(b.set(b.o.Keys(), 1))
	first := b.run(b.look(nil))
	require.EqualValues(t, closed, first, "never opened before")
	require.EqualValues(t, first, b.run(b.look(first-closed)), "still the same round")

	require.EqualValues(t, 2, b.run(b.countDown(b.o.Keys())))
	require.EqualValues(t, 0, b.run(b.look(first-closed)))
	b.run(b.set(b.o.Keys(), 1))
	require.EqualValues(t, 0, b.run(b.look(first-closed)), "its round is over")

	second := b.run(b.look(nil))
	require.Greater(t, second, first)
	require.EqualValues(t, second, b.run(b.look(second-closed)), "the round before is none of its business")
	require.NoError(t, b.rdb.Del(t.Context(), b.opened.(string)).Err())
	require.Greater(t, b.run(b.look(second-closed)), int64(noCountSeen), "an expired note says nothing")
	require.EqualValues(t, 1, b.run(b.remove(b.o.Keys())))
	open()
	require.EqualValues(t, 0, b.run(b.look(second-closed)))
}

// What the scripts publish and leave, call by call: the record of a running
// Redisson 4.7.0, chapters CountDownLatch and CountDownLatch name with braces.
func TestWireLayout(t *testing.T) {
	for _, name := range []string{"latch-wire-n", "latch-wire{y}z"} {
		b := newBench(t)
		b.Latch = NewLatch(b.o.Services, name)
		ctx := t.Context()
		require.NoError(t, b.rdb.Del(ctx, name).Err())
		sub := b.rdb.Subscribe(ctx, "redisson_countdownlatch__channel__{"+name+"}")
		t.Cleanup(func() { require.NoError(t, sub.Close()) })
		_, err := sub.Receive(ctx)
		require.NoError(t, err)
		heard := func(want string) {
			t.Helper()
			m, err := sub.ReceiveMessage(ctx)
			require.NoError(t, err)
			require.Equal(t, want, m.Payload)
		}
		b.run(b.set(b.o.Keys(), 2))
		heard("1")
		require.Equal(t, "2", b.rdb.Get(ctx, name).Val())
		require.Equal(t, time.Duration(-1), b.rdb.PTTL(ctx, name).Val())
		b.run(b.set(b.o.Keys(), 5)) // publishes nothing
		b.run(b.countDown(b.o.Keys()))
		require.Equal(t, "1", b.rdb.Get(ctx, name).Val())
		b.run(b.countDown(b.o.Keys()))
		heard("0")
		require.Zero(t, b.rdb.Exists(ctx, name).Val())
		b.run(b.countDown(b.o.Keys())) // publishes nothing
		b.run(b.set(b.o.Keys(), 1))
		heard("1")
		b.run(b.remove(b.o.Keys()))
		heard("1")
	}
}

// Names of commands are literals, and all that a script touches comes in KEYS and
// ARGV.
func TestScriptSources(t *testing.T) {
	for _, s := range []*script.Script{awaitScript, countDownScript, deleteScript, setScript} {
		require.NotRegexp(t, `redis\.p?call\(\s*[^'\s]`, s.Source(), s.Name())
	}
}
