package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rlock"
)

const (
	// prompt is how long what happens at once may take on a busy machine.
	prompt = 10 * time.Second
	// never is a lease that doesn't end while a test runs.
	never = 10 * time.Minute
)

// connect makes a client on the shared server, closed with the test.
func connect(t testing.TB, opts ...holdfast.Option) *holdfast.Client {
	t.Helper()
	c, err := holdfast.New(rlock.Redis(t), opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// line looks at the queue of one fair lock.
type line struct {
	t    testing.TB
	rdb  *redis.Client
	name string
}

func newLine(t testing.TB) *line {
	return &line{t, rlock.Redis(t), t.Name()}
}

func (l *line) queue() string   { return "redisson_lock_queue:{" + l.name + "}" }
func (l *line) timeout() string { return "redisson_lock_timeout:{" + l.name + "}" }
func (l *line) alive() string   { return "{" + l.name + "}:holdfast:alive" }

// owners are those who wait, the next one first.
func (l *line) owners() []string {
	l.t.Helper()
	owners, err := l.rdb.LRange(context.Background(), l.queue(), 0, -1).Result()
	require.NoError(l.t, err)
	return owners
}

// await waits until so many wait.
func (l *line) await(n int) {
	l.t.Helper()
	redistest.Eventually(l.t, prompt, func() bool { return len(l.owners()) == n }, "%d in the queue", n)
}

// gone reports that nothing of the queue is left.
func (l *line) gone() bool {
	l.t.Helper()
	n, err := l.rdb.Exists(context.Background(), l.queue(), l.timeout(), l.alive()).Result()
	require.NoError(l.t, err)
	return n == 0
}

// scores are for how long places are kept from now on, by owner.
func (l *line) scores() map[string]time.Duration {
	l.t.Helper()
	now, err := l.rdb.Time(context.Background()).Result()
	require.NoError(l.t, err)
	zs, err := l.rdb.ZRangeWithScores(context.Background(), l.timeout(), 0, -1).Result()
	require.NoError(l.t, err)
	scores := make(map[string]time.Duration)
	for _, z := range zs {
		scores[z.Member.(string)] = time.UnixMilli(int64(z.Score)).Sub(now)
	}
	return scores
}

// order notes who gets the lock, in which order.
type order struct {
	mu   sync.Mutex
	got  []string
	wg   sync.WaitGroup
	test testing.TB
}

// wait starts a waiter, which notes that it got in and does what then says:
// gives back, if nil.
func (o *order) wait(who string, l rlock.Locker, then func(*rlock.Hold) error, opts ...rlock.Option) {
	o.wg.Go(func() {
		h, err := l.Lock(holdfast.WithOwnerID(context.Background(), who), opts...)
		if err != nil {
			o.test.Errorf("%s: %v", who, err)
			return
		}
		o.mu.Lock()
		o.got = append(o.got, who)
		o.mu.Unlock()
		if then == nil {
			then = func(h *rlock.Hold) error { return h.Unlock(context.Background()) }
		}
		if err := then(h); err != nil {
			o.test.Errorf("%s: %v", who, err)
		}
	})
}

func held(t testing.TB, l rlock.Locker, opts ...rlock.Option) *rlock.Hold {
	t.Helper()
	h, err := l.Lock(t.Context(), opts...)
	require.NoError(t, err)
	return h
}

// Waiters of several clients get in as they came, each of them told on its own.
func TestFairServesInOrder(t *testing.T) {
	l := newLine(t)
	clients := []*holdfast.Client{connect(t), connect(t), connect(t)}
	h := held(t, clients[0].FairLock(l.name))
	o := order{test: t}
	var want []string
	for i := range 12 {
		who := fmt.Sprint("w", i)
		want = append(want, who)
		o.wait(who, clients[i%3].FairLock(l.name), nil)
		l.await(i + 1)
	}
	_, err := clients[1].FairLock(l.name).TryLock(t.Context())
	require.ErrorIs(t, err, holdfast.ErrNotAcquired)
	require.Len(t, l.owners(), 12, "who doesn't wait doesn't queue")
	require.NoError(t, h.Unlock(t.Context()))
	o.wg.Wait()
	require.Equal(t, want, o.got)
	require.True(t, l.gone())
	h, err = clients[1].FairLock(l.name).TryLock(t.Context())
	require.NoError(t, err)
	require.NoError(t, h.Unlock(t.Context()))
}

// F-A06 (b): holders leave without a word, and the next one gets in by the lease.
func TestA06FairLeaseRunsOut(t *testing.T) {
	l := newLine(t)
	c := connect(t)
	const lease = 600 * time.Millisecond
	held(t, c.FairLock(l.name), rlock.Lease(5*lease)) // until all wait
	o := order{test: t}
	var mu sync.Mutex
	var starts []time.Time // of the leases
	for i, who := range []string{"B", "C", "D"} {
		o.wait(who, c.FairLock(l.name), func(*rlock.Hold) error {
			mu.Lock()
			defer mu.Unlock()
			starts = append(starts, time.Now())
			return nil
		}, rlock.Lease(lease))
		l.await(i + 1)
	}
	o.wg.Wait()
	require.Equal(t, []string{"B", "C", "D"}, o.got)
	for i := 1; i < len(starts); i++ {
		require.Less(t, starts[i].Sub(starts[i-1]), lease+2*time.Second, "a poll was waited for")
	}
	require.True(t, l.gone())
}

// The key is deleted, or the lock is forced open: the first one gets in.
func TestA06FairForcedOpenOrDeleted(t *testing.T) {
	for name, open := range map[string]func(t *testing.T, l *line, c *holdfast.Client){
		"forced": func(t *testing.T, l *line, c *holdfast.Client) {
			opened, err := c.FairLock(l.name).ForceUnlock(t.Context())
			require.NoError(t, err)
			require.True(t, opened)
		},
		"deleted": func(t *testing.T, l *line, _ *holdfast.Client) {
			require.NoError(t, l.rdb.Del(t.Context(), l.name).Err())
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLine(t)
			holder, other := connect(t), connect(t, holdfast.WithPollFallback(500*time.Millisecond))
			h := held(t, holder.FairLock(l.name))
			o := order{test: t}
			for i, who := range []string{"B", "C"} {
				o.wait(who, other.FairLock(l.name), nil)
				l.await(i + 1)
			}
			open(t, l, other)
			o.wg.Wait()
			require.Equal(t, []string{"B", "C"}, o.got)
			require.ErrorIs(t, h.Unlock(t.Context()), holdfast.ErrNotHeld)
			require.True(t, l.gone())
		})
	}
}

// F-A27: who gives up, by time or by cancellation, takes its place along.
func TestA27GivingUpLeavesNoPlace(t *testing.T) {
	l := newLine(t)
	c, other := connect(t), connect(t)
	h := held(t, c.FairLock(l.name))
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			_, err := other.FairLock(l.name).TryLock(context.Background(), rlock.Wait(3*time.Second))
			if !errors.Is(err, holdfast.ErrNotAcquired) {
				t.Error(err)
			}
		})
		l.await(i + 1)
	}
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := other.FairLock(l.name).Lock(ctx)
		gone <- err
	}()
	l.await(3)
	cancel()
	require.ErrorIs(t, <-gone, context.Canceled)
	wg.Wait()
	redistest.Eventually(t, prompt, l.gone, "all places are given up")
	require.NoError(t, h.Unlock(t.Context()))
	h, err := c.FairLock(l.name).TryLock(t.Context())
	require.NoError(t, err)
	require.NoError(t, h.Unlock(t.Context()))
	require.True(t, l.gone())
}

