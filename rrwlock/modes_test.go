package rrwlock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rrwlock"
)

const (
	// prompt is how long what happens "at once" may take on a busy machine.
	prompt = 5 * time.Second
	// never is a lease that doesn't end, and a poll that doesn't come, while a test
	// runs.
	never = 10 * time.Minute
)

func as(t testing.TB, id string) context.Context { return holdfast.WithOwnerID(t.Context(), id) }

// silent makes a client that learns of nothing by polling.
func silent(t testing.TB) *holdfast.Client {
	return connect(t, holdfast.WithLease(never), holdfast.WithPollFallback(never))
}

// result of a call on a goroutine of its own.
type result struct {
	hold *rrwlock.Hold
	err  error
}

func locking(ctx context.Context, l rrwlock.Locker, opts ...rrwlock.Option) <-chan result {
	c := make(chan result, 1)
	go func() {
		h, err := l.Lock(ctx, opts...)
		c <- result{h, err}
	}()
	return c
}

// got awaits a hold.
func got(t testing.TB, c <-chan result, what string) *rrwlock.Hold {
	t.Helper()
	return gotWithin(t, prompt, c, what)
}

func gotWithin(t testing.TB, d time.Duration, c <-chan result, what string) *rrwlock.Hold {
	t.Helper()
	select {
	case r := <-c:
		require.NoError(t, r.err, what)
		return r.hold
	case <-time.After(d):
		require.FailNow(t, "not promptly: "+what)
		return nil
	}
}

// waiting waits until n callers wait for name in a mode ("readers", "writers").
func waiting(t testing.TB, rdb *redis.Client, name, mode string, n int64) {
	t.Helper()
	redistest.Eventually(t, prompt, func() bool {
		return rdb.ZCard(t.Context(), "{"+name+"}:holdfast:"+mode).Val() == n
	}, "%d %s wait", n, mode)
}

func locked(t testing.TB, l rrwlock.Locker) bool {
	t.Helper()
	yes, err := l.IsLocked(t.Context())
	require.NoError(t, err)
	return yes
}

func count(t testing.TB, l rrwlock.Locker, ctx context.Context) int {
	t.Helper()
	n, err := l.HoldCount(ctx)
	require.NoError(t, err)
	return n
}

func take(t testing.TB, l rrwlock.Locker, ctx context.Context, opts ...rrwlock.Option) *rrwlock.Hold {
	t.Helper()
	h, err := l.TryLock(ctx, opts...)
	require.NoError(t, err)
	return h
}

func refused(t testing.TB, l rrwlock.Locker, ctx context.Context, opts ...rrwlock.Option) {
	t.Helper()
	_, err := l.TryLock(ctx, opts...)
	require.ErrorIs(t, err, holdfast.ErrNotAcquired)
}

func unlock(t testing.TB, h *rrwlock.Hold) {
	t.Helper()
	require.NoError(t, h.Unlock(context.Background()))
}

// nothingLeft holds that a name left nothing, but what a waiter's place leaves for
// a while.
func nothingLeft(t testing.TB, rdb *redis.Client, name string) {
	t.Helper()
	redistest.Eventually(t, prompt, func() bool {
		all, err := rdb.Keys(t.Context(), "*"+name+"*").Result()
		for _, key := range all {
			if !strings.Contains(key, ":holdfast:req:") {
				return false
			}
		}
		return err == nil
	}, "keys of %s are left", name)
}

