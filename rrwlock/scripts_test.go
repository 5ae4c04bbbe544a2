package rrwlock

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/keys"
	"github.com/holdfast-go/holdfast/internal/script"
)

// copies are the copies of one request that a client may send.
type copies struct{ first, later script.Call }

// bench runs scripts on a real server, copy by copy.
type bench struct {
	t    *testing.T
	rdb  *redis.Client
	key  string
	next int
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, rdb: server.Client(t), key: "scripts:" + t.Name()}
	require.NoError(t, b.rdb.Del(t.Context(), b.key).Err())
	return b
}

// request makes the copies of a request.
func (b *bench) request(make func(hold.Args) script.Call, args hold.Args) copies {
	b.next++
	args.Key, args.Marker = b.key, fmt.Sprintf("{%s}:holdfast:req:test-%d-%d", b.key, time.Now().UnixNano(), b.next)
	args.Channel, args.More = "channel", both{}.Keys(b.key)
	return copies{make(args), make(args).Resent()}
}

func (b *bench) run(c script.Call) int64 {
	b.t.Helper()
	r := script.NewRunner(b.rdb, nil, nil).Do(b.t.Context(), time.Now(), time.Now(), c)
	require.NoError(b.t, r.Err)
	return r.Int()
}

// life is a time to live in hundreds of seconds: leases in these tests differ by
// more.
func life(d time.Duration) int { return int(d.Round(100*time.Second) / (100 * time.Second)) }

// state is all that a copy might change: mode, counts and times to live.
func (b *bench) state() string {
	b.t.Helper()
	ctx := context.Background()
	all, err := b.rdb.HGetAll(ctx, b.key).Result()
	require.NoError(b.t, err)
	mode := all["mode"]
	delete(all, "mode")
	var words, holds []string
	for _, field := range slices.Sorted(maps.Keys(all)) {
		words = append(words, strings.TrimPrefix(field, "client:")+"="+all[field])
	}
	own, err := b.rdb.Keys(ctx, "{"+b.key+"}:*:rwlock_timeout:*").Result()
	require.NoError(b.t, err)
	for _, key := range own {
		short := strings.TrimPrefix(key, "{"+b.key+"}:client:")
		holds = append(holds, fmt.Sprintf("%s:%d", strings.Replace(short, ":rwlock_timeout:", "#", 1), life(b.rdb.PTTL(ctx, key).Val())))
	}
	slices.Sort(holds)
	if mode == "" {
		return strings.Join(append([]string{"free"}, holds...), " ")
	}
	return fmt.Sprintf("%s %s:%d | %s", mode, strings.Join(words, " "), life(b.rdb.PTTL(ctx, b.key).Val()), strings.Join(holds, " "))
}

type step struct {
	name  string
	make  func(hold.Args) script.Call
	args  hold.Args
	reply int64 // of the copy that is answered
	state string
}

const (
	s300, s600, s900, s1200 = 300 * time.Second, 600 * time.Second, 900 * time.Second, 1200 * time.Second

	a, b, c, h = "client:a", "client:b", "client:c", "client:h"
	aw, bw, hw = a + ":write", b + ":write", h + ":write"
)