// The turn of a waiter that leaves at that moment goes to the one behind it.
func TestA27LeavingInTurnLetsTheNextIn(t *testing.T) {
	l := newLine(t)
	c := connect(t)
	for range 30 {
		h := held(t, c.FairLock(l.name))
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			h, err := c.FairLock(l.name).Lock(ctx)
			if err == nil {
				err = h.Unlock(context.Background())
			}
			gone <- err
		}()
		l.await(1)
		o := order{test: t}
		o.wait("next", c.FairLock(l.name), nil)
		l.await(2)
		go cancel()
		require.NoError(t, h.Unlock(t.Context()))
		if err := <-gone; err != nil {
			require.ErrorIs(t, err, context.Canceled)
		}
		start := time.Now()
		o.wg.Wait()
		require.Less(t, time.Since(start), 4*time.Second, "it was found by a poll only")
		redistest.Eventually(t, prompt, l.gone, "nothing is left")
	}
}

// F-A28: however often waiters try and give up, the times for which places are
// kept stay near.
func TestA28PlacesDontDrift(t *testing.T) {
	const lease, fair, wait = 30 * time.Second, time.Second, 20 * time.Millisecond
	l := newLine(t)
	c := connect(t, holdfast.WithLease(lease), holdfast.WithFairTimeout(fair))
	h := held(t, c.FairLock(l.name))
	over := time.After(2 * time.Second)
	stop := make(chan struct{})
	var wg, loops sync.WaitGroup
	for range 3 {
		loops.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				_, err := c.FairLock(l.name).TryLock(context.Background(), rlock.Wait(wait))
				// Nobody may have answered in such a time.
				if !errors.Is(err, holdfast.ErrNotAcquired) && !errors.Is(err, holdfast.ErrUnavailable) {
					t.Error(err)
				}
			}
		})
	}
	wg.Go(func() { // and one who stays, and moves its place
		h, err := c.FairLock(l.name).Lock(holdfast.WithOwnerID(context.Background(), "stays"))
		if err == nil {
			err = h.Unlock(context.Background())
		}
		if err != nil {
			t.Error(err)
		}
	})
	looks := 0
	for done := false; !done; looks++ {
		select {
		case <-over:
			done = true
		case <-time.After(10 * time.Millisecond):
		}
		for owner, kept := range l.scores() {
			// A hundred tries, each of which moved it by its own time, show.
			require.Less(t, kept, lease+20*fair, "%s: look %d", owner, looks)
		}
	}
	close(stop)
	loops.Wait()
	redistest.Eventually(t, prompt, func() bool { return len(l.owners()) == 1 }, "the others have gone")
	require.NoError(t, h.Unlock(t.Context()))
	wg.Wait()
	require.True(t, l.gone())
}