func TestModes(t *testing.T) {
	rw, other := connect(t).RWLock(t.Name()), connect(t).RWLock(t.Name())
	a := take(t, rw.Read(), as(t, "a"))
	b := take(t, other.Read(), as(t, "b"))
	require.True(t, locked(t, rw.Read()))
	require.False(t, locked(t, rw.Write()))
	again := take(t, rw.Read(), as(t, "a"))
	require.Equal(t, 2, count(t, rw.Read(), as(t, "a")))
	require.Zero(t, count(t, rw.Write(), as(t, "a")))
	refused(t, other.Write(), as(t, "c"))
	unlock(t, a)
	unlock(t, b)
	refused(t, other.Write(), as(t, "c"))
	require.Equal(t, 1, count(t, rw.Read(), as(t, "a")))
	require.NoError(t, again.Context().Err())
	unlock(t, again)

	w := take(t, other.Write(), as(t, "c"))
	require.ErrorIs(t, rw.Write().Unlock(as(t, "a")), holdfast.ErrNotHeld)
	require.Zero(t, count(t, other.Read(), as(t, "c")))
	require.True(t, strings.HasSuffix(w.Owner(), ":c"), w.Owner())
	require.True(t, locked(t, rw.Write()))
	require.False(t, locked(t, rw.Read()))
	refused(t, rw.Read(), as(t, "a"))
	unlock(t, w)
	nothingLeft(t, look(t), t.Name())
}

// The writer reads, gives the write hold back, and those who waited to read are
// told at once.
func TestDowngradeLetsReadersIn(t *testing.T) {
	c1, c2 := silent(t), silent(t)
	rw, other := c1.RWLock(t.Name()), c2.RWLock(t.Name())
	w := take(t, rw.Write(), as(t, "a"))
	r := take(t, rw.Read(), as(t, "a")) // not w.Context(), which ends with w
	calls := []<-chan result{locking(as(t, "b"), other.Read()), locking(as(t, "c"), rw.Read())}
	waiting(t, look(t), t.Name(), "readers", 2)
	unlock(t, w)
	require.True(t, locked(t, rw.Read()))
	for _, c := range calls {
		unlock(t, got(t, c, "a reader goes in beside the writer that was"))
	}
	require.NoError(t, r.Context().Err())
	_, err := rw.Write().TryLock(r.Context())
	require.ErrorIs(t, err, holdfast.ErrUpgrade, "it is a reader now")
	unlock(t, r)
	nothingLeft(t, look(t), t.Name())
}

// The reading part of a write hold ends without ending the rest.
func TestA23WriterReads(t *testing.T) {
	rw, other := connect(t).RWLock(t.Name()), connect(t).RWLock(t.Name())
	out := func() {
		t.Helper()
		refused(t, other.Read(), as(t, "b"))
		refused(t, other.Write(), as(t, "b"))
	}
	ctx := as(t, "a")
	for range 2 {
		take(t, rw.Write(), ctx)
		take(t, rw.Read(), ctx)
	}
	out()
	for range 2 {
		require.NoError(t, rw.Read().Unlock(ctx))
		out()
	}
	require.Equal(t, 2, count(t, rw.Write(), ctx))
	for range 2 {
		out()
		require.NoError(t, rw.Write().Unlock(ctx))
	}
	require.ErrorIs(t, rw.Write().Unlock(ctx), holdfast.ErrNotHeld)
	nothingLeft(t, look(t), t.Name())
}

// Who reads is told at once that it can't become the writer, also where others of
// its client stand in line.
func TestUpgradeIsRefusedAtOnce(t *testing.T) {
	c := silent(t)
	rw, rdb := c.RWLock(t.Name()), look(t)
	r := take(t, rw.Read(), as(t, "a"))
	first := locking(as(t, "b"), rw.Write())
	waiting(t, rdb, t.Name(), "writers", 1)
	second := locking(as(t, "c"), rw.Write())
	for _, opts := range [][]rrwlock.Option{nil, {rrwlock.Wait(never)}} {
		done := make(chan error, 1)
		go func() {
			_, err := rw.Write().Lock(r.Context(), opts...)
			done <- err
		}()
		select {
		case err := <-done:
			require.ErrorIs(t, err, holdfast.ErrUpgrade)
			require.ErrorContains(t, err, t.Name())
		case <-time.After(prompt):
			require.FailNow(t, "it waits for itself")
		}
	}
	require.NoError(t, r.Context().Err())
	unlock(t, r)
	unlock(t, got(t, first, "the writer that waited"))
	unlock(t, got(t, second, "the one behind it"))
	nothingLeft(t, rdb, t.Name())
}

