package rsemaphore_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rsemaphore"
)

// watched is a lease that tests wait for the renewals and the end of.
const watched = 2 * time.Second

// members are the permits in use, expired ones included, as Redis has them.
func members(t testing.TB, name string) int64 {
	t.Helper()
	n, err := rsemaphore.Server().Client(t).ZCard(context.Background(), "{"+name+"}:timeout").Result()
	require.NoError(t, err)
	return n
}

func acquired(t testing.TB, e *rsemaphore.Expirable) int64 {
	t.Helper()
	n, err := e.Acquired(context.Background())
	require.NoError(t, err)
	return n
}

func TestExpirableGivesAndTakes(t *testing.T) {
	ctx := t.Context()
	e := connect(t).ExpirableSemaphore(t.Name())
	other := connect(t).ExpirableSemaphore(t.Name())
	total := func() int64 {
		n, err := e.Permits(ctx)
		require.NoError(t, err)
		return n
	}
	require.Zero(t, total())
	set(t, e, 3)
	ok, err := other.TrySetPermits(ctx, 9)
	require.NoError(t, err)
	require.False(t, ok)

	p, err := e.Acquire(ctx)
	require.NoError(t, err)
	require.Len(t, p.ID(), 32)
	require.Equal(t, t.Name(), p.Name())
	ps, err := other.AcquireN(ctx, 2, rsemaphore.Lease(time.Minute))
	require.NoError(t, err)
	require.Len(t, ps, 2)
	require.EqualValues(t, 0, available(t, e))
	require.EqualValues(t, 3, acquired(t, e))
	require.EqualValues(t, 3, total())
	_, err = e.TryAcquire(ctx)
	require.ErrorIs(t, err, holdfast.ErrNotAcquired)
	require.Contains(t, err.Error(), "wanted 1, free 0")
	var taken *holdfast.NotAcquiredError
	require.ErrorAs(t, err, &taken)
	require.InDelta(t, 30*time.Second, taken.Remaining, float64(5*time.Second), "p may have expired then")

	d, err := e.LeaseOf(ctx, ps[0].ID())
	require.NoError(t, err)
	require.InDelta(t, time.Minute, d, float64(5*time.Second))
	require.NoError(t, e.Extend(ctx, ps[0].ID(), time.Hour), "by anyone who knows it")
	require.NoError(t, other.Extend(ctx, ps[0].ID(), time.Second))
	d, err = e.LeaseOf(ctx, ps[0].ID())
	require.NoError(t, err)
	require.Greater(t, d, 50*time.Minute, "never shortened")
	require.NoError(t, other.Extend(ctx, ps[1].ID(), time.Hour))
	require.Greater(t, time.Until(ps[1].ExpiresAt()), 50*time.Minute, "its own client knows")

	require.NoError(t, e.SetPermits(ctx, 5))
	require.EqualValues(t, 2, available(t, e))
	require.NoError(t, e.AddPermits(ctx, -4))
	require.EqualValues(t, -2, available(t, e))
	require.EqualValues(t, 1, total())
	require.EqualValues(t, 3, acquired(t, e))
	require.NoError(t, e.AddPermits(ctx, 2))

	unknown := strings.Repeat("0", 32)
	err = e.Release(ctx, ps[0].ID(), unknown)
	require.ErrorIs(t, err, holdfast.ErrNotHeld)
	require.Contains(t, err.Error(), unknown)
	require.EqualValues(t, 3, acquired(t, e), "all or nothing")
	n, err := e.TryRelease(ctx, ps[0].ID(), unknown, ps[0].ID())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoError(t, e.Release(ctx, ps[1].ID(), ps[1].ID()), "named twice, given back once")
	require.NoError(t, p.Context().Err())
	require.NoError(t, p.Release(ctx))
	require.ErrorIs(t, context.Cause(p.Context()), holdfast.ErrReleased)
	require.True(t, p.ExpiresAt().IsZero())
	err = p.Release(ctx)
	require.ErrorIs(t, err, holdfast.ErrNotHeld)
	require.NotErrorIs(t, err, holdfast.ErrLost)
	require.EqualValues(t, 3, available(t, e))
	require.Zero(t, acquired(t, e))

	// What somebody else gave back is lost for its holder, who is told at the latest
	// when he gives it back.
	err = ps[0].Release(ctx)
	require.ErrorIs(t, err, holdfast.ErrNotHeld)
	require.ErrorIs(t, err, holdfast.ErrLost)
	require.EqualValues(t, 3, available(t, e))
	there, err := e.Exists(ctx)
	require.NoError(t, err)
	require.True(t, there)
	there, err = e.Delete(ctx)
	require.NoError(t, err)
	require.True(t, there)
	require.NoError(t, e.Release(ctx))
}

