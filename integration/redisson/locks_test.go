package redisson_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/redisson"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rlock"
)

// kind is one sort of lock on both sides.
type kind struct {
	java string // Redisson's factory method without get
	mine func(c *holdfast.Client, name string) holdfast.Locker
	// channel is where its releases are published.
	channel string
	// silent: Redisson publishes nothing when it unlocks.
	silent bool
	// newOnly: 3.x hasn't got it.
	newOnly bool
	// once: it isn't re-entrant.
	once bool
}

const lockChannel = "redisson_lock__channel:{%}"

var kinds = []kind{
	{java: "Lock", channel: lockChannel, mine: func(c *holdfast.Client, n string) holdfast.Locker { return c.Lock(n) }},
	{java: "FencedLock", channel: lockChannel, mine: func(c *holdfast.Client, n string) holdfast.Locker { return c.FencedLock(n) }},
	{java: "SpinLock", channel: lockChannel, silent: true, mine: func(c *holdfast.Client, n string) holdfast.Locker { return c.Lock(n) }},
	{java: "NonReentrantLock", channel: lockChannel, newOnly: true, once: true, mine: func(c *holdfast.Client, n string) holdfast.Locker {
		return c.Lock(n, rlock.NonReentrant())
	}},
	// Each waiter of a fair lock has a channel of its own.
	{java: "FairLock", channel: "", mine: func(c *holdfast.Client, n string) holdfast.Locker { return c.FairLock(n) }},
	{java: "WriteLock", channel: "redisson_rwlock:{%}", mine: func(c *holdfast.Client, n string) holdfast.Locker { return c.RWLock(n).Write() }},
}

// eachKind runs a test for each kind, beside each version of Redisson.
func eachKind(t *testing.T, test func(t *testing.T, j *redisson.JVM, k kind)) {
	versions(t, func(t *testing.T, j *redisson.JVM) {
		for _, k := range kinds {
			if k.newOnly && strings.HasSuffix(t.Name(), older) {
				continue
			}
			t.Run(k.java, func(t *testing.T) {
				t.Parallel()
				test(t, j, k)
			})
		}
	})
}

// wait starts Go's waiter, and answers once it would hear of a release.
func (k kind) wait(t *testing.T, c *holdfast.Client, name string) <-chan result {
	t.Helper()
	return k.waitBeside(0, t, c, name)
}

// waitBeside is wait while so many others do.
func (k kind) waitBeside(others int, t *testing.T, c *holdfast.Client, name string) <-chan result {
	t.Helper()
	lock := func() (*holdfast.Hold, error) { return k.mine(c, name).Lock(t.Context()) }
	rdb := server.Client(t)
	if k.channel == "" {
		got := async(lock)
		redistest.Eventually(t, prompt, func() bool {
			n, err := rdb.PubSubChannels(context.Background(), "redisson_lock__channel:{"+name+"}:"+c.ID()+":*").Result()
			return err == nil && len(n) == 1
		}, "the Go waiter listens")
		return got
	}
	return waiting(t, rdb, strings.ReplaceAll(k.channel, "%", name), others, lock)
}

// What Java holds is refused to Go, waited for without asking, and obtained when
// Java gives it back.
func TestHeldInJava(t *testing.T) {
	eachKind(t, func(t *testing.T, j *redisson.JVM, k kind) {
		c, sent := connect(t)
		name := t.Name()
		theirs := j.Owner(t, "a").Object(k.java, name)
		theirs.Call("lock").OK()

		_, err := k.mine(c, name).TryLock(t.Context())
		var refused *holdfast.NotAcquiredError
		require.ErrorAs(t, err, &refused)
		require.ErrorIs(t, err, holdfast.ErrNotAcquired)
		require.Greater(t, refused.Remaining, time.Duration(0))
		require.LessOrEqual(t, refused.Remaining, watched)
		locked, err := k.mine(c, name).IsLocked(t.Context())
		require.NoError(t, err)
		require.True(t, locked)

		got := k.wait(t, c, name)
		settled := sent.Total()
		stays(t, got, "Redisson's watchdog keeps it")
		// A refusal that carries a time to live is followed by a look at its end,
		// and once a lease for the place of a waiter that keeps one.
		require.LessOrEqual(t, sent.Total()-settled, int64(12), "it polls")
		unlocked := time.Now()
		theirs.Call("unlock").OK()
		r := receive(t, got, "the lock")
		t.Logf("woken after %s", r.at.Sub(unlocked))
		require.Contains(t, server.Client(t).HKeys(t.Context(), name).Val(), field(k, r.hold.Owner()))
		require.NoError(t, r.hold.Unlock(t.Context()))
	})
}

// field is an owner as it stands in the hash.
func field(k kind, owner string) string {
	if k.java == "WriteLock" {
		return owner + ":write"
	}
	return owner
}