// dealings are those of several owners with one name, in both modes. Leases
// differ, so that a late copy would show.
func dealings() []step {
	var r reader
	var w writer
	take := func(owner string, count int, lease time.Duration) hold.Args {
		return hold.Args{Field: owner, Count: count, Lease: lease}
	}
	keep := func(owner string, leases ...time.Duration) hold.Args {
		d := time.Duration(0)
		if len(leases) > 0 {
			d = slices.Max(leases)
		}
		return hold.Args{Field: owner, Count: len(leases), Lease: d, Leases: leases}
	}
	pass := func(from, to string, count int, lease time.Duration) hold.Args {
		return hold.Args{Field: from, To: to, Count: count, Lease: lease}
	}
	const any = -1
	return []step{
		{"a reads", r.Acquire, take(a, 1, s300), 1, "read a=1:3 | a#1:3"},
		{"a reads again, shorter", r.Acquire, take(a, 2, 100*time.Second), 2, "read a=2:3 | a#1:3 a#2:1"},
		{"b reads, longer", r.Acquire, take(b, 1, s600), 1, "read a=2 b=1:6 | a#1:3 a#2:1 b#1:6"},
		{"b can't become the writer", w.Acquire, take(bw, 1, s1200), 6, "read a=2 b=1:6 | a#1:3 a#2:1 b#1:6"},
		{"c can't write", w.Acquire, take(c+":write", 1, s1200), any, "read a=2 b=1:6 | a#1:3 a#2:1 b#1:6"},
		{"c gives back what it hasn't", r.Release, keep(c), 0, "read a=2 b=1:6 | a#1:3 a#2:1 b#1:6"},
		{"a extends", r.Extend, take(a, 0, s900), 1, "read a=2 b=1:9 | a#1:9 a#2:1 b#1:6"},
		{"a gives the longer one back", r.Release, keep(a, 100*time.Second), 1, "read a=1 b=1:6 | a#1:1 b#1:6"},
		{"b gives its own back", r.Release, keep(b), 1, "read a=1:1 | a#1:1"},
		{"a gives the last back", r.Release, keep(a), 1, "free"},
		{"a writes", w.Acquire, take(aw, 1, s300), 1, "write a:write=1:3 | "},
		{"a writes again, longer", w.Acquire, take(aw, 2, s600), 2, "write a:write=2:6 | "},
		{"b can't read", r.Acquire, take(b, 1, s1200), any, "write a:write=2:6 | "},
		{"b gives back what it hasn't", w.Release, keep(bw), 0, "write a:write=2:6 | "},
		{"the writer reads", r.Acquire, take(a, 1, s900), 1, "write a=1 a:write=2:9 | a#1:9"},
		{"the writer reads no more", r.Release, keep(a), 1, "write a:write=2:9 | "},
		{"the writer reads anew", r.Acquire, take(a, 1, s300), 1, "write a=1 a:write=2:9 | a#1:3"},
		{"it can't pass on the write hold", w.Transfer, pass(aw, hw, 1, s1200), 6, "write a=1 a:write=2:9 | a#1:3"},
		{"nor the read hold", r.Transfer, pass(a, h, 1, s1200), 6, "write a=1 a:write=2:9 | a#1:3"},
		{"a gives one write hold back", w.Release, keep(aw, s1200), 1, "write a=1 a:write=1:12 | a#1:3"},
		{"a goes on reading", w.Release, keep(aw), 1, "read a=1:3 | a#1:3"},
		{"b reads beside it", r.Acquire, take(b, 1, s600), 1, "read a=1 b=1:6 | a#1:3 b#1:6"},
		{"there is no writer to force out", w.Force, hold.Args{}, 0, "read a=1 b=1:6 | a#1:3 b#1:6"},
		{"the readers are forced out", r.Force, hold.Args{}, 1, "free"},
		{"a re-enters what is gone", r.Acquire, take(a, 5, s300), 1, "read a=1:3 | a#1:3"},
		{"a passes it on", r.Transfer, pass(a, h, 1, s600), 1, "read h=1:6 | h#1:6"},
		{"b reads meanwhile", r.Acquire, take(b, 1, s300), 1, "read b=1 h=1:6 | b#1:3 h#1:6"},
		{"b takes it up, too", r.Transfer, pass(h, b, 2, s300), 2, "read b=2:6 | b#1:3 b#2:6"},
		{"a can't take it up", r.Transfer, pass(h, a, 1, s1200), 0, "read b=2:6 | b#1:3 b#2:6"},
		{"b gives it back", r.Release, keep(b, s300), 1, "read b=1:3 | b#1:3"},
		{"b gives the other back", r.Release, keep(b), 1, "free"},
		{"a writes again", w.Acquire, take(aw, 1, s300), 1, "write a:write=1:3 | "},
		{"a passes the write hold on", w.Transfer, pass(aw, hw, 1, s600), 1, "write h:write=1:6 | "},
		{"b takes that up", w.Transfer, pass(hw, bw, 1, s300), 1, "write b:write=1:6 | "},
		{"b extends", w.Extend, take(bw, 0, s900), 1, "write b:write=1:9 | "},
		{"there are no readers to force out", r.Force, hold.Args{}, 0, "write b:write=1:9 | "},
		{"b reads, too", r.Acquire, take(b, 1, s300), 1, "write b=1 b:write=1:9 | b#1:3"},
		{"the writer is forced out", w.Force, hold.Args{}, 1, "free"},
		{"b has the last word", r.Acquire, take(b, 1, s300), 1, "read b=1:3 | b#1:3"},
	}
}