// A key that goes takes its permits along.
func TestPermitsGoWithTheirSemaphore(t *testing.T) {
	ctx := t.Context()
	rdb := rsemaphore.Server().Client(t)
	e := connect(t, holdfast.WithLease(watched)).ExpirableSemaphore(t.Name())
	set(t, e, 3)
	_, err := e.Acquire(ctx, rsemaphore.Lease(time.Hour))
	require.NoError(t, err)
	require.EqualValues(t, -1, rdb.PTTL(ctx, "{"+t.Name()+"}:timeout").Val())
	there, err := e.Expire(ctx, time.Hour)
	require.NoError(t, err)
	require.True(t, there)
	require.Greater(t, rdb.PTTL(ctx, "{"+t.Name()+"}:timeout").Val(), 50*time.Minute)
	ps, err := e.AcquireN(ctx, 2)
	require.NoError(t, err)
	require.Greater(t, rdb.PTTL(ctx, "{"+t.Name()+"}:timeout").Val(), 50*time.Minute)

	there, err = e.Delete(ctx)
	require.NoError(t, err)
	require.True(t, there)
	require.Zero(t, members(t, t.Name()))
	for _, p := range ps {
		select {
		case <-p.Context().Done():
			require.ErrorIs(t, context.Cause(p.Context()), holdfast.ErrLost)
		case <-time.After(prompt):
			t.Fatal("the holder isn't told")
		}
	}
}

// Renewed permits last; those of a client that ends come back.
func TestPermitsAreRenewedUntilTheProcessEnds(t *testing.T) {
	ctx := t.Context()
	proxied, proxy := through(t, holdfast.WithLease(watched))
	e := proxied.ExpirableSemaphore(t.Name())
	look := connect(t).ExpirableSemaphore(t.Name())
	set(t, look, 5)
	ps, err := e.AcquireN(ctx, 3)
	require.NoError(t, err)
	_, err = e.Acquire(ctx, rsemaphore.Lease(watched/3))
	require.NoError(t, err)
	until := time.Now().Add(watched * 3 / 2)
	redistest.Eventually(t, 2*watched+prompt, func() bool {
		for _, p := range ps {
			require.NoError(t, p.Context().Err())
		}
		n := acquired(t, look)
		require.GreaterOrEqual(t, n, int64(3))
		return n == 3 && time.Now().After(until)
	}, "the fixed one comes back, the others don't")
	require.EqualValues(t, 2, available(t, look), "counted as free")

	proxy.Blackhole(true) // as a process that was killed
	for _, p := range ps {
		<-p.Context().Done()
		require.ErrorIs(t, context.Cause(p.Context()), holdfast.ErrLost)
		require.ErrorIs(t, p.Release(ctx), holdfast.ErrLost)
	}
	redistest.Eventually(t, watched+prompt, func() bool { return available(t, look) == 5 }, "they come back")
	proxy.Blackhole(false)
}

// The context of a permit ends before Redis lets it go.
func TestPermitEndsBeforeItsLease(t *testing.T) {
	e := connect(t).ExpirableSemaphore(t.Name())
	set(t, e, 1)
	p, err := e.Acquire(t.Context(), rsemaphore.Lease(300*time.Millisecond))
	require.NoError(t, err)
	require.NoError(t, p.Context().Err())
	<-p.Context().Done()
	require.ErrorIs(t, context.Cause(p.Context()), holdfast.ErrLost)
	require.True(t, p.ExpiresAt().IsZero())
	require.ErrorIs(t, p.Release(t.Context()), holdfast.ErrLost)
}

