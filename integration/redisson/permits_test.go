package redisson_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/redisson"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// A semaphore with waiters of both sides: what one releases the other gets.
func TestSemaphoreOfBothSides(t *testing.T) {
	versions(t, func(t *testing.T, j *redisson.JVM) {
		c, _ := connect(t)
		s, theirs := c.Semaphore(t.Name()), j.Owner(t, "a").Object("Semaphore", t.Name())
		set, err := s.TrySetPermits(t.Context(), 3)
		require.NoError(t, err)
		require.True(t, set)
		require.False(t, redisson.Get[bool](theirs.Call("trySetPermits", 9)))
		theirs.Call("acquire", 2).OK()
		require.NoError(t, s.Acquire(t.Context(), 1))
		require.ErrorIs(t, s.TryAcquire(t.Context(), 1), holdfast.ErrNotAcquired)
		require.False(t, redisson.Get[bool](theirs.Call("tryAcquire")))

		// Go waits for Java.
		got := make(chan error, 1)
		rdb := server.Client(t)
		channel := "redisson_sc:{" + t.Name() + "}"
		go func() { got <- s.Acquire(context.Background(), 2) }()
		listening(t, rdb, channel, 1)
		theirs.Call("release", 2).OK()
		select {
		case err := <-got:
			require.NoError(t, err)
		case <-time.After(prompt):
			require.Fail(t, "Java's release wakes nobody in Go")
		}

		// Java waits for Go, who listens no more.
		listening(t, rdb, channel, 0)
		waits := theirs.Call("acquire", 3)
		listening(t, rdb, channel, 1)
		require.NoError(t, s.Release(t.Context(), 3))
		waits.OK()
		require.Zero(t, redisson.Get[int](theirs.Call("availablePermits")))

		theirs.Call("addPermits", 4).OK()
		free, err := s.Available(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 4, free)
		require.NoError(t, s.AddPermits(t.Context(), -1))
		require.Equal(t, 3, redisson.Get[int](theirs.Call("drainPermits")))
		theirs.Call("release", 6).OK()
		free, err = s.Drain(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 6, free)
	})
}

// Permit ids that one side took are given back by the other; those of a JVM come
// back when their lease is over, and wake who waits.
func TestPermitsOfBothSides(t *testing.T) {
	versions(t, func(t *testing.T, j *redisson.JVM) {
		c, _ := connect(t)
		e, theirs := c.ExpirableSemaphore(t.Name()), j.Owner(t, "a").Object("PermitExpirableSemaphore", t.Name())
		set, err := e.TrySetPermits(t.Context(), 2)
		require.NoError(t, err)
		require.True(t, set)

		id := redisson.Get[string](theirs.Call("acquire"))
		require.NoError(t, e.Release(t.Context(), id), "Go gives back what Java took")
		require.False(t, redisson.Get[bool](theirs.Call("tryRelease", id)))
		p, err := e.Acquire(t.Context())
		require.NoError(t, err)
		theirs.Call("release", p.ID()).OK() // Java gives back what Go took
		select {
		case <-p.Context().Done():
			require.ErrorIs(t, context.Cause(p.Context()), holdfast.ErrLost)
		case <-time.After(prompt):
			require.Fail(t, "the permit's holder isn't told")
		}

		short := redisson.Get[string](theirs.Call("acquire", watched.Milliseconds(), redisson.Millis))
		left, err := e.LeaseOf(t.Context(), short)
		require.NoError(t, err)
		require.Greater(t, left, time.Duration(0))
		renewed, err := e.Acquire(t.Context())
		require.NoError(t, err)
		require.Zero(t, redisson.Get[int](theirs.Call("availablePermits")))
		got, err := e.TryAcquire(t.Context(), holdfast.Wait(2*prompt))
		require.NoError(t, err, "Java's lease is over")
		require.Error(t, theirs.Call("release", short).Err())

		rdb := server.Client(t)
		channel := "redisson_sc:{" + t.Name() + "}"
		listening(t, rdb, channel, 0)
		waits := theirs.Call("acquire")
		listening(t, rdb, channel, 1)
		require.NoError(t, got.Release(t.Context()))
		id = redisson.Get[string](waits)
		require.True(t, redisson.Get[bool](theirs.Call("updateLeaseTime", id, 60000, redisson.Millis)))
		require.NoError(t, e.Extend(t.Context(), id, 2*time.Hour))
		left, err = e.LeaseOf(t.Context(), id)
		require.NoError(t, err)
		require.Greater(t, left, time.Hour)

		// Go waits for what Java gives back, by its id. All leases are long: their ends are
		// looked at, too.
		require.NoError(t, renewed.Release(t.Context()))
		theirs.Call("acquire", fixed.Milliseconds(), redisson.Millis).OK()
		listening(t, rdb, channel, 0)
		waiter := make(chan error, 1)
		go func() {
			p, err := e.Acquire(context.Background())
			if err == nil {
				err = p.Release(context.Background())
			}
			waiter <- err
		}()
		listening(t, rdb, channel, 1)
		theirs.Call("release", id).OK()
		select {
		case err := <-waiter:
			require.NoError(t, err)
		case <-time.After(prompt):
			require.Fail(t, "Java's release wakes nobody in Go")
		}
	})
}