// What Go holds is refused to Java, waited for and obtained when Go gives it back.
func TestHeldInGo(t *testing.T) {
	eachKind(t, func(t *testing.T, j *redisson.JVM, k kind) {
		c, _ := connect(t)
		name := t.Name()
		h, err := k.mine(c, name).Lock(t.Context())
		require.NoError(t, err)
		a, b := j.Owner(t, "a").Object(k.java, name), j.Owner(t, "b").Object(k.java, name)
		require.True(t, redisson.Get[bool](a.Call("isLocked")))
		require.False(t, redisson.Get[bool](a.Call("tryLock")))
		require.False(t, redisson.Get[bool](a.Call("isHeldByCurrentThread")))

		got := b.Call("lock")
		stays(t, got.Done(), "holdfast's watchdog keeps it")
		unlocked := time.Now()
		require.NoError(t, h.Unlock(t.Context()))
		got.OK()
		t.Logf("woken after %s", time.Since(unlocked))
		require.True(t, redisson.Get[bool](b.Call("isHeldByCurrentThread")))
		require.ErrorIs(t, h.Unlock(t.Context()), holdfast.ErrNotHeld)
		b.Call("unlock").OK()
	})
}

// renamed gives the count of one owner to another.
var renamed = redis.NewScript(`
	redis.call('HSET', KEYS[1], ARGV[2], redis.call('HGET', KEYS[1], ARGV[1]))
	return redis.call('HDEL', KEYS[1], ARGV[1])`)

// A re-entry of one side counts as the other side reads it.
func TestReentry(t *testing.T) {
	eachKind(t, func(t *testing.T, j *redisson.JVM, k kind) {
		c, _ := connect(t)
		name := t.Name()
		a := j.Owner(t, "a").Object(k.java, name)
		a.Call("lock").OK()
		if k.once {
			require.Error(t, a.Call("lock").Err())
			a.Call("unlock").OK()
			return
		}
		a.Call("lock").OK()
		info, err := c.Inspect(t.Context(), name)
		require.NoError(t, err)
		require.Len(t, info.Holders, 1)
		require.EqualValues(t, 2, info.Holders[0].Count)
		require.Equal(t, j.Owner(t, "a").Field(), info.Holders[0].Owner)
		a.Call("unlock").OK()
		_, err = k.mine(c, name).TryLock(t.Context())
		require.ErrorIs(t, err, holdfast.ErrNotAcquired, "one hold is left")
		a.Call("unlock").OK()

		both := func() (outer, inner *holdfast.Hold) {
			outer, err := k.mine(c, name).Lock(holdfast.WithOwner(t.Context()), holdfast.Lease(fixed))
			require.NoError(t, err)
			inner, err = k.mine(c, name).Lock(outer.Context(), holdfast.Lease(fixed))
			require.NoError(t, err)
			return outer, inner
		}
		// Java reads Go's count and counts on. It asks for its own threads only, so the
		// field is given the name of one.
		outer, inner := both()
		require.NoError(t, renamed.Run(t.Context(), server.Client(t), []string{name},
			field(k, outer.Owner()), field(k, j.Owner(t, "a").Field())).Err())
		require.Equal(t, 2, redisson.Get[int](a.Call("getHoldCount")))
		a.Call("lock").OK()
		require.Equal(t, 3, redisson.Get[int](a.Call("getHoldCount")))
		for left := 2; left >= 0; left-- {
			require.True(t, redisson.Get[bool](a.Call("isHeldByCurrentThread")))
			a.Call("unlock").OK()
			require.Equal(t, left, redisson.Get[int](a.Call("getHoldCount")))
		}
		require.False(t, redisson.Get[bool](a.Call("isLocked")))
		require.ErrorIs(t, inner.Unlock(t.Context()), holdfast.ErrNotHeld)

		outer, inner = both()
		require.NoError(t, inner.Unlock(t.Context()))
		require.False(t, redisson.Get[bool](a.Call("tryLock")), "one hold is left")
		require.NoError(t, outer.Unlock(t.Context()))
		require.True(t, redisson.Get[bool](a.Call("tryLock")))
		a.Call("unlock").OK()
	})
}

// holder starts a process that holds every kind of lock, under the name and its own,
// and renews them until it is killed. It is gone when the channel is closed.
func holder(t *testing.T, name string) (*exec.Cmd, <-chan struct{}) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=hold "+server.Addr()+" "+name)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	gone := make(chan struct{})
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // by now it is, if all went well
		<-gone
	})
	holds := make(chan bool, 1)
	go func() {
		defer close(gone)
		lines := bufio.NewScanner(out)
		holds <- lines.Scan()
		_ = cmd.Wait() // it was killed
	}()
	select {
	case ok := <-holds:
		require.True(t, ok, "it has ended")
	case <-time.After(time.Minute):
		require.Fail(t, "it holds nothing")
	}
	return cmd, gone
}

