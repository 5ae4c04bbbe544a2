package rlock

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/script"
)

// sec is a second of these tests, in which what is rounded to 10 of them may take
// as long as 5 on a slow machine.
const sec = 10 * time.Second

// fairBench is a bench with a queue.
type fairBench struct {
	*bench
	queue, timeout, alive string
}

func newFairBench(t *testing.T) *fairBench {
	b := &fairBench{bench: newBench(t)}
	more := fair{}.Keys(b.key)
	b.queue, b.timeout, b.alive = more[0].(string), more[1].(string), more[2].(string)
	require.NoError(t, b.rdb.Del(t.Context(), b.queue, b.timeout, b.alive).Err())
	return b
}

func (b *fairBench) request(make func(hold.Args) script.Call, args hold.Args) copies {
	args.More = fair{}.Keys(b.key)
	return b.bench.request(make, args)
}

// ask runs a request of which one copy is sent.
func (b *fairBench) ask(make func(hold.Args) script.Call, args hold.Args) int64 {
	b.t.Helper()
	return b.run(b.request(make, args).first)
}

// now is the server's clock.
func (b *fairBench) now() time.Time {
	b.t.Helper()
	now, err := b.rdb.Time(b.t.Context()).Result()
	require.NoError(b.t, err)
	return now
}

// state is what a copy might change: holder, time to live, and the queue with
// the times for which places are kept, in seconds, rounded to 10. It has to be
// the same in list, sorted set and, but for Redisson's waiters, private set.
func (b *fairBench) state() string {
	b.t.Helper()
	ctx := context.Background()
	now := b.now()
	var line []string
	owners := b.rdb.LRange(ctx, b.queue, 0, -1).Val()
	kept := b.rdb.ZRangeWithScores(ctx, b.timeout, 0, -1).Val()
	require.Len(b.t, kept, len(owners))
	for i, z := range kept {
		require.Equal(b.t, owners[i], z.Member)
		d := time.UnixMilli(int64(z.Score)).Sub(now)
		line = append(line, fmt.Sprintf("%s+%d", z.Member, d.Round(10*sec)/sec))
	}
	ours := slices.DeleteFunc(slices.Clone(owners), func(o string) bool { return strings.HasPrefix(o, "java") })
	live := b.rdb.ZRange(ctx, b.alive, 0, -1).Val()
	require.Equal(b.t, slices.Sorted(slices.Values(ours)), slices.Sorted(slices.Values(live)))
	if len(ours) > 0 {
		last := time.UnixMilli(int64(kept[len(kept)-1].Score))
		require.GreaterOrEqual(b.t, b.rdb.PTTL(ctx, b.alive).Val(), last.Sub(now), "the living are known as long as their places")
	}
	holder := b.rdb.HGetAll(ctx, b.key).Val()
	ttl := b.rdb.PTTL(ctx, b.key).Val().Round(10*sec) / sec
	return strings.TrimSuffix(fmt.Sprintf("%v %ds %s", holder, ttl, strings.Join(line, " ")), " ")
}

// waiting are the arguments of an acquire that queues.
func waiting(owner string, lease, wait time.Duration) hold.Args {
	return hold.Args{Field: owner, Count: 1, Lease: lease, Place: hold.Place{Wait: wait, Beat: 60 * sec}}
}