// F-A30: a waiter that waits for longer than its place would be kept stays where
// it is, and so do those behind it.
func TestA30LivingWaitersKeepTheirPlace(t *testing.T) {
	const fair = time.Second
	l := newLine(t)
	clients := []*holdfast.Client{
		connect(t, holdfast.WithFairTimeout(fair)), connect(t, holdfast.WithFairTimeout(fair)),
	}
	h := held(t, clients[0].FairLock(l.name), rlock.Lease(time.Minute))
	// The lock has no time to live that would keep places: they hang on their own.
	require.NoError(t, l.rdb.Persist(t.Context(), l.name).Err())
	o := order{test: t}
	var want []string
	for i, who := range []string{"B", "C", "D"} {
		o.wait(who, clients[i%2].FairLock(l.name), nil)
		l.await(i + 1)
		want = append(want, clients[i%2].ID()+":"+who)
		// For longer than a waiter of Redisson's would be waited for, behind so many.
		over := time.After(fair*time.Duration(i+1) + fair/2)
		for waiting := true; waiting; {
			select {
			case <-over:
				waiting = false
			case <-time.After(fair / 20):
			}
			require.Equal(t, want, l.owners())
			for owner, kept := range l.scores() {
				require.Positive(t, kept, "Redisson would drop %s", owner)
			}
		}
	}
	require.NoError(t, h.Unlock(t.Context()))
	o.wg.Wait()
	require.Equal(t, []string{"B", "C", "D"}, o.got)
	require.True(t, l.gone())
}

// F-A30: whose place is gone all the same, notices and stands in line again.
func TestA30LostPlaceIsTakenAgain(t *testing.T) {
	l := newLine(t)
	c := connect(t, holdfast.WithFairTimeout(300*time.Millisecond))
	h := held(t, c.FairLock(l.name))
	o := order{test: t}
	for i, who := range []string{"B", "C"} {
		o.wait(who, c.FairLock(l.name), nil)
		l.await(i + 1)
	}
	require.NoError(t, l.rdb.Del(t.Context(), l.queue(), l.timeout(), l.alive()).Err())
	l.await(2)
	require.NoError(t, h.Unlock(t.Context()))
	o.wg.Wait()
	require.ElementsMatch(t, []string{"B", "C"}, o.got)
	require.True(t, l.gone())
}

