package rlock

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

// multiBench runs the scripts on several locks, copy by copy.
type multiBench struct {
	t    *testing.T
	rdb  *redis.Client
	keys []string
	next int
}

func newMultiBench(t *testing.T) *multiBench {
	b := &multiBench{t: t, rdb: server.Client(t)}
	for i := range 3 {
		b.keys = append(b.keys, fmt.Sprintf("{multi:%s}:%d", t.Name(), i))
		require.NoError(t, b.rdb.Del(t.Context(), b.keys[i]).Err())
	}
	return b
}

// multiArgs are one owner's counts and leases of the three locks.
type multiArgs struct {
	owner  string
	counts [3]int
	lease  time.Duration
}

// request makes the copies of a request. voided may be empty.
func (b *multiBench) request(make func([]hold.Args) script.Call, a multiArgs, voided string) (c copies, marker string) {
	b.next++
	marker = fmt.Sprintf("{multi:%s}:holdfast:req:%d-%d", b.t.Name(), time.Now().UnixNano(), b.next)
	args := func() (each []hold.Args) {
		for i, key := range b.keys {
			each = append(each, hold.Args{
				Keys: script.Keys{Key: key}, Channel: "channel", Field: a.owner, Count: a.counts[i], Lease: a.lease,
			})
		}
		each[0].Marker, each[0].More = marker, []any{b.keys[1], b.keys[2]}
		if voided != "" {
			each[0].Voided = voided
		}
		return each
	}
	return copies{make(args()), make(args()).Resent()}, marker
}

func (b *multiBench) run(c script.Call) any {
	b.t.Helper()
	r := script.NewRunner(b.rdb, nil, nil).Do(b.t.Context(), time.Now(), time.Now(), c)
	require.NoError(b.t, r.Err)
	return r.Val
}

// state is all that a copy might change: the owners, and the times to live in
// whole seconds (leases in these tests differ by more).
func (b *multiBench) state() (s string) {
	b.t.Helper()
	ctx := context.Background()
	for _, key := range b.keys {
		s += fmt.Sprint(b.rdb.HGetAll(ctx, key).Val(), b.rdb.PTTL(ctx, key).Val().Round(10*time.Second), " ")
	}
	return s
}

// A request on several locks whose first reply was lost is sent again. Whether the
// first copy ran before, runs after every later step, or never, the state is the
// same.
func TestMultiScriptsResentAndLate(t *testing.T) {
	const s30, s60, s90 = 30 * time.Second, time.Minute, 90 * time.Second
	const free = "map[] 0s map[] 0s map[] 0s "
	k := plain{}
	b := newMultiBench(t)
	single := func(t *testing.T, c script.Call) { b.run(c) }
	bArgs := func(i, count int, lease time.Duration) hold.Args {
		return hold.Args{
			Keys:  script.Keys{Key: b.keys[i], Marker: fmt.Sprintf("%s:holdfast:req:b%d-%d", b.keys[i], i, time.Now().UnixNano())},
			Field: "c:b", Channel: "channel", Count: count, Lease: lease,
		}
	}
	type step struct {
		name  string
		make  func([]hold.Args) script.Call
		args  multiArgs
		reply any // of the copy that is answered; nil: depends on which one it is
		state string
		other func() // somebody else's single lock, before
	}
	steps := []step{
		{"a takes all", k.AcquireAll, multiArgs{"c:a", [3]int{1, 1, 1}, s30}, int64(1), "map[c:a:1] 30s map[c:a:1] 30s map[c:a:1] 30s ", nil},
		{"b is refused", k.AcquireAll, multiArgs{"c:b", [3]int{1, 1, 1}, s60}, nil, "map[c:a:1] 30s map[c:a:1] 30s map[c:a:1] 30s ", nil},
		{"b gives back what it hasn't", k.ReleaseAll, multiArgs{"c:b", [3]int{0, 0, 0}, s60}, "nnn", "map[c:a:1] 30s map[c:a:1] 30s map[c:a:1] 30s ", nil},
		{"a enters again, longer", k.AcquireAll, multiArgs{"c:a", [3]int{2, 2, 2}, s60}, int64(1), "map[c:a:2] 1m0s map[c:a:2] 1m0s map[c:a:2] 1m0s ", nil},
		{"a gives one back of two of them", k.ReleaseAll, multiArgs{"c:a", [3]int{1, 2, 1}, s30}, "yyy", "map[c:a:1] 1m0s map[c:a:2] 1m0s map[c:a:1] 1m0s ", nil},
		{"a gives the rest back, but for one", k.ReleaseAll, multiArgs{"c:a", [3]int{0, 1, 0}, s90}, nil, "map[] 0s map[c:a:1] 1m30s map[] 0s ", nil},
		{"a thinks it has all", k.AcquireAll, multiArgs{"c:a", [3]int{2, 2, 2}, s30}, "1:7", "map[] 0s map[c:a:1] 1m30s map[] 0s ", nil},
		{
			"b has the third", k.AcquireAll,
			multiArgs{"c:a", [3]int{1, 2, 1}, s30},
			"3:3", "map[] 0s map[c:a:1] 1m30s map[c:b:1] 0s ",
			func() { require.NoError(t, b.rdb.HSet(t.Context(), b.keys[2], "c:b", 1).Err()) },
		},
		{
			"a gives the last back", k.ReleaseAll,
			multiArgs{"c:a", [3]int{0, 0, 0}, s30},
			nil, free,
			func() { single(t, k.Release(bArgs(2, 0, s30))) },
		},
		{
			"b takes one by itself", k.AcquireAll,
			multiArgs{"c:a", [3]int{1, 1, 1}, s90},
			nil, "map[] 0s map[c:b:1] 30s map[] 0s ",
			func() { single(t, k.Acquire(bArgs(1, 1, s30))) },
		},
	}
	for _, firstRan := range []bool{false, true} {
		t.Run(fmt.Sprintf("firstCopyRan=%v", firstRan), func(t *testing.T) {
			for _, key := range b.keys {
				require.NoError(t, b.rdb.Del(t.Context(), key).Err())
			}
			var sent []copies
			for _, s := range steps {
				if s.other != nil {
					s.other()
				}
				c, _ := b.request(s.make, s.args, "")
				if firstRan {
					b.run(c.first)
				}
				reply := b.run(c.later)
				if s.reply != nil && (s.reply != "yyy" || !firstRan) {
					require.Equal(t, s.reply, reply, s.name)
				}
				require.Equal(t, s.state, b.state(), s.name)
				sent = append(sent, c)
				for j, old := range sent {
					b.run(old.first)
					require.Equal(t, s.state, b.state(), "after %q a late copy of %q changed it", s.name, steps[j].name)
					b.run(old.later)
					require.Equal(t, s.state, b.state(), "after %q a second copy of %q changed it", s.name, steps[j].name)
				}
			}
		})
	}
}