// fairLife is what the owners a, b, c, d do with one name.
func fairLife() []step {
	k := fair{5 * time.Minute}
	const s10, s20, s30, s90 = 10 * sec, 20 * sec, 30 * sec, 90 * sec
	const m5 = 300 * sec
	hold1 := func(owner string, lease time.Duration) hold.Args { return waiting(owner, lease, m5) }
	more := func(owner string, n int, lease time.Duration) hold.Args {
		return hold.Args{Field: owner, Count: n, Lease: lease}
	}
	place := func(owner string, wait time.Duration) hold.Args {
		return hold.Args{Field: owner, Place: hold.Place{Wait: wait}}
	}
	return []step{
		{"a enters", k.Acquire, hold1("a", s30), 1, "map[a:1] 30s"},
		{"b waits", k.Acquire, hold1("b", s30), -1, "map[a:1] 30s b+330"},
		{"c waits", k.Acquire, waiting("c", s10, s20), -1, "map[a:1] 30s b+330 c+350"},
		{"d waits", k.Acquire, waiting("d", s10, s10), -1, "map[a:1] 30s b+330 c+350 d+360"},
		{"e comes by", k.Acquire, more("e", 1, s90), -1, "map[a:1] 30s b+330 c+350 d+360"},
		{"e gives up what it hasn't", k.Leave, place("e", m5), 0, "map[a:1] 30s b+330 c+350 d+360"},
		{"c gives up", k.Leave, place("c", s20), 1, "map[a:1] 30s b+330 d+340"},
		{"c waits again", k.Acquire, waiting("c", s10, s20), -1, "map[a:1] 30s b+330 d+340 c+360"},
		{"a enters again", k.Acquire, more("a", 2, s10), 2, "map[a:2] 30s b+330 d+340 c+360"},
		{"b gives back what it hasn't", k.Release, more("b", 0, s90), 0, "map[a:2] 30s b+330 d+340 c+360"},
		{"a gives one back", k.Release, more("a", 1, s30), 1, "map[a:1] 30s b+330 d+340 c+360"},
		{"a gives the last back", k.Release, more("a", 0, s30), 1, "map[] 0s b+330 d+340 c+360"},
		{"c is too early", k.Acquire, waiting("c", s10, s20), -1, "map[] 0s b+330 d+340 c+360"},
		{"a waits", k.Acquire, hold1("a", s30), -1, "map[] 0s b+330 d+340 c+360 a+660"},
		{"e comes by again", k.Acquire, more("e", 1, s90), -1, "map[] 0s b+330 d+340 c+360 a+660"},
		{"b gets it", k.Acquire, hold1("b", s30), 1, "map[b:1] 30s d+40 c+60 a+360"},
		{"b passes it on", k.Transfer, hold.Args{Field: "b", To: "handle", Lease: s30}, 1, "map[handle:1] 30s d+40 c+60 a+360"},
		{"c takes it up", k.Transfer, hold.Args{Field: "handle", To: "c", Lease: s30}, 1, "map[c:1] 30s d+40 c+60 a+360"},
		{"c enters, and needs no place", k.Acquire, hold.Args{Field: "c", Count: 2, Lease: s30, Place: hold.Place{Wait: s20, Beat: s30}}, 2, "map[c:2] 30s d+40 a+340"},
		{"c extends it", k.Extend, more("c", 0, s90), 1, "map[c:2] 90s d+40 a+340"},
		{"c is forced out", k.Force, hold.Args{}, 1, "map[] 0s d+40 a+340"},
		{"there is nobody to force out", k.Force, hold.Args{}, 0, "map[] 0s d+40 a+340"},
		{"d gives up, though it is next", k.Leave, place("d", s10), 1, "map[] 0s a+330"},
		{"a gets it", k.Acquire, hold1("a", s90), 1, "map[a:1] 90s"},
		{"a leaves", k.Release, more("a", 0, s30), 1, "map[] 0s"},
		{"b enters", k.Acquire, hold1("b", s30), 1, "map[b:1] 30s"},
		{"b has the last word", k.Acquire, more("b", 2, s30), 2, "map[b:2] 30s"},
	}
}

// Whether the first copy of a request ran before the one that is answered, runs
// after every later step, or never: the state is the same.
func TestFairScriptsResentAndLate(t *testing.T) {
	for _, firstRan := range []bool{false, true} {
		t.Run(fmt.Sprintf("firstCopyRan=%v", firstRan), func(t *testing.T) {
			b := newFairBench(t)
			var sent []copies
			for _, s := range fairLife() {
				c := b.request(s.make, s.args)
				if strings.Contains(s.name, "force") {
					c.first, c.later = c.first.AlwaysMark(), c.later.AlwaysMark()
				}
				if firstRan {
					b.run(c.first)
				}
				reply := b.run(c.later)
				switch {
				case s.reply < 0:
					require.Greater(t, reply, int64(10), s.name)
				case reply == 3: // done, and nobody waits
					require.Equal(t, int64(1), s.reply, s.name)
				case !(firstRan && (reply == 0 || reply == 2)): // the first copy may have done the work
					require.Equal(t, s.reply, reply, s.name)
				}
				require.Equal(t, s.state, b.state(), s.name)
				sent = append(sent, c)
				for j, old := range sent {
					b.run(old.first)
					require.Equal(t, s.state, b.state(), "after %q a late copy of %q changed it", s.name, fairLife()[j].name)
					b.run(old.later)
					require.Equal(t, s.state, b.state(), "after %q a second copy of %q changed it", s.name, fairLife()[j].name)
				}
			}
		})
	}
}

