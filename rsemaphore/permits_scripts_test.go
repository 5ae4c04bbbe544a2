package rsemaphore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/script"
)

// letter makes an id that is easy to read.
func letter(c byte) string { return strings.Repeat(string(c), 16) }

// used is what is in use: the letters of ids, each with its time left in tens of
// seconds, and "!" behind those that have expired.
func (b *bench) used() string {
	b.t.Helper()
	ctx := context.Background()
	zs, err := b.rdb.ZRangeWithScores(ctx, permitsKey(b.key), 0, -1).Result()
	require.NoError(b.t, err)
	now := b.rdb.Time(ctx).Val()
	var out []string
	for _, z := range zs {
		left := time.UnixMilli(int64(z.Score)).Sub(now)
		text := fmt.Sprintf("%c%d", z.Member.(string)[0], left.Round(10*time.Second)/time.Second)
		if left <= 0 {
			text = fmt.Sprintf("%c!", z.Member.(string)[0])
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return fmt.Sprint(b.state(), " ", out)
}

// lifeOfPermits is what may happen to one semaphore with expiring permits.
func lifeOfPermits() []struct {
	name   string
	script *script.Script
	argv   []any
	marked bool // its first copy carries a mark
	reply  int64
	state  string
} {
	a, b, c, d, e := letter('a'), letter('b'), letter('c'), letter('d'), letter('e')
	const s30, s60, s90 = 30000, 60000, 90000
	return []struct {
		name   string
		script *script.Script
		argv   []any
		marked bool
		reply  int64
		state  string
	}{
		{"a asks for nothing", acquirePermits, []any{1, s30, channel, a}, false, 2, "none []"},
		{"set", setScript, []any{3, channel, 0}, true, 1, "3 []"},
		{"a enters", acquirePermits, []any{1, s30, channel, a}, false, 1, "2 [a30]"},
		{"b and c enter", acquirePermits, []any{2, s60, channel, b, c}, false, 1, "0 [a30 b60 c60]"},
		{"d is refused", acquirePermits, []any{1, s60, channel, d}, false, -1, "0 [a30 b60 c60]"},
		{"d and a unknown one can't leave", releasePermits, []any{channel, 1, 2, a, d}, false, -2, "0 [a30 b60 c60]"},
		{"those leave who are there", releasePermits, []any{channel, 0, 2, b, d}, true, 2, "1 [a30 c60]"},
		{"a extends", extendPermit, []any{a, s90, channel}, false, 1, "1 [a90 c60]"},
		{"a doesn't shorten", extendPermit, []any{a, s30, channel}, false, 1, "1 [a90 c60]"},
		{"b extends what it hasn't", extendPermit, []any{b, s30, channel}, false, 0, "1 [a90 c60]"},
		{"five in all", setPermits, []any{5, channel}, true, 1, "3 [a90 c60]"},
		{"one in all", setPermits, []any{1, channel}, true, 1, "-1 [a90 c60]"},
		{"three more", addScript, []any{3, channel, 0}, true, 1, "2 [a90 c60]"},
		{"d and e enter", acquirePermits, []any{2, s30, channel, d, e}, false, 1, "0 [a90 c60 d30 e30]"},
		{"c passes it to b", resumePermit, []any{c, letter('B'), s30}, false, 1, "0 [B60 a90 d30 e30]"},
		{"c can't pass it twice", resumePermit, []any{c, letter('C'), s30}, false, 0, "0 [B60 a90 d30 e30]"},
		{"d leaves", releasePermits, []any{channel, 1, 1, d}, false, 2, "1 [B60 a90 e30]"},
		{"it all goes in a minute", expireScript, []any{60000}, true, 1, "1 1m0s [B60 a90 e30]"},
		{"a, b and e leave", releasePermits, []any{channel, 1, 3, a, letter('B'), e}, false, 6, "4 1m0s []"},
		{"f enters", acquirePermits, []any{1, s90, channel, letter('f')}, false, 1, "3 1m0s [f90]"},
		{"deleted", deleteScript, nil, true, 1, "none []"},
		{"f leaves nothing", releasePermits, []any{channel, 1, 1, letter('f')}, false, -1, "none []"},
	}
}

// A request whose first reply was lost is sent again. Whether the first copy ran
// before, runs after every later step, or never, the permits are the same.
func TestPermitScriptsResentAndLate(t *testing.T) {
	for _, firstRan := range []bool{false, true} {
		t.Run(fmt.Sprintf("firstCopyRan=%v", firstRan), func(t *testing.T) {
			b := newBench(t, "")
			b.more = []any{permitsKey(b.key)}
			require.NoError(t, b.rdb.Del(t.Context(), permitsKey(b.key)).Err())
			var sent []copies
			for _, s := range lifeOfPermits() {
				first := script.NewMutation(s.script, b.keys(), nil, s.argv...)
				if s.marked {
					first = first.AlwaysMark()
				}
				c := copies{first, first.Resent()}
				if firstRan {
					b.run(c.first)
				}
				reply := b.run(c.later)
				if s.reply >= 0 && !(firstRan && s.script == releasePermits && reply < 0) {
					// A first copy may have given all back: its sender knows.
					require.Equal(t, s.reply, reply, s.name)
				}
				require.Equal(t, s.state, b.used(), s.name)
				sent = append(sent, c)
				for j, old := range sent {
					b.run(old.first)
					b.run(old.later)
					require.Equal(t, s.state, b.used(), "after %q late copies of %q changed it", s.name, lifeOfPermits()[j].name)
				}
			}
		})
	}
}

// An acquisition that nobody waits for is undone, and its copies do nothing any
// more, whether one had run before or not.
func TestUndonePermitsStayUndone(t *testing.T) {
	for _, ran := range []int{0, 1, 2} {
		t.Run(fmt.Sprint("copies ", ran), func(t *testing.T) {
			b := newBench(t, "")
			b.more = []any{permitsKey(b.key)}
			require.NoError(t, b.rdb.Set(t.Context(), b.key, 5, 0).Err())
			k := b.keys()
			acquire := script.NewMutation(acquirePermits, k, nil, 2, 30000, channel, letter('a'), letter('b'))
			for i := range ran {
				require.EqualValues(t, 1, b.run([]script.Call{acquire, acquire.Resent()}[i]))
			}
			u := b.keys()
			u.Voided = k.Marker
			undo := script.NewMutation(releasePermits, u, nil, channel, 0, 2, letter('a'), letter('b'))
			b.run(undo.AlwaysMark())
			for range 2 {
				require.Equal(t, "5 []", b.used())
				b.run(undo)
				b.run(acquire)
				b.run(acquire.Resent())
			}
		})
	}
}

// What has expired is moved back by whoever comes first, once, and told.
func TestWhoLooksFirstMovesExpiredPermitsBack(t *testing.T) {
	for _, c := range []struct {
		name   string
		script *script.Script
		argv   []any
		reply  int64
		state  string
		told   string
	}{
		{"acquire", acquirePermits, []any{2, 30000, channel, letter('x'), letter('y')}, 1, "1 [c60 x30 y30]", "1"},
		{"acquire of all", acquirePermits, []any{3, 30000, channel, letter('x'), letter('y'), letter('z')}, 1, "0 [c60 x30 y30 z30]", ""},
		{"refused acquire", acquirePermits, append([]any{4, 30000, channel}, letter('w'), letter('x'), letter('y'), letter('z')), -1, "3 [c60]", "3"},
		{"release", releasePermits, []any{channel, 1, 1, letter('c')}, 2, "4 []", "4"},
		{"release of an expired one", releasePermits, []any{channel, 1, 1, letter('a')}, -1, "3 [c60]", "3"},
		{"extend", extendPermit, []any{letter('c'), 90000, channel}, 1, "3 [c90]", "3"},
		{"extend of an expired one", extendPermit, []any{letter('a'), 90000, channel}, 0, "3 [c60]", "3"},
		{"set", setPermits, []any{4, channel}, 1, "3 [c60]", "4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := t.Context()
			b := newBench(t, "")
			b.more = []any{permitsKey(b.key)}
			channel := "redisson_sc:" + b.key
			for i := range c.argv {
				if c.argv[i] == "redisson_sc:{scripts}" {
					c.argv[i] = channel
				}
			}
			sub := b.rdb.Subscribe(ctx, channel)
			defer func() { require.NoError(t, sub.Close()) }()
			_, err := sub.Receive(ctx)
			require.NoError(t, err)
			now := b.rdb.Time(ctx).Val().UnixMilli()
			require.NoError(t, b.rdb.Set(ctx, b.key, 1, 0).Err())
			for who, at := range map[byte]int64{'a': now - 1, 'b': now, 'c': now + 60000} {
				require.NoError(t, b.rdb.Do(ctx, "ZADD", permitsKey(b.key), at, letter(who)).Err())
			}

			call := script.NewMutation(c.script, b.keys(), nil, c.argv...)
			reply := b.run(call)
			if c.reply >= 0 {
				require.Equal(t, c.reply, reply)
			}
			require.Equal(t, c.state, b.used())
			if c.told != "" {
				ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
				defer cancel()
				m, err := sub.ReceiveMessage(ctx)
				require.NoError(t, err)
				require.Equal(t, c.told, m.Payload)
			}
			b.run(call.Resent())
			require.Equal(t, c.state, b.used(), "moved back twice")
		})
	}
}

// A refusal says when there will be enough, and how many there are.
func TestRefusalSaysWhenEnoughWillHaveExpired(t *testing.T) {
	b := newBench(t, "")
	b.more = []any{permitsKey(b.key)}
	require.NoError(t, b.rdb.Set(t.Context(), b.key, 4, 0).Err())
	for i, lease := range []int{50000, 20000, 80000} {
		require.EqualValues(t, 1, b.run(script.NewMutation(acquirePermits, b.keys(), nil, 1, lease, channel, letter('a'+byte(i)))))
	}
	a := &acquisition{expirable: &expirable{}}
	for n, want := range map[int]time.Duration{2: 20 * time.Second, 3: 50 * time.Second, 4: 80 * time.Second, 5: -1} {
		ids := make([]any, n)
		for i := range ids {
			ids[i] = letter('p' + byte(i))
		}
		r := b.reply(script.NewMutation(acquirePermits, b.keys(), nil, append([]any{n, 1000, channel}, ids...)...))
		require.NoError(t, r.Err)
		out, err := a.read(r)
		require.NoError(t, err)
		require.False(t, out.Granted)
		require.EqualValues(t, 1, out.Free)
		if want < 0 {
			require.Negative(t, out.TTL)
		} else {
			require.Equal(t, want, out.TTL.Round(10*time.Second))
		}
	}
}

// Renewals touch what is there and alive, and shorten nothing.
func TestRenewTouchesOnlyLivePermits(t *testing.T) {
	ctx := t.Context()
	b := newBench(t)
	now := b.rdb.Time(ctx).Val().UnixMilli()
	key, list := b.key, b.key+":list"
	require.NoError(t, b.rdb.Del(ctx, permitsKey(key), permitsKey(list)).Err())
	require.NoError(t, b.rdb.RPush(ctx, permitsKey(list), "x").Err())
	for c, at := range map[byte]int64{'a': now + 10000, 'b': now + 90000, 'c': now - 1, 'n': 922337203685477} {
		require.NoError(t, b.rdb.Do(ctx, "ZADD", permitsKey(key), at, letter(c)).Err())
	}
	hex := func(c byte) string { return id(letter(c)).String() }
	for range 2 {
		call := renewal.Call([]string{key, key, key, key, key, list}, []string{hex('a'), hex('b'), hex('c'), hex('n'), hex('x'), hex('a')}, 30*time.Second)
		r := b.reply(call)
		require.NoError(t, r.Err)
		require.Equal(t, []any{int64(1), int64(1), int64(0), int64(1), int64(0), int64(0)}, r.Val)
		require.Contains(t, b.used(), "[a30 b90 c! n")
		require.EqualValues(t, 922337203685477, b.rdb.ZScore(ctx, permitsKey(key), letter('n')).Val())
	}
}