// An acquisition of several locks that nobody waits for is undone, and its late
// copies do nothing, whether it had run before or not.
func TestUndoneMultiAcquisitionStaysUndone(t *testing.T) {
	for _, ran := range []bool{false, true} {
		for _, before := range []int{0, 1} {
			t.Run(fmt.Sprintf("ran=%v/holdsBefore=%d", ran, before), func(t *testing.T) {
				b := newMultiBench(t)
				k := plain{}
				want := "map[] 0s map[] 0s map[] 0s "
				if before == 1 {
					c, _ := b.request(k.AcquireAll, multiArgs{"c:a", [3]int{1, 1, 1}, 30 * time.Second}, "")
					b.run(c.first)
					want = "map[c:a:1] 30s map[c:a:1] 30s map[c:a:1] 30s "
				}
				late, marker := b.request(k.AcquireAll, multiArgs{"c:a", [3]int{before + 1, before + 1, before + 1}, 30 * time.Second}, "")
				if ran {
					b.run(late.first)
				}
				undo, _ := b.request(k.ReleaseAll, multiArgs{"c:a", [3]int{before, before, before}, 30 * time.Second}, marker)
				b.run(undo.first)
				require.Equal(t, want, b.state())
				b.run(late.first)
				require.Equal(t, want, b.state(), "the late copy took the locks for nobody")
				b.run(undo.later)
				require.Equal(t, want, b.state())
			})
		}
	}
}

// What holds something else is named by its place, and nothing is written: neither
// to it, nor to those before it.
func TestMultiScriptsLeaveForeignKeysAlone(t *testing.T) {
	b := newMultiBench(t)
	k := plain{}
	for want, put := range map[string]func() error{
		"2:6": func() error { return b.rdb.Set(t.Context(), b.keys[1], "x", 0).Err() },
		"2:4": func() error { return b.rdb.HSet(t.Context(), b.keys[1], "mode", "read", "c:a", 1).Err() },
	} {
		require.NoError(t, b.rdb.Del(t.Context(), b.keys[1]).Err())
		require.NoError(t, put())
		dump := b.rdb.Dump(t.Context(), b.keys[1]).Val()
		c, _ := b.request(k.AcquireAll, multiArgs{"c:a", [3]int{1, 1, 1}, time.Minute}, "")
		require.Equal(t, want, b.run(c.first))
		require.Equal(t, want, b.run(c.later))
		require.Zero(t, b.rdb.Exists(t.Context(), b.keys[0], b.keys[2]).Val())
		c, _ = b.request(k.ReleaseAll, multiArgs{"c:a", [3]int{0, 0, 0}, time.Minute}, "")
		require.Equal(t, "nnn", b.run(c.first))
		require.Equal(t, dump, b.rdb.Dump(t.Context(), b.keys[1]).Val())
	}
}

// A user without rights to one channel frees all locks all the same.
func TestMultiReleaseUnheard(t *testing.T) {
	b := newMultiBench(t)
	k := plain{}
	c, _ := b.request(k.AcquireAll, multiArgs{"c:a", [3]int{1, 2, 1}, time.Minute}, "")
	require.Equal(t, "2:7", b.run(c.first))
	c, _ = b.request(k.AcquireAll, multiArgs{"c:a", [3]int{1, 1, 1}, time.Minute}, "")
	require.Equal(t, int64(1), b.run(c.first))
	require.NoError(t, b.rdb.Do(t.Context(), "ACL", "SETUSER", t.Name(), "on", ">pw", "allkeys", "allcommands", "resetchannels").Err())
	mute := server.Client(t, func(o *redis.Options) { o.Username, o.Password = t.Name(), "pw" })
	c, _ = b.request(k.ReleaseAll, multiArgs{"c:a", [3]int{0, 0, 0}, time.Minute}, "")
	r := script.NewRunner(mute, nil, nil).Do(t.Context(), time.Now(), time.Now(), c.first)
	require.NoError(t, r.Err)
	require.Equal(t, "uuu", r.Val)
	require.Equal(t, "map[] 0s map[] 0s map[] 0s ", b.state())
}

// See TestScriptSources.
func TestMultiScriptSources(t *testing.T) {
	for _, s := range []*script.Script{multiAcquireScript, multiReleaseScript} {
		require.NotRegexp(t, `redis\.p?call\(\s*[^'\s]`, s.Source(), s.Name())
	}
}
