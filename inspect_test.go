package holdfast_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// Owners as Redisson writes them.
const (
	javaClient = "2f1e7a60-5a8f-4c1d-9a53-0d3d2c2b1a00"
	java1      = javaClient + ":1"
	java62     = javaClient + ":62"
	java63     = javaClient + ":63"
)

// do runs commands as they are written, split at spaces.
func do(t testing.TB, rdb redis.Cmdable, commands ...string) {
	t.Helper()
	for _, c := range commands {
		var args []any
		for word := range strings.FieldsSeq(c) {
			args = append(args, word)
		}
		cmd := redis.NewCmd(t.Context(), args...)
		require.NoError(t, rdb.(interface {
			Process(context.Context, redis.Cmder) error
		}).Process(t.Context(), cmd), c)
	}
}

// What a running Redisson 4.7.0 left in Redis, chapter by chapter of its record,
// and what is told of it.
func TestInspectByTheRecord(t *testing.T) {
	rdb := server.Client(t)
	c := connect(t)
	now, err := rdb.Time(t.Context()).Result()
	require.NoError(t, err)
	in := func(d time.Duration) string { return strconv.FormatInt(now.Add(d).UnixMilli(), 10) }
	id := func(b byte) string { return strings.Repeat(string(rune(b)), 16) }
	hex := func(b byte) string { return fmt.Sprintf("%x", id(b)) }
	grant := func(b byte, n byte) string { return "\x10" + id(b) + string([]byte{n, 0, 0, 0}) }
	for name, tc := range map[string]struct {
		keys  []string // @ is the name
		zset  map[string]float64
		zkey  string
		kind  holdfast.Kind
		says  string // String, behind the name
		check func(i holdfast.Info)
	}{
		"free": {kind: holdfast.KindFree, says: "free", check: func(i holdfast.Info) {
			require.Equal(t, "none", i.Type)
			require.Zero(t, i.TTL)
		}},
		"lock": {
			keys: []string{"hset @ " + java1 + " 2", "pexpire @ 30000"},
			kind: holdfast.KindLock, says: "lock, held by " + java1 + " (2 times), for 30s",
			check: func(i holdfast.Info) {
				require.Equal(t, []holdfast.Holder{{Owner: java1, Count: 2, TTL: i.TTL}}, i.Holders)
				require.InDelta(t, 30*time.Second, i.TTL, float64(10*time.Second))
			},
		},
		"lock without expiry": {
			keys: []string{"hset @ ghost 1"},
			kind: holdfast.KindLock, says: "lock, held by ghost, without expiry",
			check: func(i holdfast.Info) { require.Equal(t, time.Duration(-1), i.TTL) },
		},
		"fenced lock": {
			keys: []string{"hset @ " + java1 + " 1", "pexpire @ 30000", "set redisson_lock_token:{@} 7"},
			kind: holdfast.KindFencedLock, says: "fenced lock, held by " + java1 + ", token 7, for 30s",
			check: func(i holdfast.Info) { require.Equal(t, int64(7), i.Token) },
		},
		"fenced lock, free": {
			keys: []string{"set redisson_lock_token:{@} 7"},
			kind: holdfast.KindFencedLock, says: "fenced lock, free, token 7",
			check: func(i holdfast.Info) { require.False(t, i.Held()) },
		},
		"fair lock": {
			keys: []string{
				"hset @ " + java1 + " 1", "pexpire @ 30000",
				"rpush redisson_lock_queue:{@} " + java62 + " " + java63 + " go:1 go:2",
				"zadd redisson_lock_timeout:{@} " + in(5*time.Minute) + " " + java62 + " " + in(-time.Minute) + " " + java63 + " " + in(time.Hour) + " go:1",
				"zadd {@}:holdfast:alive " + in(time.Minute) + " go:1 " + in(-time.Second) + " go:2",
			},
			kind: holdfast.KindFairLock, says: "fair lock, held by " + java1 + ", 4 waiting, for 30s",
			check: func(i holdfast.Info) {
				require.Equal(t, 4, i.QueueLen)
				require.Equal(t, []holdfast.Waiter{
					{Owner: java62, Until: time.UnixMilli(now.Add(5 * time.Minute).UnixMilli()), Alive: true},
					{Owner: java63, Until: time.UnixMilli(now.Add(-time.Minute).UnixMilli()), Alive: false},
					{Owner: "go:1", Until: time.UnixMilli(now.Add(time.Hour).UnixMilli()), Alive: true},
					{Owner: "go:2", Alive: false},
				}, i.Queue)
			},
		},
		"fair lock, nobody in": {
			keys: []string{"rpush redisson_lock_queue:{@} " + java62, "zadd redisson_lock_timeout:{@} " + in(time.Hour) + " " + java62},
			kind: holdfast.KindFairLock, says: "fair lock, free, 1 waiting",
		},
		"readers": {
			keys: []string{
				"hset @ mode read " + java1 + " 2 " + java62 + " 1 " + java63 + " 1", "pexpire @ 30000",
				"set {@}:" + java1 + ":rwlock_timeout:1 1 px 30000", "set {@}:" + java1 + ":rwlock_timeout:2 1 px 90000",
				"set {@}:" + java62 + ":rwlock_timeout:1 1 px 12000",
				"zadd {@}:holdfast:writers " + in(time.Minute) + " go:1", "zadd {@}:holdfast:readers " + in(time.Minute) + " go:2",
			},
			kind: holdfast.KindRWLock, says: "read-write lock, 3 readers, 2 waiting, for 30s",
			check: func(i holdfast.Info) {
				require.Equal(t, "read", i.Mode)
				require.Equal(t, 3, i.HolderCount)
				require.Equal(t, holdfast.Holder{Owner: java1, Count: 2, Mode: "read", TTL: i.Holders[0].TTL}, i.Holders[0])
				require.Greater(t, i.Holders[0].TTL, 60*time.Second, "the longest of its holds counts")
				require.Less(t, i.Holders[1].TTL, 13*time.Second)
				require.Zero(t, i.Holders[2].TTL, "its time is over")
				require.Equal(t, "go:1", i.Writers[0].Owner)
				require.True(t, i.Writers[0].Alive)
				require.Equal(t, "go:2", i.Readers[0].Owner)
			},
		},
		"writer that reads": {
			keys: []string{"hset @ mode write " + java1 + " 1 " + java1 + ":write 2", "pexpire @ 60000", "set {@}:" + java1 + ":rwlock_timeout:1 1 px 30000"},
			kind: holdfast.KindRWLock, says: "read-write lock, written by " + java1 + " (2 times), who reads too, for 1m0s",
			check: func(i holdfast.Info) {
				require.Equal(t, []string{"write", "read"}, []string{i.Holders[0].Mode, i.Holders[1].Mode})
				require.Equal(t, java1, i.Holders[0].Owner)
				require.Equal(t, int64(2), i.Holders[0].Count)
			},
		},
		"semaphore, owing":    {keys: []string{"set @ -14"}, kind: holdfast.KindSemaphore, says: "semaphore, -14 free"},
		"semaphore or latch":  {keys: []string{"set @ 3"}, kind: holdfast.KindCounter, says: "counter, 3"},
		"latch that was open": {keys: []string{"set @ 2", "set {@}:holdfast:opened 1"}, kind: holdfast.KindLatch, says: "latch, 2"},
		"expirable semaphore": {
			keys: []string{"set @ 2"}, zkey: "{@}:timeout",
			zset: map[string]float64{id('a'): 922337203685477, id('b'): float64(now.Add(time.Minute).UnixMilli()), id('c'): float64(now.Add(-time.Minute).UnixMilli())},
			kind: holdfast.KindExpirable, says: "expirable semaphore, 3 free, 2 permits out",
			check: func(i holdfast.Info) {
				require.Equal(t, []holdfast.HeldPermit{{ID: hex('b'), Expires: time.UnixMilli(now.Add(time.Minute).UnixMilli())}, {ID: hex('a')}}, i.Permits)
				require.True(t, i.Held())
			},
		},
		"rate limiter": {
			keys: []string{"hset @ rate 5 interval 10000 keepAliveTime 0 type 0", "set {@}:value 1"}, zkey: "{@}:permits",
			zset: map[string]float64{grant('a', 2): float64(now.UnixMilli()), grant('b', 1): float64(now.Add(-time.Hour).UnixMilli())},
			kind: holdfast.KindRateLimiter, says: "rate limiter, 5 per 10s, 2 left",
			check: func(i holdfast.Info) {
				require.Equal(t, &holdfast.Rate{Permits: 5, Interval: 10 * time.Second, Available: 2}, i.Rate)
			},
		},
		"rate limiter, unused":     {keys: []string{"hset @ rate 5 interval 10000 keepAliveTime 0 type 0"}, kind: holdfast.KindRateLimiter, says: "rate limiter, 5 per 10s, 5 left"},
		"rate limiter, per client": {keys: []string{"hset @ rate 3 interval 10000 keepAliveTime 0 type 1"}, kind: holdfast.KindRateLimiter, says: "rate limiter, 3 per 10s and client"},

		"a text":        {keys: []string{"set @ hello"}, kind: holdfast.KindUnknown, says: "unknown, a Redis string"},
		"a long number": {keys: []string{"set @ 123456789012345678901234567890"}, kind: holdfast.KindUnknown, says: "unknown, a Redis string"},
		"a list":        {keys: []string{"rpush @ 1"}, kind: holdfast.KindUnknown, says: "unknown, a Redis list"},
		"a set":         {keys: []string{"sadd @ 1"}, kind: holdfast.KindUnknown, says: "unknown, a Redis set"},
		"a sorted set":  {keys: []string{"zadd @ 1 1"}, kind: holdfast.KindUnknown, says: "unknown, a Redis zset"},
		"a stream":      {keys: []string{"xadd @ * a 1"}, kind: holdfast.KindUnknown, says: "unknown, a Redis stream"},
		"a hash":        {keys: []string{"hset @ a 1 b 2"}, kind: holdfast.KindUnknown, says: "unknown, a Redis hash"},
		"a short hash":  {keys: []string{"hset @ name Ada"}, kind: holdfast.KindUnknown, says: "unknown, a Redis hash"},
		"helpers of another type": {
			keys: []string{
				"hset @ " + java1 + " 1", "rpush redisson_lock_token:{@} 1", "set redisson_lock_queue:{@} 1", "set redisson_lock_timeout:{@} 1",
				"set {@}:holdfast:alive 1", "set {@}:holdfast:writers 1", "set {@}:timeout 1", "rpush {@}:value 1", "set {@}:permits 1",
			},
			kind: holdfast.KindLock, says: "lock, held by " + java1 + ", without expiry",
		},
	} {
		t.Run(name, func(t *testing.T) {
			key := strings.NewReplacer(" ", "-", ",", "").Replace(t.Name())
			for _, k := range tc.keys {
				do(t, rdb, strings.ReplaceAll(k, "@", key))
			}
			for member, score := range tc.zset {
				require.NoError(t, rdb.ZAdd(t.Context(), strings.ReplaceAll(tc.zkey, "@", key), redis.Z{Score: score, Member: member}).Err())
			}
			i, err := c.Inspect(t.Context(), key)
			require.NoError(t, err)
			require.Equal(t, tc.kind, i.Kind)
			require.Equal(t, key, i.Name)
			require.Equal(t, fmt.Sprintf("%q: %s", key, tc.says), roundTTL(i).String())
			require.WithinDuration(t, now, i.At, time.Minute)
			if tc.check != nil {
				tc.check(i)
			}
			var back map[string]any
			text, err := json.Marshal(i)
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(text, &back))
			require.Equal(t, []any{key, string(tc.kind), i.Held()}, []any{back["name"], back["kind"], back["held"]})
		})
	}
}