// F-A24: plain and fair locks of one name exclude each other, and a key that
// holds something else is refused.
func TestA24PlainAndFairExclude(t *testing.T) {
	l := newLine(t)
	c := connect(t, holdfast.WithPollFallback(200*time.Millisecond))
	plain, fair := c.Lock(l.name), c.FairLock(l.name)
	for _, pair := range [][2]rlock.Locker{{plain, fair}, {fair, plain}} {
		h := held(t, pair[0])
		taken := func(opts ...rlock.Option) {
			t.Helper()
			require.ErrorIs(t, locktest.Answered(func() error {
				_, err := pair[1].TryLock(t.Context(), opts...)
				return err
			}), holdfast.ErrNotAcquired)
		}
		taken()
		o := order{test: t}
		o.wait("other", pair[1], nil)
		taken(rlock.Wait(50 * time.Millisecond))
		require.NoError(t, h.Unlock(t.Context()))
		o.wg.Wait()
		require.True(t, l.gone())
	}
	require.NoError(t, l.rdb.Set(t.Context(), l.name, 3, 0).Err()) // a semaphore
	_, err := fair.TryLock(t.Context())
	require.ErrorIs(t, err, holdfast.ErrInvalid)
	_, err = fair.Lock(t.Context())
	require.ErrorIs(t, err, holdfast.ErrInvalid)
	require.ErrorContains(t, err, l.name)
	require.Equal(t, "3", l.rdb.Get(t.Context(), l.name).Val())
	require.True(t, l.gone())

	// One of the lock's own keys is something else.
	require.NoError(t, l.rdb.Del(t.Context(), l.name).Err())
	for _, key := range []string{l.queue(), l.timeout(), l.alive()} {
		require.NoError(t, l.rdb.Set(t.Context(), key, "x", 0).Err())
		h := held(t, plain)
		_, err = fair.Lock(t.Context())
		require.ErrorIs(t, err, holdfast.ErrInvalid)
		require.ErrorContains(t, err, key)
		require.Equal(t, "x", l.rdb.Get(t.Context(), key).Val())
		require.NoError(t, h.Unlock(t.Context()))
		require.NoError(t, l.rdb.Del(t.Context(), key).Err())
		require.True(t, l.gone())

		h = held(t, fair)
		require.NoError(t, l.rdb.Set(t.Context(), key, "x", 0).Err())
		require.NoError(t, h.Unlock(t.Context()), "what is held can be given back")
		require.NoError(t, l.rdb.Del(t.Context(), key).Err())
	}
}

// Calls of one owner that wait at the same time have one place, which stays until
// the last of them leaves; when one gets in, the others enter.
func TestFairCallsOfOneOwnerShareAPlace(t *testing.T) {
	l := newLine(t)
	c := connect(t)
	fair := c.FairLock(l.name)
	h := held(t, fair)
	owner := holdfast.WithOwner(t.Context())
	ctx, cancel := context.WithCancel(owner)
	gone, got := make(chan error, 1), make(chan *rlock.Hold, 2)
	go func() {
		_, err := fair.Lock(ctx)
		gone <- err
	}()
	l.await(1)
	for range 2 {
		go func() {
			h, err := fair.Lock(owner)
			if err != nil {
				t.Error(err)
			}
			got <- h
		}()
	}
	require.ErrorIs(t, locktest.Answered(func() error {
		_, err := fair.TryLock(owner, rlock.Wait(50*time.Millisecond))
		return err
	}), holdfast.ErrNotAcquired)
	require.Len(t, l.owners(), 1, "one place for all calls, and one that gave up left it alone")
	cancel()
	require.ErrorIs(t, <-gone, context.Canceled)
	require.Len(t, l.owners(), 1)
	require.NoError(t, h.Unlock(t.Context()))
	first, second := <-got, <-got
	n, err := fair.HoldCount(owner)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.True(t, l.gone())
	require.NoError(t, first.Unlock(t.Context()))
	require.NoError(t, second.Unlock(t.Context()))
	locked, err := fair.IsLocked(t.Context())
	require.NoError(t, err)
	require.False(t, locked)
}

// Close and Shutdown tell waiters, whose places go with them.
func TestFairCloseLeavesNoPlace(t *testing.T) {
	for name, end := range map[string]func(*holdfast.Client) error{
		"Close":    (*holdfast.Client).Close,
		"Shutdown": func(c *holdfast.Client) error { return c.Shutdown(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLine(t)
			h := held(t, connect(t).FairLock(l.name))
			c, err := holdfast.Open(rlock.URL())
			require.NoError(t, err)
			var wg sync.WaitGroup
			for i := range 10 {
				wg.Go(func() {
					if _, err := c.FairLock(l.name).Lock(context.Background()); !errors.Is(err, holdfast.ErrClosed) {
						t.Errorf("%v", err)
					}
				})
				l.await(i + 1)
			}
			require.NoError(t, end(c))
			wg.Wait()
			require.True(t, l.gone())
			require.NoError(t, h.Unlock(t.Context()))
		})
	}
}
