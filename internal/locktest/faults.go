package locktest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/owner"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// Place is where a kind of lock meets faults: servers behind fault proxies, one or
// many.
type Place struct {
	// Connect makes a client of its own behind proxies of its own, closed with the test.
	Connect func(t *testing.T, l Link) Party
	// Redis looks at the same servers, past the proxies.
	Redis redis.UniversalClient
	// Rival is as in Kind.
	Rival func(l hold.Locker) hold.Locker
	// Guard, if given, is called before a scenario which must leave no goroutine
	// with a client that stays open, and what it answers is called after it.
	Guard func(t *testing.T, p Party) (check func())
	// Quiet: nothing else uses the servers, which may be paused for all.
	Quiet bool
}

// Link is how a client gets to the servers. Zero values are defaults.
type Link struct {
	Lease time.Duration // of holds that are renewed
	Read  time.Duration // when a lost reply is noticed
	Poll  time.Duration // how often waiters look without being woken
}

// Party is one client.
type Party struct {
	Lock    func(name string) hold.Locker
	Proxies []*faultproxy.Proxy // to all servers that it may get to
	Sent    *redistest.CommandCounter
}

// add puts a rule into force at all proxies; a single name meets it at one.
func (p Party) add(r faultproxy.Rule) faults {
	var fs faults
	for _, x := range p.Proxies {
		fs = append(fs, x.Add(r))
	}
	return fs
}

func (p Party) each(f func(*faultproxy.Proxy)) {
	for _, x := range p.Proxies {
		f(x)
	}
}

// warm makes the servers know the scripts of a name's kind: else the first copy of
// each would be answered with NOSCRIPT, and what happens to it would happen to
// nothing.
func (p Party) warm(t *testing.T, name string) hold.Locker {
	t.Helper()
	l := p.Lock(name)
	for range 2 { // the second unlock finds its script loaded, too
		h, err := l.Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Unlock(t.Context()))
	}
	return l
}

type faults []*faultproxy.Fault

func (fs faults) hits() (n int) {
	for _, f := range fs {
		n += f.Hits()
	}
	return n
}

func (fs faults) remove() {
	for _, f := range fs {
		f.Remove()
	}
}

func (fs faults) await(t *testing.T) {
	t.Helper()
	redistest.Eventually(t, prompt, func() bool { return fs.hits() > 0 }, "the fault doesn't happen")
}

var anyScript = faultproxy.Cmd("evalsha", "eval")

const (
	watched = 1500 * time.Millisecond // a lease that is renewed, short enough to watch
	never   = 10 * time.Minute
)

func (p Place) rival(l hold.Locker) hold.Locker {
	if p.Rival == nil {
		return l
	}
	return p.Rival(l)
}

func (p Place) guard(t *testing.T, party Party) func() {
	if p.Guard == nil {
		return func() {}
	}
	return p.Guard(t, party)
}

// requireNothing waits until no key and no channel with part in its name is left,
// but for a fenced lock's tokens, which outlive it.
func (p Place) requireNothing(t *testing.T, part string) {
	t.Helper()
	var left []string
	redistest.Eventually(t, prompt, func() bool {
		ks, err := redistest.Keys(t.Context(), p.Redis, part)
		if err != nil {
			return false
		}
		ks = slices.DeleteFunc(ks, func(k string) bool { return strings.HasPrefix(k, "redisson_lock_token:") })
		cs, err := redistest.Channels(t.Context(), p.Redis, part)
		left = append(ks, cs...)
		return err == nil && len(left) == 0
	}, "something is left with %s in its name", part)
}

// RunFaults plays the scenarios of faults that concern any lock, by their numbers.
func RunFaults(t *testing.T, p Place) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, Place)
	}{
		{"A09NoRenewalAfterTheRelease", noRenewalAfterRelease},
		{"A14CallerLeavesDuringTheGrant", callerLeaves},
		{"A14CancelledAtRandomMoments", cancelledAtRandom},
		{"A15CutLink", cutLink},
		{"A15Deleted", deleted},
		{"A18AcquireSentTwiceCountsOnce", acquireSentTwice},
		{"A19UnlockSentTwice", unlockSentTwice},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, p) })
	}
}