// An acquisition that nobody waits for leaves neither hold nor place, and its
// late copies do nothing, whatever they had done before.
func TestFairUndoneAcquisitionStaysUndone(t *testing.T) {
	for _, ran := range []bool{false, true} {
		for _, taken := range []bool{false, true} {
			t.Run(fmt.Sprintf("ran=%v/taken=%v", ran, taken), func(t *testing.T) {
				b := newFairBench(t)
				k := fair{}
				want := "map[] 0s"
				if taken {
					b.ask(k.Acquire, waiting("other", 60*sec, 60*sec))
					want = "map[other:1] 60s"
				}
				marker := fmt.Sprintf("{%s}:voided-%v-%v", b.key, ran, taken)
				args := waiting("a", 60*sec, 60*sec)
				args.Keys = script.Keys{Key: b.key, Marker: marker, More: fair{}.Keys(b.key)}
				args.Channel = "channel"
				late := copies{k.Acquire(args), k.Acquire(args).Resent()}
				if ran {
					b.run(late.first)
				}
				undo := b.request(k.Release, hold.Args{Keys: script.Keys{Voided: marker}, Field: "a"})
				leave := b.request(k.Leave, hold.Args{Field: "a", Place: hold.Place{Wait: 60 * sec}})
				b.run(undo.first)
				b.run(leave.first)
				for range 2 {
					require.Equal(t, want, b.state())
					b.run(late.first)
					require.Equal(t, want, b.state(), "the late copy acquired for nobody")
					b.run(late.later)
					require.Equal(t, want, b.state())
					b.run(undo.later)
					b.run(leave.later)
				}
			})
		}
	}
}

// spot is one waiter as a test puts it in the queue: times count from now, in
// seconds.
type spot struct {
	owner     string
	kept      float64
	life      float64
	unlisted  bool // not in the list
	placeless bool // not in the sorted set
	java      bool // not in the private set
}

func (b *fairBench) put(spots ...spot) {
	b.t.Helper()
	ctx := b.t.Context()
	now := float64(b.now().UnixMilli())
	pipe := b.rdb.Pipeline()
	for _, s := range spots {
		if !s.unlisted {
			pipe.RPush(ctx, b.queue, s.owner)
		}
		if !s.placeless {
			pipe.ZAdd(ctx, b.timeout, redis.Z{Member: s.owner, Score: now + sec.Seconds()*1000*s.kept})
		}
		if !s.java {
			pipe.ZAdd(ctx, b.alive, redis.Z{Member: s.owner, Score: now + sec.Seconds()*1000*s.life})
		}
	}
	pipe.PExpire(ctx, b.alive, 10000*time.Hour)
	_, err := pipe.Exec(ctx)
	require.NoError(b.t, err)
}

