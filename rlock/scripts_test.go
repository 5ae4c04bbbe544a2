package rlock

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/hold"
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
	args.Channel = "channel"
	return copies{make(args), make(args).Resent()}
}

func (b *bench) run(c script.Call) int64 {
	b.t.Helper()
	r := script.NewRunner(b.rdb, nil, nil).Do(b.t.Context(), time.Now(), time.Now(), c)
	require.NoError(b.t, r.Err)
	return r.Int()
}

// state is all that a copy might change: the owners, and the time to live in
// whole seconds (leases in these tests differ by more).
func (b *bench) state() string {
	b.t.Helper()
	ctx := context.Background()
	ttl := b.rdb.PTTL(ctx, b.key).Val()
	return fmt.Sprint(b.rdb.HGetAll(ctx, b.key).Val(), ttl.Round(10*time.Second))
}

type step struct {
	name  string
	make  func(hold.Args) script.Call
	args  hold.Args
	reply int64 // of the copy that is answered
	state string
}

// anyReply is not compared.
const anyReply = math.MinInt64

// life is one owner's dealings with one name, with another owner in between.
// Leases differ, so that a late copy would show.
func life() []step {
	k := plain{}
	args := func(owner string, count int, lease time.Duration) hold.Args {
		return hold.Args{Field: owner, Count: count, Lease: lease}
	}
	to := func(from, to string, lease time.Duration) hold.Args {
		return hold.Args{Field: from, To: to, Lease: lease}
	}
	const a, b = "client:a", "client:b"
	const s30, s60, s90, s120 = 30 * time.Second, time.Minute, 90 * time.Second, 2 * time.Minute
	return []step{
		{"a enters", k.Acquire, args(a, 1, s30), 1, "map[client:a:1] 30s"},
		{"a enters again, shorter", k.Acquire, args(a, 2, 10*time.Second), 2, "map[client:a:2] 30s"},
		{"a enters again, longer", k.Acquire, args(a, 3, s60), 2, "map[client:a:3] 1m0s"},
		{"b extends what it hasn't", k.Extend, args(b, 0, s120), 0, "map[client:a:3] 1m0s"},
		{"b is refused", k.Acquire, args(b, 1, s120), anyReply, "map[client:a:3] 1m0s"},
		{"b gives back what it hasn't", k.Release, args(b, 0, s120), 0, "map[client:a:3] 1m0s"},
		{"a gives one back", k.Release, args(a, 2, s30), 1, "map[client:a:2] 1m0s"},
		{"a gives another back, longer", k.Release, args(a, 1, s90), 1, "map[client:a:1] 1m30s"},
		{"a gives the last back", k.Release, args(a, 0, s120), 1, "map[] 0s"},
		{"b enters", k.Acquire, args(b, 1, s30), 1, "map[client:b:1] 30s"},
		{"b is forced out", k.Force, hold.Args{}, 1, "map[] 0s"},
		{"there is nobody to force out", k.Force, hold.Args{}, 0, "map[] 0s"},
		{"a re-enters what is gone", k.Acquire, args(a, 5, s30), 1, "map[client:a:1] 30s"},
		{"a passes it on", k.Transfer, to(a, "handle", s60), 1, "map[handle:1] 1m0s"},
		{"b takes it up", k.Transfer, to("handle", b, s30), 1, "map[client:b:1] 1m0s"},
		{"b extends it", k.Extend, args(b, 0, s120), 1, "map[client:b:1] 2m0s"},
		{"a can't take it up too", k.Transfer, to("handle", a, s120), 0, "map[client:b:1] 2m0s"},
		{"b leaves", k.Release, args(b, 0, s30), 1, "map[] 0s"},
		{"a enters for good", k.Acquire, args(a, 1, s30), 1, "map[client:a:1] 30s"},
		{"a leaves", k.Release, args(a, 0, s30), 1, "map[] 0s"},
		{"b has the last word", k.Acquire, args(b, 1, s30), 1, "map[client:b:1] 30s"},
	}
}

// A request whose first reply was lost is sent again. Whether the first copy
// ran before, runs after every later step, or never, the state is the same.
func TestScriptsResentAndLate(t *testing.T) {
	resentAndLate(t, func(string) []step { return life() }, (*bench).state)
}

func resentAndLate(t *testing.T, of func(key string) []step, state func(*bench) string) {
	for _, firstRan := range []bool{false, true} {
		t.Run(fmt.Sprintf("firstCopyRan=%v", firstRan), func(t *testing.T) {
			b := newBench(t)
			life := of(b.key)
			var sent []copies
			for _, s := range life {
				c := b.request(s.make, s.args)
				if s.name == "b is forced out" || s.name == "there is nobody to force out" {
					c.first = c.first.AlwaysMark()
					c.later = c.later.AlwaysMark()
				}
				if firstRan {
					b.run(c.first)
				}
				reply := b.run(c.later)
				if s.reply != anyReply && !(firstRan && (reply == 0 || reply == 2 || reply == s.reply-1)) {
					// A first copy may have done the work: its sender knows. (A fenced
					// answer is less by 1 where the owner was in.)
					require.Equal(t, s.reply, reply, s.name)
				}
				require.Equal(t, s.state, state(b), s.name)
				sent = append(sent, c)
				for j, old := range sent {
					b.run(old.first)
					require.Equal(t, s.state, state(b), "after %q a late copy of %q changed it", s.name, life[j].name)
					b.run(old.later)
					require.Equal(t, s.state, state(b), "after %q a second copy of %q changed it", s.name, life[j].name)
				}
			}
		})
	}
}

