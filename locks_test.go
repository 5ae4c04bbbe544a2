package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// listed goes through Locks and answers what it saw; each name once.
func listed(t *testing.T, c *holdfast.Client, pattern string) map[string]holdfast.Kind {
	t.Helper()
	found := make(map[string]holdfast.Kind)
	for i, err := range c.Locks(t.Context(), pattern) {
		require.NoError(t, err)
		require.NotContains(t, found, i.Name, "seen twice")
		found[i.Name] = i.Kind
	}
	return found
}

// zoo are keys of all kinds, and what is to be told of them.
func zoo(t *testing.T, rdb redis.Cmdable) map[string]holdfast.Kind {
	do(
		t, rdb,
		"hset z:lock c:1 1",
		"hset z:{tag}:lock c:1 1",
		"hset z:fenced c:1 1", "set redisson_lock_token:{z:fenced} 1",
		"set redisson_lock_token:{z:fenced-free} 1",
		"set redisson_lock_token:z:{tag}:fenced-free 1",
		"hset z:fair c:1 1", "rpush redisson_lock_queue:{z:fair} c:2", "zadd redisson_lock_timeout:{z:fair} 1 c:2",
		"rpush redisson_lock_queue:{z:fair-free} c:2", "zadd redisson_lock_timeout:{z:fair-free} 1 c:2",
		"hset z:rw mode read c:1 1", "set {z:rw}:c:1:rwlock_timeout:1 1",
		"set z:semaphore 0", "set z:counter 5",
		"set z:expirable 1", "zadd {z:expirable}:timeout 1 aaaaaaaaaaaaaaaa",
		"hset z:limiter rate 5 interval 1000 type 0 keepAliveTime 0", "set {z:limiter}:value 4", "zadd {z:limiter}:permits 1 x",
		"hset z:{tag}:limiter rate 5 interval 1000 type 1 keepAliveTime 0", "set z:{tag}:limiter:value:"+javaClient+" 4",
		"set z:is:value 3", "set {z:no-limiter}:value 3",
		// Helpers and markers; foreign data.
		"set {z:lock}:holdfast:req:abc:1 1", "set redisson_unlock_latch:{z:lock}:abc 1", "zadd {z:fair}:holdfast:alive 1 c:2",
		"set z:text hello", "rpush z:list 1", "sadd z:set 1", "zadd z:zset 1 1", "xadd z:stream * a 1", "hset z:hash a 1 b 2", "pfadd z:hll a",
		"hset y:lock c:1 1",
	)
	return map[string]holdfast.Kind{
		"z:lock": holdfast.KindLock, "z:{tag}:lock": holdfast.KindLock,
		"z:fenced": holdfast.KindFencedLock, "z:fenced-free": holdfast.KindFencedLock, "z:{tag}:fenced-free": holdfast.KindFencedLock,
		"z:fair": holdfast.KindFairLock, "z:fair-free": holdfast.KindFairLock,
		"z:rw": holdfast.KindRWLock, "z:semaphore": holdfast.KindSemaphore, "z:counter": holdfast.KindCounter,
		"z:expirable": holdfast.KindExpirable, "z:limiter": holdfast.KindRateLimiter, "z:{tag}:limiter": holdfast.KindRateLimiter,
		"z:is:value": holdfast.KindCounter,
	}
}