// A latch counted down by both sides opens for the waiters of both.
func TestLatchOfBothSides(t *testing.T) {
	versions(t, func(t *testing.T, j *redisson.JVM) {
		c, _ := connect(t)
		l, theirs := c.Latch(t.Name()), j.Owner(t, "a").Object("CountDownLatch", t.Name())
		require.True(t, redisson.Get[bool](theirs.Call("trySetCount", 3)))
		set, err := l.TrySetCount(t.Context(), 5)
		require.NoError(t, err)
		require.False(t, set)

		rdb := server.Client(t)
		javaWaits := j.Owner(t, "waiter").Object("CountDownLatch", t.Name()).Call("await")
		goWaits := make(chan error, 1)
		go func() { goWaits <- l.Await(context.Background()) }()
		redistest.Eventually(t, prompt, func() bool {
			return listeners(t, rdb, "redisson_countdownlatch__channel__{"+t.Name()+"}") == 2
		}, "both listen")
		theirs.Call("countDown").OK()
		require.NoError(t, l.CountDown(t.Context()))
		n, err := l.Count(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		require.EqualValues(t, 1, redisson.Get[int64](theirs.Call("getCount")))
		require.NoError(t, l.CountDown(t.Context()))
		javaWaits.OK()
		select {
		case err := <-goWaits:
			require.NoError(t, err)
		case <-time.After(prompt):
			require.Fail(t, "the Go waiter isn't told")
		}
		set, err = l.TrySetCount(t.Context(), 1)
		require.NoError(t, err)
		require.True(t, set)
		go func() { goWaits <- l.Await(context.Background()) }()
		redistest.Eventually(t, prompt, func() bool {
			return listeners(t, rdb, "redisson_countdownlatch__channel__{"+t.Name()+"}") == 1
		}, "Go listens")
		theirs.Call("countDown").OK()
		require.NoError(t, <-goWaits)
	})
}

// A multi lock of one side keeps that of the other out as long as they share a name.
func TestMultiLockOfBothSides(t *testing.T) {
	versions(t, func(t *testing.T, j *redisson.JVM) {
		c, _ := connect(t)
		n := func(s string) string { return t.Name() + s }
		theirs := j.Owner(t, "a").MultiLock(n("1"), n("2"))
		mine := c.MultiLock(c.Lock(n("2")), c.Lock(n("3")))
		theirs.Call("lock").OK()
		_, err := mine.TryLock(t.Context())
		require.ErrorIs(t, err, holdfast.ErrNotAcquired)
		require.Zero(t, server.Client(t).Exists(t.Context(), n("3")).Val(), "nothing is held back")
		got := waiting(t, server.Client(t), "redisson_lock__channel:{"+n("2")+"}", 0, func() (*holdfast.Hold, error) { return mine.Lock(t.Context()) })
		theirs.Call("unlock").OK()
		h := receive(t, got, "the multi lock").hold
		require.False(t, redisson.Get[bool](theirs.Call("tryLock")))
		require.Zero(t, server.Client(t).Exists(t.Context(), n("1")).Val())
		waits := theirs.Call("lock")
		require.NoError(t, h.Unlock(t.Context()))
		waits.OK()
		theirs.Call("unlock").OK()
	})
}