// A request whose first reply was lost is sent again. Whether the first copy
// ran before, runs after every later step, or never, the state is the same.
func TestScriptsResentAndLate(t *testing.T) {
	for _, firstRan := range []bool{false, true} {
		t.Run(fmt.Sprintf("firstCopyRan=%v", firstRan), func(t *testing.T) {
			b := newBench(t)
			var sent []copies
			for _, s := range dealings() {
				c := b.request(s.make, s.args)
				if strings.Contains(s.name, "force") {
					c.first, c.later = c.first.AlwaysMark(), c.later.AlwaysMark()
				}
				if firstRan {
					b.run(c.first)
				}
				reply := b.run(c.later)
				if s.reply >= 0 && (!firstRan || reply != 0 && reply != 2) {
					// A first copy may have done the work: its sender knows.
					require.Equal(t, s.reply, reply, s.name)
				}
				require.Equal(t, s.state, b.state(), s.name)
				sent = append(sent, c)
				for j, old := range sent {
					b.run(old.first)
					b.run(old.later)
					require.Equal(t, s.state, b.state(), "after %q a late copy of %q changed it", s.name, dealings()[j].name)
				}
			}
		})
	}
}

// An acquisition that nobody waits for is undone, and its late copies do
// nothing, whether it had run before or not.
func TestUndoneAcquisitionStaysUndone(t *testing.T) {
	for _, k := range []hold.Mode{reader{}, writer{}} {
		for _, ran := range []bool{false, true} {
			for _, before := range []int{0, 1} {
				t.Run(fmt.Sprintf("%s/ran=%v/holdsBefore=%d", k.Name(), ran, before), func(t *testing.T) {
					b := newBench(t)
					field := k.Field(a)
					want := "free"
					var left []time.Duration
					if before == 1 {
						b.run(b.request(k.Acquire, hold.Args{Field: field, Count: 1, Lease: s300}).first)
						want, left = b.state(), []time.Duration{s300}
					}
					marker := fmt.Sprintf("{%s}:voided-%v-%d", b.key, ran, before)
					late := k.Acquire(hold.Args{
						Keys:  script.Keys{Key: b.key, Marker: marker, More: both{}.Keys(b.key)},
						Field: field, Count: before + 1, Lease: s300,
					})
					if ran {
						b.run(late)
					}
					undo := b.request(k.Release, hold.Args{
						Keys:  script.Keys{Voided: marker},
						Field: field, Count: before, Lease: s300, Leases: left,
					})
					b.run(undo.first)
					require.Equal(t, want, b.state())
					b.run(late)
					require.Equal(t, want, b.state(), "the late copy took the lock for nobody")
					b.run(undo.later)
					require.Equal(t, want, b.state())
				})
			}
		}
	}
}