// Who is passed over, and in which state the queue is afterwards. The caller is
// "me", who waits for 100 s and beats every 60.
func TestFairPassesOverTheDead(t *testing.T) {
	const granted = 1
	mine := spot{owner: "me", kept: 900, life: 50}
	for name, c := range map[string]struct {
		queue []spot
		reply int64 // -1: refused
		state string
	}{
		"dead":                     {[]spot{{owner: "a", kept: 300, life: -1}, {owner: "b", kept: 600, life: -9}, mine}, granted, ""},
		"dead, and nobody of mine": {[]spot{{owner: "a", kept: 300, life: -1}, {owner: "b", kept: 600, life: -1}}, granted, ""},
		"dead between the living": {
			[]spot{{owner: "a", kept: 300, life: -1}, {owner: "b", kept: 600, life: 9}, {owner: "c", kept: 700, life: -1}, mine},
			-1, "b+300 me+500",
		},
		"alive":                               {[]spot{{owner: "a", kept: 300, life: 1}, mine}, -1, "a+300 me+900"},
		"alive, though its place is not kept": {[]spot{{owner: "a", kept: -5, life: 9}, mine}, -1, "a+-10 me+900"},
		"of Redisson, kept":                   {[]spot{{owner: "java:1", kept: 300, java: true}, mine}, -1, "java:1+300 me+900"},
		"of Redisson, no longer kept":         {[]spot{{owner: "java:1", kept: -1, java: true}, mine}, granted, ""},
		"of Redisson, behind the dead": {
			[]spot{{owner: "a", kept: 300, life: -1}, {owner: "java:1", kept: 600, java: true}, mine}, -1, "java:1+300 me+600",
		},
		"of Redisson, no longer kept, but not first": {
			[]spot{{owner: "a", kept: -2, life: 9}, {owner: "java:1", kept: -1, java: true}, mine}, -1, "a+0 java:1+0 me+900",
		},
		"list without a place": {[]spot{{owner: "x", placeless: true, java: true}, mine}, granted, ""},
		"list without my place": {
			[]spot{{owner: "a", kept: 300, life: 9}, {owner: "me", placeless: true, java: true}}, -1, "a+300 me+400",
		},
		"list with a living owner's place missing": {[]spot{{owner: "a", placeless: true, life: 9}, mine}, -1, "a+60 me+900"},
		"place without list":                       {[]spot{{owner: "a", kept: 300, life: 9, unlisted: true}, mine}, -1, "a+300 me+900"},
		"place without list, of Redisson":          {[]spot{{owner: "java:1", kept: 300, unlisted: true, java: true}, mine}, -1, "java:1+300 me+900"},
		"place without list, dead":                 {[]spot{{owner: "a", kept: 300, life: -9, unlisted: true}, mine}, granted, ""},
		"place without list, mine": {
			[]spot{{owner: "a", kept: 300, life: 9}, {owner: "me", kept: 600, life: 50, unlisted: true}}, -1, "a+300 me+600",
		},
		"all places without list": {
			[]spot{{owner: "a", kept: 300, life: 9, unlisted: true}, {owner: "me", kept: 600, life: 9, unlisted: true}, {owner: "c", kept: 700, life: 9, unlisted: true}},
			-1, "a+300 me+600 c+700",
		},
		"twice in the list":           {[]spot{mine, {owner: "me", placeless: true, java: true}}, granted, ""},
		"twice before me":             {[]spot{{owner: "a", kept: 300, life: 9}, {owner: "a", placeless: true, java: true}, mine}, -1, "a+300 me+900"},
		"whose life was lost":         {[]spot{{owner: "a", kept: 300, java: true}, mine}, -1, "a+300 me+900"},
		"whose lives were lost":       {[]spot{{owner: "a", kept: 300, java: true}, {owner: "b", kept: 600, java: true}, mine}, -1, "a+300 b+600 me+900"},
		"whose life was lost, not me": {[]spot{{owner: "a", kept: 300, java: true}, {owner: "java:1", kept: 600, java: true}}, -1, "a+300 java:1+600 me+700"},
		"I was cut off myself":        {[]spot{{owner: "a", kept: 300, life: -1}, {owner: "me", kept: 600, life: 10}}, -1, "a+300 me+600"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFairBench(t)
			b.put(c.queue...)
			reply := b.ask(fair{}.Acquire, waiting("me", 60*sec, 100*sec))
			want := "map[me:1] 60s"
			if c.reply < 0 {
				require.Greater(t, reply, int64(10))
				require.LessOrEqual(t, reply, int64(10+300), "it looks again soon")
				want = "map[] 0s " + c.state
			} else {
				require.Equal(t, c.reply, reply)
			}
			require.Equal(t, want, b.state())
		})
	}
}