// A34: expired permits come back by themselves, and wake who waits.
func TestA34ExpiredPermitWakesAWaiter(t *testing.T) {
	ctx := t.Context()
	dead := connect(t)
	e := connect(t, holdfast.WithPollFallback(time.Hour)).ExpirableSemaphore(t.Name())
	set(t, e, 2)
	start := time.Now()
	_, err := dead.ExpirableSemaphore(t.Name()).Acquire(ctx, rsemaphore.Lease(time.Second))
	require.NoError(t, err)
	_, err = dead.ExpirableSemaphore(t.Name()).Acquire(ctx, rsemaphore.Lease(time.Hour))
	require.NoError(t, err)
	require.NoError(t, dead.Close()) // gives nothing back
	p, err := e.Acquire(ctx)
	require.NoError(t, err)
	took := time.Since(start)
	require.GreaterOrEqual(t, took, 990*time.Millisecond)
	require.Less(t, took, 4*time.Second, "it slept on")
	for range 3 {
		require.EqualValues(t, 0, available(t, e))
		require.EqualValues(t, 2, acquired(t, e))
	}
	require.NoError(t, p.Release(ctx))
}

// A34: what has expired counts as free, however often one looks.
func TestA34LookingChangesNothing(t *testing.T) {
	ctx := t.Context()
	e := connect(t).ExpirableSemaphore(t.Name())
	set(t, e, 3)
	_, err := e.AcquireN(ctx, 2, rsemaphore.Lease(20*time.Millisecond))
	require.NoError(t, err)
	eventually(t, "they expire", func() bool { return available(t, e) == 3 })
	for range 3 {
		require.EqualValues(t, 3, available(t, e))
		require.Zero(t, acquired(t, e))
		total, err := e.Permits(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 3, total)
	}
	require.EqualValues(t, 2, members(t, t.Name()), "still where they were")
}

// A03: as many waiters go on as permits come back, whether by a release, by an
// expiry or by a higher total.
func TestA03ManyPermitsWakeManyWaitersExpirable(t *testing.T) {
	ctx := t.Context()
	p1 := connect(t, holdfast.WithPollFallback(time.Hour)).ExpirableSemaphore(t.Name())
	p2 := connect(t, holdfast.WithPollFallback(time.Hour)).ExpirableSemaphore(t.Name())
	set(t, p1, 3)
	ps, err := p1.AcquireN(ctx, 3)
	require.NoError(t, err)
	var ids []string
	for _, p := range ps {
		ids = append(ids, p.ID())
	}
	served := make(chan error, 8)
	for range 8 {
		go func() {
			_, err := p2.Acquire(ctx, rsemaphore.Lease(time.Hour))
			served <- err
		}()
	}
	await := func(n int) {
		t.Helper()
		for range n {
			select {
			case err := <-served:
				require.NoError(t, err)
			case <-time.After(prompt):
				t.Fatal("a waiter sleeps on")
			}
		}
		require.Zero(t, available(t, p1))
		require.Empty(t, served)
	}
	eventually(t, "they listen", func() bool { return subscribed(t, t.Name()) })
	require.NoError(t, p1.Release(ctx, ids...))
	await(3)
	require.NoError(t, p1.AddPermits(ctx, 2))
	await(2)
	require.NoError(t, p1.SetPermits(ctx, 8))
	await(3)
	require.ErrorIs(t, context.Cause(ps[0].Context()), holdfast.ErrReleased)
}

func TestUncontendedPermitIsTwoCommands(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	commands := &redistest.CommandCounter{}
	rdb := rsemaphore.Server().Client(t)
	rdb.AddHook(commands)
	e := newClient(t, rdb).ExpirableSemaphore(t.Name())
	set(t, e, 3)
	pair := func() {
		ps, err := e.AcquireN(ctx, 1)
		require.NoError(t, err)
		require.NoError(t, ps[0].Release(ctx))
	}
	pair() // loads the scripts
	commands.Reset()
	for range 10 {
		pair()
	}
	require.EqualValues(t, 20, commands.Total())
	require.EqualValues(t, 20, commands.Count("evalsha"))
}

// Permits of one name are renewed in one command.
func TestPermitsShareTheirRenewal(t *testing.T) {
	commands := &redistest.CommandCounter{}
	rdb := rsemaphore.Server().Client(t)
	rdb.AddHook(commands)
	e := newClient(t, rdb, holdfast.WithLease(watched)).ExpirableSemaphore(t.Name())
	set(t, e, 50)
	ps, err := e.AcquireN(t.Context(), 50)
	require.NoError(t, err)
	commands.Reset()
	was := ps[0].ExpiresAt()
	redistest.Eventually(t, watched+prompt, func() bool { return ps[0].ExpiresAt().Sub(was) > watched*3/4 }, "renewed three times")
	require.Less(t, commands.Total(), int64(25), "50 permits, renewed a few times")
	for _, p := range ps {
		require.NoError(t, p.Context().Err())
	}
}