// A renewal gives each reader's own keys a lease, and nobody else's.
func TestRenewTouchesOnlyTheOwners(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	var r reader
	for _, owner := range []string{a, c} {
		b.run(b.request(r.Acquire, hold.Args{Field: owner, Count: 1, Lease: s300}).first)
	}
	b.run(b.request(r.Acquire, hold.Args{Field: a, Count: 2, Lease: s300}).first)
	other, list, gone := b.key+"2", b.key+"3", b.key+"4"
	require.NoError(t, b.rdb.Del(ctx, other, list, gone).Err())
	require.NoError(t, b.rdb.HSet(ctx, other, "mode", "write", aw, 1, c, 1).Err())
	require.NoError(t, b.rdb.PExpire(ctx, other, time.Second).Err())
	require.NoError(t, b.rdb.RPush(ctx, list, "x").Err())
	for range 2 {
		call := renewal.Call([]string{b.key, other, other, other, list, gone}, []string{a, aw, bw, c, a, a}, s900)
		reply := script.NewRunner(b.rdb, nil, nil).Do(ctx, time.Now(), time.Now(), call)
		require.NoError(t, reply.Err)
		// c's field in other has no key left: whatever the hash says, it is gone.
		require.Equal(t, []any{int64(1), int64(1), int64(0), int64(0), int64(0), int64(0)}, reply.Val)
		require.Equal(t, "read a=2 c=1:9 | a#1:9 a#2:9 c#1:3", b.state())
		require.Equal(t, 9, life(b.rdb.PTTL(ctx, other).Val()))
		require.Equal(t, time.Duration(-1), b.rdb.PTTL(ctx, list).Val())
		require.Zero(t, b.rdb.Exists(ctx, gone).Val())
	}
}

// A reader whose keys are gone reads no more, whoever else does.
func TestReadersAreGoneWithTheirKeys(t *testing.T) {
	b := newBench(t)
	var r reader
	var w writer
	read := func(owner string) { b.run(b.request(r.Acquire, hold.Args{Field: owner, Count: 1, Lease: s300}).first) }
	dies := func(owner string) {
		require.NoError(t, b.rdb.Del(t.Context(), "{"+b.key+"}:"+owner+":rwlock_timeout:1").Err())
	}
	held := func(field string) int64 { return b.run(both{}.Held(b.key, field)) }
	write := func() int64 {
		return b.run(b.request(w.Acquire, hold.Args{Field: bw, Count: 1, Lease: s300}).first)
	}
	read(a)
	read(c)
	dies(a)
	require.Zero(t, held(a))
	require.EqualValues(t, 1, held(c))
	require.Greater(t, write(), int64(10), "c reads")
	require.EqualValues(t, 1, b.run(b.request(r.Release, hold.Args{Field: c}).first))
	require.Equal(t, "free", b.state(), "the last reader that lives takes along what the dead left")

	read(a)
	read(b.t.Name() + ":x")
	dies(a)
	dies(b.t.Name() + ":x")
	require.EqualValues(t, 1, write(), "only dead readers are left")
	require.Equal(t, "write b:write=1:3 | ", b.state())
	require.Zero(t, b.run(b.request(r.Release, hold.Args{Field: a}).first), "lost")
}

// Where names fall: WIRE's table, with and without braces.
func TestNames(t *testing.T) {
	for name, channel := range map[string]string{
		"wire-n":    "redisson_rwlock:{wire-n}",
		"wire{y}-z": "redisson_rwlock:wire{y}-z",
	} {
		require.Equal(t, channel, both{}.Channel(name))
		for _, key := range (both{}).Keys(name) {
			require.Equal(t, keys.Slot(name), keys.Slot(key.(string)))
		}
		b := newBench(t)
		b.key = name
		b.run(b.request(reader{}.Acquire, hold.Args{Field: a, Count: 1, Lease: s300}).first)
		own := keys.Suffixed(name, a) + ":rwlock_timeout:1"
		require.Equal(t, "1", b.rdb.Get(t.Context(), own).Val())
		b.run(b.request(reader{}.Release, hold.Args{Field: a}).first)
		require.Zero(t, b.rdb.Exists(t.Context(), name, own).Val())
	}
}

// Names of commands are literals, so that a service which looks for them before
// it runs a script finds them.
func TestScriptSources(t *testing.T) {
	for _, s := range []*script.Script{
		acquireReadScript, acquireWriteScript, releaseReadScript, releaseWriteScript,
		extendScript, forceScript, transferScript, leaveScript, renewScript, heldScript,
	} {
		require.NotEmpty(t, s.Name())
		require.NotRegexp(t, `redis\.p?call\(\s*[^'\s]`, s.Source(), s.Name())
	}
}