// hold is what that process does.
func hold(addr, name string) error {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	c, err := holdfast.New(rdb, holdfast.WithLease(watched))
	if err != nil {
		return err
	}
	for _, k := range kinds {
		if _, err := k.mine(c, name+k.java).Lock(context.Background()); err != nil {
			return err
		}
	}
	fmt.Println("holds all")
	<-time.After(time.Hour)
	return nil
}

// A lock whose JVM was killed is Go's when the lease is over, and the reverse.
func TestTheOtherSideDies(t *testing.T) {
	for _, version := range []string{newest, older} {
		t.Run(version, func(t *testing.T) {
			t.Run("Go", func(t *testing.T) {
				survivor := shared(t, version)
				dying, killed := holder(t, t.Name())
				waits := make(map[string]*redisson.Future)
				for _, k := range kinds {
					if k.newOnly && version == older {
						continue
					}
					o := survivor.Owner(t, k.java)
					require.False(t, redisson.Get[bool](o.Object(k.java, t.Name()+k.java).Call("tryLock")))
					waits[k.java] = o.Object(k.java, t.Name()+k.java).Call("lock")
					if !k.silent { // a spin lock naps
						sleeps(t, o)
					}
				}
				<-time.After(watched * 3 / 2)
				for java, f := range waits {
					select {
					case <-f.Done():
						require.Fail(t, "two holders", java)
					default:
					}
				}
				require.NoError(t, dying.Process.Kill())
				<-killed
				within := time.After(watched + prompt)
				for java, f := range waits {
					select {
					case <-f.Done():
						f.OK()
					case <-within:
						require.Fail(t, "Java waits for a dead process", java)
					}
					survivor.Owner(t, java).Object(java, t.Name()+java).Call("unlock").OK()
				}
			})
			victim := redisson.Start(t, home, alone(version))
			waiters := make(map[string]<-chan result)
			for _, k := range kinds {
				if k.newOnly && version == older {
					continue
				}
				name := t.Name() + k.java
				victim.Owner(t, "a").Object(k.java, name).Call("lock").OK()
				c, _ := connect(t)
				waiters[k.java] = k.wait(t, c, name)
			}
			victim.Kill()
			for java, got := range waiters {
				r := receive(t, got, java)
				require.NoError(t, r.hold.Unlock(t.Context()))
			}
		})
	}
}

// A force unlock by the other side is noticed by the holder.
func TestForcedByTheOtherSide(t *testing.T) {
	eachKind(t, func(t *testing.T, j *redisson.JVM, k kind) {
		c, _ := connect(t)
		name := t.Name()
		a := j.Owner(t, "a").Object(k.java, name)

		h, err := k.mine(c, name).Lock(t.Context())
		require.NoError(t, err)
		require.True(t, redisson.Get[bool](a.Call("forceUnlock")))
		select {
		case <-h.Context().Done(): // at the next renewal
			require.ErrorIs(t, context.Cause(h.Context()), holdfast.ErrLost)
		case <-time.After(prompt):
			require.Fail(t, "the Go holder isn't told")
		}
		require.ErrorIs(t, h.Unlock(t.Context()), holdfast.ErrLost)

		a.Call("lock").OK()
		got := k.wait(t, c, name)
		forced, err := k.mine(c, name).ForceUnlock(t.Context())
		require.NoError(t, err)
		require.True(t, forced)
		r := receive(t, got, "the lock that was forced open")
		require.Error(t, a.Call("unlock").Err(), "Java doesn't hold it any more")
		require.NoError(t, r.hold.Context().Err())
		require.NoError(t, r.hold.Unlock(t.Context()))
	})
}

// Tokens grow across both sides, and a re-entry of ours keeps its own.
func TestFencingTokensGrow(t *testing.T) {
	versions(t, func(t *testing.T, j *redisson.JVM) {
		c, _ := connect(t)
		last := int64(0)
		a := j.Owner(t, "a").Object("FencedLock", t.Name())
		for range 5 {
			token := redisson.Get[int64](a.Call("lockAndGetToken"))
			require.Greater(t, token, last)
			a.Call("unlock").OK()
			h, err := c.FencedLock(t.Name()).Lock(t.Context())
			require.NoError(t, err)
			require.Greater(t, h.Token(), token)
			again, err := c.FencedLock(t.Name()).Lock(h.Context())
			require.NoError(t, err)
			require.Equal(t, h.Token(), again.Token())
			require.Equal(t, h.Token(), redisson.Get[int64](a.Call("getToken")))
			last = h.Token()
			require.NoError(t, again.Unlock(t.Context()))
			require.NoError(t, h.Unlock(t.Context()))
		}
	})
}