// Read holds end one by one, in any order, and none takes along, or leaves behind,
// more than its own protection.
func TestReadHoldsGivenBackOutOfOrder(t *testing.T) {
	rw, rdb := connect(t, holdfast.WithLease(never)).RWLock(t.Name()), look(t)
	ctx := as(t, "a")
	long := take(t, rw.Read(), ctx, rrwlock.Lease(time.Hour))
	short := take(t, rw.Read(), ctx, rrwlock.Lease(20*time.Second))
	mid := take(t, rw.Read(), ctx, rrwlock.Lease(20*time.Minute))
	ttl := func() time.Duration { return rdb.PTTL(t.Context(), t.Name()).Val() }
	require.Greater(t, ttl(), 59*time.Minute)
	unlock(t, long)
	require.Less(t, ttl(), 21*time.Minute)
	require.Greater(t, ttl(), 19*time.Minute)
	unlock(t, mid)
	require.LessOrEqual(t, ttl(), 20*time.Second)
	kept := take(t, rw.Read(), ctx) // renewed
	unlock(t, short)
	require.Greater(t, ttl(), 9*time.Minute)
	own, err := rdb.Keys(t.Context(), "*"+t.Name()+"*rwlock_timeout*").Result()
	require.NoError(t, err)
	require.Len(t, own, 1)
	require.NoError(t, kept.Extend(t.Context(), 2*time.Hour))
	inner := take(t, rw.Read(), ctx, rrwlock.Lease(time.Minute))
	unlock(t, inner)
	require.Greater(t, ttl(), 119*time.Minute, "what was extended stays")
	unlock(t, kept)
	nothingLeft(t, rdb, t.Name())
}

// ForceUnlock opens one side, and tells who held it.
func TestForceUnlockOfEachSide(t *testing.T) {
	c := connect(t, holdfast.WithLease(never))
	rw, rdb := c.RWLock(t.Name()), look(t)
	force := func(l rrwlock.Locker, want bool) {
		t.Helper()
		opened, err := l.ForceUnlock(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, opened)
	}
	a, b := take(t, rw.Read(), as(t, "a")), take(t, rw.Read(), as(t, "b"))
	force(rw.Write(), false)
	force(rw.Read(), true)
	for _, h := range []*rrwlock.Hold{a, b} {
		require.ErrorIs(t, context.Cause(h.Context()), holdfast.ErrLost)
		require.ErrorIs(t, h.Unlock(t.Context()), holdfast.ErrLost)
	}
	nothingLeft(t, rdb, t.Name())
	w := take(t, rw.Write(), as(t, "a"))
	r := take(t, rw.Read(), as(t, "a"))
	force(rw.Read(), false)
	force(rw.Write(), true)
	for _, h := range []*rrwlock.Hold{w, r} {
		require.ErrorIs(t, context.Cause(h.Context()), holdfast.ErrLost)
	}
	nothingLeft(t, rdb, t.Name())
}

// A hold of an owner that reads and writes can't be passed on: the two would be
// two owners'. A read hold can be taken up beside others.
func TestHandOverOfModes(t *testing.T) {
	c := connect(t, holdfast.WithLease(never))
	rw := c.RWLock(t.Name())
	w := take(t, rw.Write(), as(t, "a"))
	r := take(t, rw.Read(), as(t, "a"))
	for _, h := range []*rrwlock.Hold{w, r} {
		_, err := h.Detach()
		require.ErrorIs(t, err, holdfast.ErrInvalid)
		require.NoError(t, h.Context().Err(), "it is held as before")
	}
	unlock(t, w)
	handle, err := r.Detach()
	require.NoError(t, err)
	b := take(t, rw.Read(), as(t, "b"))
	up, err := c.Resume(as(t, "b"), handle)
	require.NoError(t, err)
	require.NoError(t, b.Context().Err())
	require.Equal(t, 2, count(t, rw.Read(), as(t, "b")))
	unlock(t, b)
	refused(t, rw.Write(), as(t, "c"))
	unlock(t, up)
	unlock(t, take(t, rw.Write(), as(t, "c")))
	nothingLeft(t, look(t), t.Name())
}