// Whoever died in the queue, and whose life was lost with the private key, is
// missed a beat after somebody saw that.
func TestFairPassesOverTheDeadWhoseLivesWereLost(t *testing.T) {
	b := newFairBench(t)
	b.put(spot{owner: "a", kept: 300, life: 9}, spot{owner: "b", kept: 600, life: 9})
	require.NoError(t, b.rdb.Del(t.Context(), b.alive).Err()) // evicted, say
	args := waiting("me", 60*sec, 100*sec)
	args.Place.Beat = 300 * time.Millisecond
	require.Greater(t, b.ask(fair{}.Acquire, args), int64(10))
	require.Equal(t, []string{"a", "b", "me"}, b.rdb.LRange(t.Context(), b.queue, 0, -1).Val())
	redistest.Eventually(t, 10*time.Second, func() bool { return b.ask(fair{}.Acquire, args) == 1 }, "the dead are passed over")
}

// More waiters than Lua passes on at once, all dead, go in one call.
func TestFairPassesOverThousands(t *testing.T) {
	b := newFairBench(t)
	var spots []spot
	for i := range 3000 {
		spots = append(spots, spot{owner: fmt.Sprint("dead", i), kept: float64(300 * (i + 1)), life: -1})
	}
	for i := range 1200 {
		spots = append(spots, spot{owner: fmt.Sprint("live", i), kept: float64(300*3000 + 10*(i+1)), life: 500})
	}
	b.put(spots...)
	require.Equal(t, int64(1), b.ask(fair{}.Acquire, waiting("live0", 60*sec, 10*sec)))
	state := b.state()
	require.True(t, strings.HasPrefix(state, "map[live0:1] 60s live1+10 live2+20 "), "%.200s", state)
	require.True(t, strings.HasSuffix(state, " live1199+11990"), "%.200s", state)
}

// Redisson's waiters don't renew the life of the queue: it mustn't end under them.
func TestFairQueueOutlivesJavaWaiters(t *testing.T) {
	b := newFairBench(t)
	b.put(spot{owner: "java:1", kept: 300, java: true})
	require.Greater(t, b.ask(fair{}.Acquire, waiting("me", 60*sec, 100*sec)), int64(10))
	for _, key := range []string{b.queue, b.timeout} {
		require.Greater(t, b.rdb.PTTL(t.Context(), key).Val(), 9*365*24*time.Hour, key)
	}
}

// A queue whose waiters all died, and which nobody comes by any more, is not there
// for ever; one with waiters is, whatever was mended in it.
func TestFairQueueOfTheDeadEnds(t *testing.T) {
	b := newFairBench(t)
	kept := func() {
		t.Helper()
		last := b.rdb.ZRangeWithScores(t.Context(), b.timeout, -1, -1).Val()
		require.Len(t, last, 1)
		end := time.UnixMilli(int64(last[0].Score)).Sub(b.now()) + 24*time.Hour
		for _, key := range []string{b.queue, b.timeout} {
			require.InDelta(t, end.Seconds(), b.rdb.PTTL(t.Context(), key).Val().Seconds(), sec.Seconds()/2, key)
		}
	}
	require.EqualValues(t, 1, b.ask(fair{}.Acquire, waiting("holder", 600*sec, 0)))
	for _, owner := range []string{"a", "b"} {
		require.Greater(t, b.ask(fair{}.Acquire, waiting(owner, 60*sec, 100*sec)), int64(10))
		kept()
	}
	// List and sorted set disagree: they are written anew.
	require.NoError(t, b.rdb.RPush(t.Context(), b.queue, "b").Err())
	require.Greater(t, b.ask(fair{}.Acquire, waiting("a", 60*sec, 100*sec)), int64(10))
	require.Equal(t, []string{"a", "b"}, b.rdb.LRange(t.Context(), b.queue, 0, -1).Val())
	kept()
}