// An acquisition that nobody waits for is undone, and its late copies do
// nothing, whether it had run before or not.
func TestUndoneAcquisitionStaysUndone(t *testing.T) {
	for _, ran := range []bool{false, true} {
		for _, before := range []int{0, 1} {
			t.Run(fmt.Sprintf("ran=%v/holdsBefore=%d", ran, before), func(t *testing.T) {
				b := newBench(t)
				k := plain{}
				want := "map[] 0s"
				if before == 1 {
					b.run(b.request(k.Acquire, hold.Args{Field: "c:a", Count: 1, Lease: 30 * time.Second}).first)
					want = "map[c:a:1] 30s"
				}
				marker := fmt.Sprintf("{%s}:voided-%v-%d", b.key, ran, before)
				late := k.Acquire(hold.Args{
					Keys:  script.Keys{Key: b.key, Marker: marker},
					Field: "c:a", Count: before + 1, Lease: 30 * time.Second,
				})
				if ran {
					b.run(late)
				}
				undo := b.request(k.Release, hold.Args{
					Keys:  script.Keys{Voided: marker},
					Field: "c:a", Count: before, Lease: 30 * time.Second,
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

// A renewal has no marker: whatever it finds, it can only give the owner who is
// in there now a lease more.
func TestRenewTouchesOnlyTheOwners(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	ours, short, foreign, list, gone := b.key+"1", b.key+"2", b.key+"3", b.key+"4", b.key+"5"
	for _, k := range []string{ours, short, foreign, list, gone} {
		require.NoError(t, b.rdb.Del(ctx, k).Err())
	}
	hset := func(key, owner string, ttl time.Duration) {
		require.NoError(t, b.rdb.HSet(ctx, key, owner, 2).Err())
		require.NoError(t, b.rdb.PExpire(ctx, key, ttl).Err())
	}
	hset(ours, "c:a", time.Second)
	hset(short, "c:a", time.Hour)
	hset(foreign, "c:b", 10*time.Second)
	require.NoError(t, b.rdb.RPush(ctx, list, "x").Err())

	for range 2 {
		call := renewal.Call([]string{ours, short, foreign, list, gone}, []string{"c:a", "c:a", "c:a", "c:a", "c:a"}, 30*time.Second)
		r := script.NewRunner(b.rdb, nil, nil).Do(ctx, time.Now(), time.Now(), call)
		require.NoError(t, r.Err)
		require.Equal(t, []any{int64(1), int64(1), int64(0), int64(0), int64(0)}, r.Val)
		require.Greater(t, b.rdb.PTTL(ctx, ours).Val(), 20*time.Second)
		require.Greater(t, b.rdb.PTTL(ctx, short).Val(), 50*time.Minute, "a renewal never shortens")
		require.LessOrEqual(t, b.rdb.PTTL(ctx, foreign).Val(), 10*time.Second)
		require.Equal(t, time.Duration(-1), b.rdb.PTTL(ctx, list).Val())
		require.Zero(t, b.rdb.Exists(ctx, gone).Val())
	}
}

// What a lock leaves in Redis, call by call: the record of a running Redisson
// 4.7.0 and 3.52.0, chapters RLock and RLock name with braces.
func TestWireLayout(t *testing.T) {
	for name, channel := range map[string]string{
		"wire-n":    "redisson_lock__channel:{wire-n}",
		"wire{y}-z": "redisson_lock__channel:wire{y}-z",
	} {
		require.Equal(t, channel, plain{}.Channel(name))
		require.Equal(t, strings.Replace(channel, "lock__channel", "lock_token", 1), fenced{}.TokenKey(name))
		require.Empty(t, spin{}.Channel(name))
	}
}

// Names of commands are literals, so that a service which looks for them before
// it runs a script (redisson #5596) finds them; and all that a script touches
// comes in KEYS and ARGV.
func TestScriptSources(t *testing.T) {
	for _, s := range []*script.Script{acquireScript, releaseScript, extendScript, forceScript, transferScript, renewScript, acquireFencedScript, raiseTokenScript, deleteTokenScript, acquireFairScript, releaseFairScript, forceFairScript, leaveScript} {
		require.NotEmpty(t, s.Name())
		require.NotRegexp(t, `redis\.p?call\(\s*[^'\s]`, s.Source(), s.Name())
	}
}

// A hash with further fields is another primitive's: a release leaves it alone,
// although the owner's field is there.
func TestReleaseOfAForeignHash(t *testing.T) {
	b := newBench(t)
	require.NoError(t, b.rdb.HSet(t.Context(), b.key, "c:a", 1, "mode", "read").Err())
	r := b.request(plain{}.Release, hold.Args{Field: "c:a", Lease: 30 * time.Second})
	for what, c := range map[string]script.Call{"first": r.first, "later": r.later} {
		require.Zero(t, b.run(c), what)
		require.EqualValues(t, 2, b.rdb.HLen(t.Context(), b.key).Val(), what)
	}
}