// roundTTL takes off what a test takes.
func roundTTL(i holdfast.Info) holdfast.Info {
	if i.TTL > 0 {
		i.TTL = i.TTL.Round(30 * time.Second)
	}
	return i
}

// What this module's own locks leave is told, in one round trip.
func TestInspectOurOwn(t *testing.T) {
	rdb := server.Client(t)
	var sent redistest.CommandCounter
	rdb.AddHook(&sent)
	c := newClient(t, rdb)
	h, err := c.Lock(t.Name()).Lock(t.Context())
	require.NoError(t, err)
	_, err = c.Inspect(t.Context(), t.Name()) // the server knows the script from now on
	require.NoError(t, err)
	waiter := async(func() (*holdfast.Hold, error) { return connect(t).Lock(t.Name()).Lock(t.Context()) })
	awaitWaiter(t, rdb, t.Name())

	sent.Reset()
	i, err := c.Inspect(t.Context(), t.Name())
	require.NoError(t, err)
	require.Equal(t, int64(1), sent.Total())
	require.Equal(t, holdfast.KindLock, i.Kind)
	require.Equal(t, []holdfast.Holder{{Owner: h.Owner(), Count: 1, TTL: i.TTL}}, i.Holders)
	require.Equal(t, int64(1), i.Listeners)
	require.NoError(t, h.Unlock(t.Context()))
	r := await(t, waiter, prompt, "the waiter gets it")
	require.NoError(t, r.err)
	require.NoError(t, r.hold.Unlock(t.Context()))

	// A latch is told from a semaphore where somebody waits for it.
	latch := c.Latch(t.Name() + "-latch")
	_, err = latch.TrySetCount(t.Context(), 2)
	require.NoError(t, err)
	i, err = c.Inspect(t.Context(), latch.Name())
	require.NoError(t, err)
	require.Equal(t, holdfast.KindCounter, i.Kind)
	opened := make(chan error, 1)
	go func() { opened <- latch.Await(t.Context()) }()
	eventually(t, "it is told to be a latch", func() bool {
		i, err := c.Inspect(t.Context(), latch.Name())
		return err == nil && i.Kind == holdfast.KindLatch && i.Value == 2
	})
	require.NoError(t, latch.CountDown(t.Context()))
	require.NoError(t, latch.CountDown(t.Context()))
	require.NoError(t, <-opened)
}