// A plain lock and a read-write lock on one name never hold at once, and neither
// touches what the other left.
func TestA24OneNameForTwoKinds(t *testing.T) {
	c := connect(t)
	rw := c.RWLock(t.Name())
	plain := take(t, c.Lock(t.Name()), as(t, "a"))
	for _, id := range []string{"a", "b"} {
		for _, l := range []rrwlock.Locker{rw.Read(), rw.Write()} {
			_, err := l.TryLock(as(t, id))
			require.ErrorIs(t, err, holdfast.ErrInvalid)
			_, err = l.ForceUnlock(t.Context())
			require.ErrorIs(t, err, holdfast.ErrInvalid)
		}
	}
	unlock(t, plain)
	for _, l := range []rrwlock.Locker{rw.Read(), rw.Write()} {
		h := take(t, l, as(t, "a"))
		_, err := c.Lock(t.Name()).TryLock(as(t, "a"))
		require.ErrorIs(t, err, holdfast.ErrInvalid)
		require.ErrorIs(t, c.Lock(t.Name()).Unlock(as(t, "b")), holdfast.ErrNotHeld)
		require.NoError(t, h.Context().Err())
		unlock(t, h)
	}
	rdb := look(t)
	require.NoError(t, rdb.HSet(t.Context(), t.Name(), "mode", "read", "retries", 3).Err())
	before := rdb.Dump(t.Context(), t.Name()).Val()
	_, err := rw.Write().TryLock(as(t, "a"))
	require.ErrorIs(t, err, holdfast.ErrInvalid, "somebody's settings")
	_, err = rw.Read().ForceUnlock(t.Context())
	require.ErrorIs(t, err, holdfast.ErrInvalid)
	require.Equal(t, before, rdb.Dump(t.Context(), t.Name()).Val())
}

// A name that another kind has in use is a lock that is held: the error must not
// tell anybody to remove it.
func TestNameOfAnotherKind(t *testing.T) {
	c, rdb := silent(t), look(t)
	hold, err := c.Lock(t.Name()).Lock(t.Context())
	require.NoError(t, err)
	for what, ask := range map[string]func(context.Context) error{
		"write":     func(ctx context.Context) error { _, err := c.RWLock(t.Name()).Write().TryLock(ctx); return err },
		"read":      func(ctx context.Context) error { _, err := c.RWLock(t.Name()).Read().TryLock(ctx); return err },
		"latch":     func(ctx context.Context) error { _, err := c.Latch(t.Name()).TrySetCount(ctx, 1); return err },
		"semaphore": func(ctx context.Context) error { return c.Semaphore(t.Name()).TryAcquire(ctx, 1) },
	} {
		err := ask(t.Context())
		require.ErrorIs(t, err, holdfast.ErrInvalid, what)
		require.ErrorContains(t, err, `holdfast inspect "`+t.Name()+`"`, what)
		require.NotContains(t, err.Error(), "remove", what)
	}
	unlock(t, hold)

	writer := take(t, c.RWLock(t.Name()).Write(), as(t, "a"))
	for what, l := range map[string]holdfast.Locker{"lock": c.Lock(t.Name()), "multi lock": c.MultiLock(c.Lock(t.Name()), c.Lock(t.Name()+":2"))} {
		_, err = l.TryLock(t.Context())
		require.ErrorIs(t, err, holdfast.ErrInvalid, what)
		require.ErrorContains(t, err, "which may be held", what)
		require.NotContains(t, err.Error(), "remove", what)
	}
	unlock(t, writer)
	nothingLeft(t, rdb, t.Name())
}