func TestExpirableRefusesBadInput(t *testing.T) {
	ctx := t.Context()
	c := connect(t)
	e := c.ExpirableSemaphore(t.Name())
	set(t, e, 5)
	for _, n := range []int{0, -1, math.MinInt, math.MaxInt, 10_001} {
		_, err := e.AcquireN(ctx, n)
		require.ErrorIs(t, err, holdfast.ErrInvalid)
	}
	for _, n := range []int64{-1, math.MinInt64, math.MaxInt64, 1 << 53} {
		_, err := e.TrySetPermits(ctx, n)
		require.ErrorIs(t, err, holdfast.ErrInvalid)
		require.ErrorIs(t, e.SetPermits(ctx, n), holdfast.ErrInvalid)
	}
	for _, n := range []int64{math.MinInt64, math.MaxInt64, 1 << 53, 1<<53 - 1} {
		require.ErrorIs(t, e.AddPermits(ctx, n), holdfast.ErrInvalid)
	}
	_, err := e.Acquire(ctx, rsemaphore.Lease(0))
	require.ErrorIs(t, err, holdfast.ErrInvalid)
	_, err = e.Acquire(nil) //nolint:staticcheck // the nil is the point
	require.ErrorIs(t, err, holdfast.ErrInvalid)
	for _, id := range []string{"", "x", strings.Repeat("g", 32), strings.Repeat("0", 34)} {
		require.ErrorIs(t, e.Release(ctx, id), holdfast.ErrInvalid)
		require.ErrorIs(t, e.Release(ctx, id), holdfast.ErrNotHeld)
		_, err = e.TryRelease(ctx, id)
		require.ErrorIs(t, err, holdfast.ErrInvalid)
		require.ErrorIs(t, e.Extend(ctx, id, time.Second), holdfast.ErrInvalid)
		_, err = e.LeaseOf(ctx, id)
		require.ErrorIs(t, err, holdfast.ErrInvalid)
		_, err = e.Resume(ctx, id)
		require.ErrorIs(t, err, holdfast.ErrInvalid)
	}
	unknown := strings.Repeat("0", 32)
	require.ErrorIs(t, e.Extend(ctx, unknown, 0), holdfast.ErrInvalid)
	require.ErrorIs(t, e.Extend(ctx, unknown, time.Second), holdfast.ErrNotHeld)
	require.ErrorIs(t, e.Release(ctx, unknown), holdfast.ErrNotHeld)
	_, err = e.LeaseOf(ctx, unknown)
	require.ErrorIs(t, err, holdfast.ErrNotHeld)
	_, err = e.Resume(ctx, unknown)
	require.ErrorIs(t, err, holdfast.ErrNotHeld)
	for _, name := range []string{"", "a}b"} {
		_, err = c.ExpirableSemaphore(name).Acquire(ctx)
		require.ErrorIs(t, err, holdfast.ErrInvalid)
		require.ErrorIs(t, c.ExpirableSemaphore(name).Release(ctx, unknown), holdfast.ErrInvalid)
	}
	require.EqualValues(t, 5, available(t, e))

	rdb := rsemaphore.Server().Client(t)
	require.NoError(t, rdb.RPush(ctx, t.Name()+":list", "x").Err())
	require.NoError(t, rdb.RPush(ctx, "{"+t.Name()+":set}:timeout", "x").Err())
	for _, name := range []string{t.Name() + ":list", t.Name() + ":set"} {
		foreign := c.ExpirableSemaphore(name)
		_, err = foreign.Acquire(ctx)
		require.ErrorIs(t, err, holdfast.ErrInvalid, name)
		require.ErrorIs(t, foreign.SetPermits(ctx, 1), holdfast.ErrInvalid)
		_, err = foreign.Available(ctx)
		require.ErrorIs(t, err, holdfast.ErrInvalid)
		require.ErrorIs(t, foreign.Release(ctx, unknown), holdfast.ErrInvalid)
	}
}