// All names of a large server are found, each once, with SCAN and pipelines,
// among keys of all other kinds.
func TestLocksFindsAll(t *testing.T) {
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	var sent redistest.CommandCounter
	rdb.AddHook(&sent)
	c := newClient(t, rdb)
	want := zoo(t, srv.Client(t))
	require.Equal(t, want, listed(t, c, "z:*"))

	const names = 1500
	pipe := srv.Client(t).Pipeline()
	for i := range names {
		name := fmt.Sprintf("lock-%d", i)
		pipe.HSet(t.Context(), name, "c:1", 1)
		pipe.Set(t.Context(), fmt.Sprintf("cache-%d", i), "hello", 0)
		want[name] = holdfast.KindLock
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	want["y:lock"], want["{z:no-limiter}:value"] = holdfast.KindLock, holdfast.KindCounter
	sent.Reset()
	require.Equal(t, want, listed(t, c, "*"))
	require.Zero(t, sent.Count("keys"))
	require.Positive(t, sent.Count("scan"))
	require.Less(t, sent.Count("scan"), int64(names/10))

	require.Len(t, listed(t, c, "lock-?"), 10)
	require.Len(t, listed(t, c, "lock-[12]*"), 2*111+500)
	require.Empty(t, listed(t, c, "no-such-*"))
}

// While names come and go, what stays is found once.
func TestLocksWhileNamesComeAndGo(t *testing.T) {
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	const stay = 300
	want := make(map[string]holdfast.Kind)
	for i := range stay {
		name := fmt.Sprintf("stays-%d", i)
		want[name] = holdfast.KindLock
		require.NoError(t, rdb.HSet(t.Context(), name, "c:1", 1).Err())
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { // the table is resized again and again
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			pipe := rdb.Pipeline()
			for j := range 2000 {
				pipe.HSet(ctx, fmt.Sprintf("goes-%d-%d", i, j), "c:1", 1)
			}
			for j := range 2000 {
				pipe.Del(ctx, fmt.Sprintf("goes-%d-%d", i, j))
			}
			_, _ = pipe.Exec(ctx) // its end is that of the test
		}
	}()
	c := newClient(t, srv.Client(t))
	for range 5 {
		found := listed(t, c, "*")
		maps.DeleteFunc(found, func(name string, _ holdfast.Kind) bool { return strings.HasPrefix(name, "goes-") })
		require.Equal(t, want, found)
	}
	cancel()
	<-done
}

func TestLocksOnACluster(t *testing.T) {
	cluster := redistest.StartCluster(t, 3)
	rdb := cluster.Client(t)
	c := newClient(t, rdb)
	want := make(map[string]holdfast.Kind)
	for i := range 300 {
		name := fmt.Sprintf("lock-%d", i)
		want[name] = holdfast.KindLock
		require.NoError(t, rdb.HSet(t.Context(), name, "c:1", 1).Err())
	}
	require.NoError(t, rdb.Set(t.Context(), "redisson_lock_token:{lock-free}", 3, 0).Err())
	want["lock-free"] = holdfast.KindFencedLock
	require.Equal(t, want, listed(t, c, "lock-*"))
	i, err := c.Inspect(t.Context(), "lock-7")
	require.NoError(t, err)
	require.Equal(t, "c:1", i.Holders[0].Owner)
}

// A prefix is part of no name that this client knows.
func TestLocksWithPrefixAndMapper(t *testing.T) {
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	do(t, rdb, "hset a*:x1 c:1 1", "hset a*:y1 c:1 1", "hset ab:x1 c:1 1", "hset x1 c:1 1", "set redisson_lock_token:{a*:x2} 1", "hset {x1}:tail c:1 1")
	for what, tc := range map[string]struct {
		opt     holdfast.Option
		pattern string
		want    []string
	}{
		"prefix":          {holdfast.WithPrefix("a*:"), "x*", []string{"x1", "x2"}},
		"all of a prefix": {holdfast.WithPrefix("a*:"), "*", []string{"x1", "x2", "y1"}},
		"around":          {holdfast.WithNameMapper(func(n string) string { return "{" + n + "}:tail" }), "x*", []string{"x1"}},
		"no way back":     {holdfast.WithNameMapper(strings.ToUpper), "x*", []string{"x1"}},
	} {
		t.Run(what, func(t *testing.T) {
			c := newClient(t, srv.Client(t), tc.opt)
			found := slices.Sorted(maps.Keys(listed(t, c, tc.pattern)))
			require.Equal(t, tc.want, found)
		})
	}
	c := newClient(t, srv.Client(t), holdfast.WithPrefix("a*:"))
	i, err := c.Inspect(t.Context(), "x1")
	require.NoError(t, err)
	require.Equal(t, [2]string{"x1", "a*:x1"}, [2]string{i.Name, i.Key})
	require.Equal(t, holdfast.KindLock, i.Kind)
}

// The caller may stop, or its context may end: then it ends, with one error.
func TestLocksEnds(t *testing.T) {
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	for i := range 50 {
		require.NoError(t, rdb.HSet(t.Context(), fmt.Sprint("lock-", i), "c:1", 1).Err())
	}
	c := newClient(t, srv.Client(t))
	n := 0
	for _, err := range c.Locks(t.Context(), "*") {
		require.NoError(t, err)
		if n++; n == 3 {
			break
		}
	}
	require.Equal(t, 3, n)

	last := func(ctx context.Context, pattern string) (last error) {
		for _, err := range c.Locks(ctx, pattern) {
			require.NoError(t, last, "it went on after an error")
			last = err
		}
		return last
	}
	require.ErrorIs(t, last(t.Context(), ""), holdfast.ErrInvalid)
	require.ErrorIs(t, last(nil, "*"), holdfast.ErrInvalid)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, last(ended, "*"), context.Canceled)

	// Redis stops answering in the middle: the caller leaves when its time is over.
	srv.Pause()
	bounded, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, last(bounded, "*"), context.DeadlineExceeded)
	srv.Resume()
}

// A name that the user may not read is told as an error of its own.
func TestLocksThatMayNotBeRead(t *testing.T) {
	srv := redistest.Start(t)
	admin := srv.Client(t)
	do(t, admin, "hset mine c:1 1", "hset theirs c:1 1", "acl setuser app on >pw resetkeys ~mine ~*{mine}* ~redisson_* +@all")
	c := newClient(t, srv.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "pw" }))
	found := make(map[string]error)
	for i, err := range c.Locks(t.Context(), "*") {
		found[i.Name] = err
	}
	require.Len(t, found, 2)
	require.NoError(t, found["mine"])
	require.ErrorIs(t, found["theirs"], holdfast.ErrDenied)
}

// A watcher sees who comes and goes, promptly, and nothing else.
func TestWatch(t *testing.T) {
	c, other := connect(t), connect(t)
	ctx, cancel := context.WithCancel(t.Context())
	type sight struct {
		info holdfast.Info
		err  error
	}
	sights := make(chan sight)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i, err := range c.Watch(ctx, t.Name()) {
			sights <- sight{i, err}
		}
	}()
	next := func() sight {
		select {
		case s := <-sights:
			return s
		case <-time.After(prompt):
			t.Fatal("nothing was seen")
			return sight{}
		}
	}
	s := next()
	require.NoError(t, s.err)
	require.Equal(t, holdfast.KindFree, s.info.Kind)

	h, err := other.Lock(t.Name()).Lock(t.Context(), holdfast.Lease(never))
	require.NoError(t, err)
	s = next()
	require.Equal(t, h.Owner(), s.info.Holders[0].Owner)
	require.NoError(t, h.Extend(t.Context(), never)) // no change
	require.NoError(t, h.Unlock(t.Context()))
	s = next()
	require.False(t, s.info.Held())
	cancel()
	s = next()
	require.True(t, errors.Is(s.err, context.Canceled))
	<-ended

	for _, err := range c.Watch(t.Context(), "") {
		require.ErrorIs(t, err, holdfast.ErrInvalid)
	}
}