func TestInspectBadCalls(t *testing.T) {
	c := connect(t)
	for _, name := range []string{"", "a}", "{", strings.Repeat("x", 1<<20)} {
		_, err := c.Inspect(t.Context(), name)
		require.ErrorIs(t, err, holdfast.ErrInvalid)
	}
	_, err := c.Inspect(nil, t.Name()) //nolint:staticcheck // a mistake that users make
	require.ErrorIs(t, err, holdfast.ErrInvalid)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Inspect(ended, t.Name())
	require.ErrorIs(t, err, context.Canceled)

	require.NoError(t, c.Close())
	_, err = c.Inspect(t.Context(), t.Name())
	require.ErrorIs(t, err, holdfast.ErrClosed)
	for _, err := range c.Locks(t.Context(), "*") {
		require.ErrorIs(t, err, holdfast.ErrClosed)
	}
}

// A foreign hash of any size costs no more than a look at it.
func TestInspectHugeValues(t *testing.T) {
	rdb := server.Client(t)
	pipe := rdb.Pipeline()
	for i := range 30_000 {
		pipe.HSet(t.Context(), t.Name(), "field-"+strconv.Itoa(i), 1)
		pipe.HSet(t.Context(), t.Name()+"-readers", "c:"+strconv.Itoa(i), 1)
		pipe.RPush(t.Context(), "redisson_lock_queue:{"+t.Name()+"-fair}", "c:"+strconv.Itoa(i))
	}
	pipe.HSet(t.Context(), t.Name()+"-readers", "mode", "read")
	pipe.HSet(t.Context(), t.Name()+"-fair", java1, 1)
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	c := connect(t)
	i, err := c.Inspect(t.Context(), t.Name())
	require.NoError(t, err)
	require.Equal(t, holdfast.KindUnknown, i.Kind)
	i, err = c.Inspect(t.Context(), t.Name()+"-readers")
	require.NoError(t, err)
	require.Equal(t, holdfast.KindRWLock, i.Kind)
	require.Equal(t, 30_000, i.HolderCount)
	i, err = c.Inspect(t.Context(), t.Name()+"-fair")
	require.NoError(t, err)
	require.Equal(t, 30_000, i.QueueLen)
	require.Len(t, i.Queue, 1000)
}

// Bytes that are no text break neither a line nor JSON, and aren't lost.
func TestInspectBinaryNames(t *testing.T) {
	rdb := server.Client(t)
	c := connect(t)
	name := t.Name() + "\x00\xff\n\x1b[31m\""
	owner := "c:\xfe\n1"
	require.NoError(t, rdb.HSet(t.Context(), name, owner, 1).Err())
	found := 0
	for i, err := range c.Locks(t.Context(), t.Name()+"*") {
		require.NoError(t, err)
		found++
		require.Equal(t, name, i.Name)
		require.Equal(t, owner, i.Holders[0].Owner)
		require.True(t, utf8.ValidString(i.String()))
		require.NotContains(t, i.String(), "\n")
		require.NotContains(t, i.String(), "\x1b")
		text, err := json.Marshal(i)
		require.NoError(t, err)
		var back struct {
			Name       string
			NameBase64 []byte
			Holders    []struct{ Owner string }
		}
		require.NoError(t, json.Unmarshal(text, &back))
		require.Equal(t, name, string(back.NameBase64))
		require.Contains(t, back.Name, `\xff`)
		require.Equal(t, `c:\xfe\n1`, back.Holders[0].Owner)
	}
	require.Equal(t, 1, found)
}
