package redisson_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/redisson"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// On a cluster both sides choose sharded pub/sub by themselves, and hear each
// other there: neither polls.
func TestCluster(t *testing.T) {
	for _, version := range []string{newest, older} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			nodes := redistest.StartCluster(t, 3)
			j := redisson.Start(t, home, redisson.Config{Version: version, Watchdog: watched, Addrs: nodes.Addrs()})
			c, err := holdfast.New(nodes.Client(t), holdfast.WithLease(watched), holdfast.WithPollFallback(never))
			require.NoError(t, err)
			defer func() { require.NoError(t, c.Close()) }()
			rdb := nodes.Client(t)
			hears := func(t *testing.T, channel string, n int64) {
				t.Helper()
				redistest.Eventually(t, prompt, func() bool {
					var sum atomic.Int64 // a node tells of its own only
					err := rdb.ForEachMaster(context.Background(), func(ctx context.Context, node *redis.Client) error {
						all, err := node.PubSubShardNumSub(ctx, channel).Result()
						sum.Add(all[channel])
						return err
					})
					return err == nil && sum.Load() == n
				}, "%d listen on %s", n, channel)
			}
			names := func(base string) []string { // over all nodes
				var all []string
				for i := range 6 {
					all = append(all, base+strconv.Itoa(i))
				}
				return all
			}
			for _, k := range kinds {
				if k.newOnly && version == older || k.silent {
					continue
				}
				for _, name := range names(k.java) {
					theirs := j.Owner(t, name).Object(k.java, name)
					theirs.Call("lock").OK()
					_, err := k.mine(c, name).TryLock(t.Context())
					require.ErrorIs(t, err, holdfast.ErrNotAcquired)
					got := async(func() (*holdfast.Hold, error) { return k.mine(c, name).Lock(t.Context()) })
					select {
					case <-got:
						require.Fail(t, "two holders")
					case <-time.After(watched / 4):
					}
					theirs.Call("unlock").OK()
					h := receive(t, got, k.java).hold
					waits := theirs.Call("lock")
					require.NoError(t, h.Unlock(t.Context()))
					waits.OK()
					theirs.Call("unlock").OK()
				}
			}

			// A renewal keeps a lock in whichever slot it is.
			var holds []*holdfast.Hold
			for _, name := range names("kept") {
				h, err := c.Lock(name).Lock(t.Context())
				require.NoError(t, err)
				holds = append(holds, h)
				j.Owner(t, "keeper").Object("Lock", "java-"+name).Call("lock").OK()
			}
			<-time.After(watched * 3 / 2)
			for i, name := range names("kept") {
				require.False(t, redisson.Get[bool](j.Owner(t, "a").Object("Lock", name).Call("tryLock")))
				require.NoError(t, holds[i].Unlock(t.Context()))
				_, err := c.Lock("java-" + name).TryLock(t.Context())
				require.ErrorIs(t, err, holdfast.ErrNotAcquired)
			}

			for _, name := range names("semaphore") {
				s, theirs := c.Semaphore(name), j.Owner(t, name).Object("Semaphore", name)
				require.True(t, redisson.Get[bool](theirs.Call("trySetPermits", 1)))
				theirs.Call("acquire").OK()
				got := make(chan error, 1)
				go func() { got <- s.Acquire(context.Background(), 1) }()
				hears(t, "redisson_sc:{"+name+"}", 1)
				theirs.Call("release").OK()
				require.NoError(t, <-got)
				hears(t, "redisson_sc:{"+name+"}", 0)
				waits := theirs.Call("acquire")
				hears(t, "redisson_sc:{"+name+"}", 1)
				require.NoError(t, s.Release(t.Context(), 1))
				waits.OK()
			}

			// Go's re-entries, tokens and readers are what Java sees, in whichever slot.
			for _, name := range names("again") {
				outer, err := c.FencedLock(name).Lock(t.Context())
				require.NoError(t, err)
				inner, err := c.FencedLock(name).Lock(outer.Context())
				require.NoError(t, err)
				require.NoError(t, inner.Unlock(t.Context()))
				theirs := j.Owner(t, name).Object("FencedLock", name)
				require.False(t, redisson.Get[bool](theirs.Call("tryLock")), "one hold is left")
				require.Equal(t, outer.Token(), redisson.Get[int64](theirs.Call("getToken")))
				require.NoError(t, outer.Unlock(t.Context()))
				require.Greater(t, redisson.Get[int64](theirs.Call("lockAndGetToken")), outer.Token())
				theirs.Call("lock").OK()
				theirs.Call("unlock").OK()
				_, err = c.FencedLock(name).TryLock(t.Context())
				require.ErrorIs(t, err, holdfast.ErrNotAcquired, "one hold of Java's is left")
				theirs.Call("unlock").OK()

				r, err := c.RWLock("rw-" + name).Read().Lock(t.Context())
				require.NoError(t, err)
				o := j.Owner(t, name)
				reads, writes := o.Object("ReadLock", "rw-"+name), o.Object("WriteLock", "rw-"+name)
				require.True(t, redisson.Get[bool](reads.Call("tryLock")), "readers of both sides are in")
				reads.Call("unlock").OK()
				require.False(t, redisson.Get[bool](writes.Call("tryLock")))
				waits := writes.Call("lock")
				sleeps(t, o)
				require.NoError(t, r.Unlock(t.Context()))
				waits.OK()
				_, err = c.RWLock("rw-" + name).Read().TryLock(t.Context())
				require.ErrorIs(t, err, holdfast.ErrNotAcquired)
				writes.Call("unlock").OK()
			}

			// A multi lock over all nodes keeps out, and is kept out by, each of its names.
			all := names("multi")
			var members []holdfast.Locker
			for _, name := range all {
				members = append(members, c.Lock(name))
			}
			many, theirMany := c.MultiLock(members...), j.Owner(t, "multi").MultiLock(all...)
			theirMany.Call("lock").OK()
			_, err = many.TryLock(t.Context())
			require.ErrorIs(t, err, holdfast.ErrNotAcquired)
			theirMany.Call("unlock").OK()
			h, err := many.Lock(t.Context())
			require.NoError(t, err)
			for _, name := range all {
				require.False(t, redisson.Get[bool](j.Owner(t, "multi").Object("Lock", name).Call("tryLock")), name)
			}
			require.NoError(t, h.Unlock(t.Context()))
			require.True(t, redisson.Get[bool](theirMany.Call("tryLock")))
			theirMany.Call("unlock").OK()

			for _, name := range names("permits") {
				e, theirs := c.ExpirableSemaphore(name), j.Owner(t, name).Object("PermitExpirableSemaphore", name)
				require.True(t, redisson.Get[bool](theirs.Call("trySetPermits", 1)))
				id := redisson.Get[string](theirs.Call("acquire"))
				require.NoError(t, e.Release(t.Context(), id))
				p, err := e.Acquire(t.Context())
				require.NoError(t, err)
				hears(t, "redisson_sc:{"+name+"}", 0)
				waits := theirs.Call("acquire")
				hears(t, "redisson_sc:{"+name+"}", 1)
				require.NoError(t, p.Release(t.Context()))
				waits.OK()
			}

			for _, name := range names("latch") {
				l, theirs := c.Latch(name), j.Owner(t, name).Object("CountDownLatch", name)
				require.True(t, redisson.Get[bool](theirs.Call("trySetCount", 1)))
				got := make(chan error, 1)
				go func() { got <- l.Await(context.Background()) }()
				hears(t, "redisson_countdownlatch__channel__{"+name+"}", 1)
				theirs.Call("countDown").OK()
				require.NoError(t, <-got)
				_, err := l.TrySetCount(t.Context(), 1)
				require.NoError(t, err)
				hears(t, "redisson_countdownlatch__channel__{"+name+"}", 0)
				waits := theirs.Call("await")
				hears(t, "redisson_countdownlatch__channel__{"+name+"}", 1)
				require.NoError(t, l.CountDown(t.Context()))
				waits.OK()
			}

			for _, name := range names("limiter") {
				l, theirs := c.RateLimiter(name), j.Owner(t, name).Object("RateLimiter", name)
				require.True(t, redisson.Get[bool](theirs.Call("trySetRate", "OVERALL", 2, redisson.D(time.Minute))))
				require.True(t, redisson.Get[bool](theirs.Call("tryAcquire", 1)))
				require.NoError(t, l.TryAcquire(t.Context(), 1))
				require.ErrorIs(t, l.TryAcquire(t.Context(), 1), holdfast.ErrNotAcquired)
				require.False(t, redisson.Get[bool](theirs.Call("tryAcquire", 1)))
			}

			// What a JVM held when it was killed is Go's after a lease, in whichever slot.
			var left []<-chan result
			for _, name := range names("left") {
				j.Owner(t, name).Object("Lock", name).Call("lock").OK()
				left = append(left, async(func() (*holdfast.Hold, error) { return c.Lock(name).Lock(t.Context()) }))
				hears(t, "redisson_lock__channel:{"+name+"}", 1)
			}
			for _, got := range left {
				select {
				case <-got:
					require.Fail(t, "two holders")
				default:
				}
			}
			j.Kill()
			for _, got := range left {
				require.NoError(t, receive(t, got, "what a dead JVM held").hold.Unlock(t.Context()))
			}
		})
	}
}