// The last unlock, a force and a leave tell the first who counts; if there is
// none, the first: it may only be late.
func TestFairTellsTheFirstAlive(t *testing.T) {
	dead, java := spot{owner: "dead", kept: 300, life: -1}, spot{owner: "java:1", kept: 600, java: true}
	past := spot{owner: "past", kept: -1, java: true}
	mine, other := spot{owner: "mine", kept: 900, life: 9}, spot{owner: "other", kept: 1000, life: 9}
	for name, c := range map[string]struct {
		queue []spot
		told  string
	}{
		"nobody":        {nil, ""},
		"first":         {[]spot{mine, other}, "mine"},
		"dead":          {[]spot{dead, mine, other}, "mine"},
		"dead and past": {[]spot{past, dead, java, mine}, "java:1"},
		"all dead":      {[]spot{dead, past}, "dead"},
	} {
		for how, end := range map[string]func(b *fairBench){
			"release": func(b *fairBench) { b.ask(fair{}.Release, hold.Args{Field: "a"}) },
			"force":   func(b *fairBench) { b.run(b.request(fair{}.Force, hold.Args{}).first.AlwaysMark()) },
			"leave": func(b *fairBench) {
				require.NoError(b.t, b.rdb.Del(b.t.Context(), b.key).Err())
				require.NoError(b.t, b.rdb.LPush(b.t.Context(), b.queue, "leaver").Err())
				require.NoError(b.t, b.rdb.ZAdd(b.t.Context(), b.timeout, redis.Z{Member: "leaver"}).Err())
				b.ask(fair{}.Leave, hold.Args{Field: "leaver", Place: hold.Place{Wait: sec}})
			},
		} {
			t.Run(how+"/"+name, func(t *testing.T) {
				b := newFairBench(t)
				require.Equal(t, int64(1), b.ask(fair{}.Acquire, waiting("a", 60*sec, 60*sec)))
				b.put(c.queue...)
				ps := b.rdb.PSubscribe(t.Context(), "channel*")
				defer func() { require.NoError(t, ps.Close()) }()
				_, err := ps.Receive(t.Context())
				require.NoError(t, err)
				end(b)
				require.NoError(t, b.rdb.Publish(t.Context(), "channel-end", "").Err())
				var told strings.Builder
				for m := range ps.Channel() {
					if m.Channel == "channel-end" {
						break
					}
					require.Equal(t, "0", m.Payload)
					told.WriteString(strings.TrimPrefix(m.Channel, "channel:"))
				}
				require.Equal(t, c.told, told.String())
			})
		}
	}
}

// A place that nears its end is moved, and those behind it by as much: Redisson
// would drop it. It is not moved before, and never back.
func TestFairRefreshesPlaces(t *testing.T) {
	b := newFairBench(t)
	b.ask(fair{}.Acquire, waiting("a", 30*sec, 60*sec))
	b.put(spot{owner: "first", kept: 40, life: 50}, spot{owner: "me", kept: 50, life: 50}, spot{owner: "java:1", kept: 80, java: true})
	reply := b.ask(fair{}.Acquire, waiting("me", 60*sec, 100*sec))
	require.Greater(t, reply, int64(10))
	require.Equal(t, "map[a:1] 30s first+40 me+130 java:1+160", b.state())
	for range 3 {
		b.ask(fair{}.Acquire, waiting("me", 60*sec, 100*sec))
		require.Equal(t, "map[a:1] 30s first+40 me+130 java:1+160", b.state())
	}
}

// What memory that was too small evicted, and a waiter or somebody who came by made
// anew, ends as the rest of the queue does.
func TestFairQueueMadeAnewEnds(t *testing.T) {
	b := newFairBench(t)
	for _, evicted := range [][]string{{b.queue}, {b.timeout}, {b.alive}, {b.timeout, b.alive}} {
		for who, args := range map[string]hold.Args{
			"the first waiter": waiting("a", 60*sec, 100*sec), "the last": waiting("b", 60*sec, 100*sec),
			"who comes by": {Field: "c", Count: 1, Lease: sec}, "who waits, too": waiting("c", 60*sec, 100*sec),
		} {
			require.NoError(t, b.rdb.Del(t.Context(), b.key, b.queue, b.timeout, b.alive).Err())
			require.EqualValues(t, 1, b.ask(fair{}.Acquire, waiting("holder", 600*sec, 0)))
			for _, owner := range []string{"a", "b"} {
				require.Greater(t, b.ask(fair{}.Acquire, waiting(owner, 60*sec, 100*sec)), int64(10))
			}
			require.NoError(t, b.rdb.Del(t.Context(), evicted...).Err())
			require.Greater(t, b.ask(fair{}.Acquire, args), int64(10))
			for _, key := range []string{b.queue, b.timeout, b.alive} {
				require.NotEqual(t, time.Duration(-1), b.rdb.PTTL(t.Context(), key).Val(), "%s without %s: %s", who, evicted, key)
			}
		}
	}
}