// Renewal must not outlive the release, however the two meet.
func noRenewalAfterRelease(t *testing.T, p Place) {
	const lease = 300 * time.Millisecond
	c := p.Connect(t, Link{Lease: lease})
	n := name(t)
	check := p.guard(t, c)
	var wg sync.WaitGroup
	for i := range 200 {
		l := c.Lock(n + "-" + strconv.Itoa(i%20))
		wg.Go(func() {
			for range 5 {
				ctx, cancel := context.WithCancel(t.Context())
				if rand.N(3) == 0 {
					time.AfterFunc(rand.N(2*time.Millisecond), cancel)
				}
				h, err := l.Lock(ctx)
				if err == nil {
					err = h.Unlock(ctx)
				}
				// On a slow machine a lease as short as this one may be over.
				if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, errs.ErrLost) {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	p.requireNothing(t, n+"-")
	check()
	c.Sent.Reset()
	throughout(t, lease, "something is still renewed", func() bool { return c.Sent.Count("evalsha", "eval") == 0 })
}

// A caller who leaves while the answer is on its way leaves nothing behind.
func callerLeaves(t *testing.T, p Place) {
	for _, deadline := range []bool{false, true} {
		c := p.Connect(t, Link{Lease: watched})
		n := name(t)
		l := c.warm(t, n)
		check := p.guard(t, c)
		answer := make(chan struct{})
		granted := c.add(faultproxy.Rule{Match: anyScript, Times: 1, Do: faultproxy.HoldReply(answer)})

		want := context.Canceled
		ctx, cancel := context.WithCancel(t.Context())
		if deadline {
			want = context.DeadlineExceeded
			ctx, cancel = context.WithTimeout(t.Context(), 1500*time.Millisecond) // after the grant
		}
		call := async(func() (*hold.Hold, error) { return l.Lock(ctx) })
		granted.await(t)
		held, err := p.Redis.Exists(t.Context(), n).Result()
		require.NoError(t, err)
		require.EqualValues(t, 1, held, "the server has granted it")
		if !deadline {
			cancel()
		}
		r := await(t, call, 4*time.Second, "the caller leaves at once") // the read would take 5 s
		require.ErrorIs(t, r.err, want)
		require.Nil(t, r.hold)
		close(answer)
		granted.remove()
		p.requireNothing(t, n)
		throughout(t, watched/2, "it came back", func() bool {
			held, err := p.Redis.Exists(t.Context(), n).Result()
			return err == nil && held == 0
		})
		check()
		cancel()
	}
}

// Cancelling at any moment leaves no key, no goroutine and no subscription.
func cancelledAtRandom(t *testing.T, p Place) {
	const workers, each = 30, 20
	c := p.Connect(t, Link{})
	n := name(t)
	c.each(func(x *faultproxy.Proxy) { x.SetLatency(time.Microsecond, 3*time.Millisecond) })
	check := p.guard(t, c)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for j := range each {
				l := c.Lock(n + "-" + strconv.Itoa((i+j)%10))
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(rand.N(12*time.Millisecond), cancel)
				h, err := l.Lock(ctx)
				switch {
				case err == nil:
					// Unlock may say ErrUncertain: ctx may end under it.
					if err := h.Unlock(ctx); err != nil && !errors.Is(err, errs.ErrUncertain) {
						t.Error(err)
					}
				case !errors.Is(err, context.Canceled):
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	p.requireNothing(t, n+"-")
	check()
}

// RequireLost waits for the end of a hold's context, by loss, and has its Unlock say so.
func RequireLost(t testing.TB, h *hold.Hold) {
	t.Helper()
	select {
	case <-h.Context().Done():
	case <-time.After(prompt):
		t.Fatal("the holder wasn't told")
	}
	require.ErrorIs(t, context.Cause(h.Context()), errs.ErrLost)
	err := h.Unlock(t.Context())
	require.ErrorIs(t, err, errs.ErrNotHeld)
	require.ErrorIs(t, err, errs.ErrLost)
}

// A holder that is cut off is told before its lease ends on the server.
func cutLink(t *testing.T, p Place) {
	c, other := p.Connect(t, Link{Lease: watched}), p.Connect(t, Link{Lease: never})
	n := name(t)
	h, err := c.Lock(n).Lock(t.Context())
	require.NoError(t, err)
	c.each(func(x *faultproxy.Proxy) { x.Refuse(true); x.Cut() })
	theirs, err := p.rival(other.Lock(n)).TryLock(t.Context(), hold.Wait(4*prompt))
	require.NoError(t, err)
	require.Error(t, h.Context().Err())
	c.each(func(x *faultproxy.Proxy) { x.Refuse(false) })
	RequireLost(t, h)
	require.NoError(t, theirs.Unlock(t.Context()), "the other's hold was touched")
}

// What no clock shows is told at the next renewal.
func deleted(t *testing.T, p Place) {
	other := p.Connect(t, Link{Lease: never})
	Patiently(t, 2*watched, func(lease time.Duration) bool {
		n := name(t)
		h, err := p.Connect(t, Link{Lease: lease}).Lock(n).Lock(t.Context())
		require.NoError(t, err)
		ends := h.ExpiresAt()
		require.NoError(t, p.Redis.Del(t.Context(), n).Err())
		theirs, err := p.rival(other.Lock(n)).TryLock(t.Context(), hold.Wait(prompt))
		require.NoError(t, err)
		RequireLost(t, h)
		early := time.Now().Before(ends) // else it was told by the end of the lease alone
		if !early {
			t.Logf("lease %v: told %v before its end", lease, time.Until(ends))
		}
		require.NoError(t, theirs.Unlock(t.Context()))
		return early
	})
}

// requireOnce holds and frees a lock whose acquisition meets a fault, and requires
// that it counts once.
func (p Place) requireOnce(t *testing.T, l hold.Locker) {
	t.Helper()
	h, err := l.Lock(t.Context())
	require.NoError(t, err)
	n, err := l.HoldCount(h.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoError(t, h.Unlock(t.Context()))
	held, err := p.Redis.Exists(t.Context(), l.Name()).Result()
	require.NoError(t, err)
	require.Zero(t, held, "one unlock doesn't free it")
}

// An acquisition that is sent again counts once.
func acquireSentTwice(t *testing.T, p Place) {
	for what, do := range map[string]faultproxy.Action{
		"reply dropped":       faultproxy.DropReply,
		"closed after it ran": faultproxy.CloseAfterForward,
		"request dropped":     faultproxy.DropRequest,
		"closed before":       faultproxy.CloseBeforeForward,
	} {
		t.Run(what, func(t *testing.T) {
			c := p.Connect(t, Link{Read: 300 * time.Millisecond, Lease: never})
			for _, times := range []int{1, 3} {
				l := c.warm(t, name(t))
				fault := c.add(faultproxy.Rule{Match: anyScript, Times: times, Do: do})
				p.requireOnce(t, l)
				require.Equal(t, times, fault.hits())
				fault.remove()
			}
		})
	}
	if !p.Quiet {
		return
	}
	t.Run("paused", func(t *testing.T) {
		l := p.Connect(t, Link{Read: 200 * time.Millisecond, Lease: never}).warm(t, name(t))
		require.NoError(t, redistest.EachMaster(t.Context(), p.Redis, func(ctx context.Context, rdb redis.UniversalClient) error {
			return rdb.Do(ctx, "client", "pause", 400, "all").Err()
		}))
		p.requireOnce(t, l)
	})
}

// An unlock whose answer was lost succeeds, takes one hold, and wakes.
func unlockSentTwice(t *testing.T, p Place) {
	for what, do := range map[string]faultproxy.Action{
		"reply dropped": faultproxy.DropReply, "closed after it ran": faultproxy.CloseAfterForward,
	} {
		t.Run(what, func(t *testing.T) {
			c, other := p.Connect(t, Link{Read: 300 * time.Millisecond, Lease: never}), p.Connect(t, Link{Poll: never, Lease: never})
			n := name(t)
			l := c.warm(t, n)
			ctx := owner.With(t.Context(), owner.Mint())
			for range 2 {
				_, err := l.Lock(ctx)
				require.NoError(t, err)
			}
			theirs := p.rival(other.Lock(n))
			waiter := async(func() (*hold.Hold, error) { return theirs.Lock(t.Context()) })
			redistest.Eventually(t, prompt, func() bool {
				// It has tried, subscribed, and tried again.
				channels, err := redistest.Channels(t.Context(), p.Redis, n)
				return err == nil && len(channels) > 0 && other.Sent.Count("evalsha", "eval") >= 2
			}, "nobody waits")

			for left := 1; left >= 0; left-- {
				lost := c.add(faultproxy.Rule{Match: anyScript, Times: 1, Do: do})
				require.NoError(t, l.Unlock(ctx))
				require.Equal(t, 1, lost.hits())
				lost.remove()
				n, err := l.HoldCount(ctx)
				require.NoError(t, err)
				require.Equal(t, left, n)
			}
			r := await(t, waiter, prompt, "the waiter is woken")
			require.NoError(t, r.err)
			err := l.Unlock(ctx)
			require.ErrorIs(t, err, errs.ErrNotHeld)
			require.NotErrorIs(t, err, errs.ErrLost)
			require.NoError(t, r.hold.Context().Err())
			require.NoError(t, r.hold.Unlock(t.Context()))
			p.requireNothing(t, n)
		})
	}
}

// result is what a call on another goroutine answered.
type result struct {
	hold *hold.Hold
	err  error
}

func async(f func() (*hold.Hold, error)) <-chan result {
	c := make(chan result, 1)
	go func() {
		h, err := f()
		c <- result{h, err}
	}()
	return c
}

func await(t *testing.T, c <-chan result, d time.Duration, what string) result {
	t.Helper()
	select {
	case r := <-c:
		return r
	case <-time.After(d):
		t.Fatalf("not within %v: %s", d, what)
		return result{}
	}
}

// throughout fails the test if cond is false at any time within d: that nothing
// happens takes time to see.
func throughout(t *testing.T, d time.Duration, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); <-tick.C {
		if !cond() {
			t.Fatal(what)
		}
	}
}
