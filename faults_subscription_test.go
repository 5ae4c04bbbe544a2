package holdfast_test

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rlock"
)

// Faults A39 to A42: what waiting costs, and what is left of it.

// gone is within what a channel nobody waits on is off the server: a second is
// promised, the rest is the machine's.
const gone = 2 * time.Second

// subscribers is the number of connections with subscriptions.
func subscribers(t *testing.T, rdb *redis.Client) int {
	t.Helper()
	list, err := rdb.Do(context.Background(), "client", "list", "type", "pubsub").Text()
	require.NoError(t, err)
	return strings.Count(list, "\n")
}

func channels(t *testing.T, rdb *redis.Client) int {
	t.Helper()
	names, err := rdb.PubSubChannels(context.Background(), "*").Result()
	require.NoError(t, err)
	return len(names)
}

// served is how often a server carried out a command, rejected how often it
// refused to.
func served(t *testing.T, rdb *redis.Client, command string) (calls, rejected int) {
	t.Helper()
	info, err := rdb.Info(context.Background(), "commandstats").Result()
	require.NoError(t, err)
	m := regexp.MustCompile(`cmdstat_` + command + `:calls=(\d+),.*rejected_calls=(\d+)`).FindStringSubmatch(info)
	if m == nil {
		return 0, 0
	}
	calls, err = strconv.Atoi(m[1])
	require.NoError(t, err)
	rejected, err = strconv.Atoi(m[2])
	require.NoError(t, err)
	return calls, rejected
}

func TestA39NothingStaysSubscribed(t *testing.T) {
	const names, batch = 2000, 500
	srv := redistest.Start(t)
	p1 := newParty(t, srv.Client(t), holdfast.WithLease(never))
	p2 := newParty(t, srv.Client(t), holdfast.WithPollFallback(deaf))
	admin := srv.Client(t)
	key := func(i int) string { return fmt.Sprintf("n%d", i) }

	// The first wait brings what stays.
	require.NoError(t, admin.HSet(t.Context(), "first", "ghost", 1).Err())
	require.ErrorIs(t, locktest.Answered(func() error {
		_, err := p2.Lock("first").TryLock(t.Context(), rlock.Wait(50*time.Millisecond))
		return err
	}), holdfast.ErrNotAcquired)
	eventually(t, "the first channel is gone", func() bool { return channels(t, admin) == 0 })
	idle := subscribers(t, admin)
	goroutines := runtime.NumGoroutine()

	for from := 0; from < names; from += batch {
		holds := make([]*rlock.Hold, batch)
		waiters := make([]<-chan verdict, batch)
		cancels := make([]context.CancelFunc, batch)
		for i := range batch {
			name := key(from + i)
			h, err := p1.Lock(name).Lock(t.Context())
			require.NoError(t, err)
			holds[i] = h
			ctx, cancel := context.WithCancel(t.Context())
			cancels[i] = cancel
			waiters[i] = begin(func() (*rlock.Hold, error) {
				if i%4 == 1 {
					return p2.Lock(name).TryLock(ctx, rlock.Wait(time.Second)) // among 500 a try takes a while
				}
				return p2.Lock(name).Lock(ctx)
			})
		}
		if from/batch%2 == 0 { // else in whatever state they are
			eventually(t, "those who stay listen", func() bool { return channels(t, admin) >= batch*3/4 })
		}
		for i := range batch {
			switch i % 4 {
			case 0:
				require.NoError(t, holds[i].Unlock(t.Context()))
			case 2:
				cancels[i]()
			case 3: // somebody puts something else there
				require.NoError(t, admin.Set(t.Context(), key(from+i), "x", 0).Err())
				require.NoError(t, admin.Publish(t.Context(), channelOf(key(from+i)), "0").Err())
			}
		}
		for i, w := range waiters {
			v := ended(t, w, prompt)
			cancels[i]()
			switch i % 4 {
			case 0:
				require.NoError(t, v.err)
				require.NoError(t, v.hold.Unlock(t.Context()))
			case 1:
				require.ErrorIs(t, v.err, holdfast.ErrNotAcquired)
			case 2:
				require.ErrorIs(t, v.err, context.Canceled)
			case 3:
				require.ErrorIs(t, v.err, holdfast.ErrInvalid)
			}
		}
	}
	redistest.Eventually(t, gone, func() bool { return channels(t, admin) == 0 }, "channels stay subscribed")
	require.Equal(t, idle, subscribers(t, admin))
	redistest.Eventually(t, gone, func() bool { return runtime.NumGoroutine() <= goroutines+5 }, "goroutines are left")

	require.ErrorIs(t, locktest.Answered(func() error {
		_, err := p2.Lock("first").TryLock(t.Context(), rlock.Wait(50*time.Millisecond))
		return err
	}), holdfast.ErrNotAcquired)
	require.Zero(t, p2.log.count("connection lost"), p2.log)
}

// A wait whose subscription is never answered ends as it should, and the next
// one on the name is woken as if nothing had been.
func TestA39TimedOutSubscriptionPoisonsNothing(t *testing.T) {
	t.Parallel() // it waits for the hub to give the link up
	srv := redistest.Start(t)
	p := faultproxy.New(t, srv.Addr())
	p1 := newParty(t, srv.Client(t), holdfast.WithLease(never))
	p2 := newParty(t, srv.Client(t, through(p)), holdfast.WithPollFallback(deaf))
	admin := srv.Client(t)
	a, err := p1.Lock("n").Lock(t.Context())
	require.NoError(t, err)
	fault := p.Add(faultproxy.Rule{Match: faultproxy.Cmd("subscribe"), Times: 1, Do: faultproxy.DropReply})
	b := ended(t, begin(func() (*rlock.Hold, error) {
		return p2.Lock("n").TryLock(t.Context(), rlock.Wait(2*time.Second))
	}), 2*time.Second+prompt)
	require.ErrorIs(t, b.err, holdfast.ErrNotAcquired)
	require.Equal(t, 1, fault.Hits())

	// From here on the link is sound.
	before := p2.answered.count()
	c := begin(func() (*rlock.Hold, error) { return p2.Lock("n").Lock(t.Context()) })
	redistest.Eventually(t, 4*prompt, func() bool { return p2.answered.count() >= before+2 }, "not confirmed")
	waits(t, c)
	require.NoError(t, a.Unlock(t.Context()))
	v := granted(t, c, prompt)
	require.NoError(t, v.hold.Unlock(t.Context()))
	redistest.Eventually(t, gone, func() bool { return channels(t, admin) == 0 }, "channels stay subscribed")
}

func TestA40OneConnectionForAllWaiters(t *testing.T) {
	const names, each = 500, 4
	srv := redistest.Start(t)
	p1 := newParty(t, srv.Client(t), holdfast.WithLease(never))
	p2 := newParty(t, srv.Client(t))
	admin := srv.Client(t)
	var holds []*rlock.Hold
	for i := range names {
		h, err := p1.Lock(fmt.Sprint("n", i)).Lock(t.Context())
		require.NoError(t, err)
		holds = append(holds, h)
	}
	var waiters []<-chan verdict
	for i := range names * each {
		waiters = append(waiters, begin(func() (*rlock.Hold, error) {
			h, err := p2.Lock(fmt.Sprint("n", i%names)).TryLock(t.Context(), rlock.Wait(10*time.Second))
			if err == nil {
				err = h.Unlock(t.Context())
			}
			return h, err
		}))
	}
	eventually(t, "all names are listened to", func() bool { return channels(t, admin) == names })
	require.Equal(t, 1, subscribers(t, admin))
	eventually(t, "everybody sleeps", func() bool { return p2.answered.count() >= 2*names })
	for _, h := range holds {
		require.NoError(t, h.Unlock(t.Context()))
	}
	for _, w := range waiters {
		granted(t, w, 10*time.Second)
	}
	calls, _ := served(t, admin, "subscribe")
	// One SUBSCRIBE is in flight at a time and takes along all names that came
	// meanwhile: how many depends on the machine, one a name would be none.
	require.LessOrEqual(t, calls, names/4)
	require.LessOrEqual(t, p2.scripts(), 2*names+2*names*each+names*each/2)
	redistest.Eventually(t, gone, func() bool { return channels(t, admin) == 0 }, "channels stay subscribed")
}

// A subscription that doesn't come uses up the time to wait, and doesn't make a
// free lock taken.
func TestA40LateSubscriptionEndsWithALastTry(t *testing.T) {
	t.Parallel() // it mostly waits
	const wait = 3 * time.Second
	p := faultproxy.New(t, server.Addr())
	p1 := newParty(t, server.Client(t), holdfast.WithLease(never))
	p2 := newParty(t, server.Client(t, through(p)), holdfast.WithPollFallback(deaf))
	a, err := p1.Lock(t.Name()).Lock(t.Context())
	require.NoError(t, err)
	gate := make(chan struct{})
	defer close(gate)
	fault := p.Add(faultproxy.Rule{Match: faultproxy.Cmd("subscribe"), Do: faultproxy.HoldRequest(gate)})
	var waiters []<-chan verdict
	for range 4 {
		waiters = append(waiters, begin(func() (*rlock.Hold, error) {
			return p2.Lock(t.Name()).TryLock(t.Context(), rlock.Wait(wait))
		}))
	}
	happens(t, fault.Done(), "SUBSCRIBE")
	require.NoError(t, a.Unlock(t.Context())) // unheard
	var got []*rlock.Hold
	for _, w := range waiters {
		v := ended(t, w, wait+prompt)
		require.GreaterOrEqual(t, v.took, wait)
		if v.err == nil {
			got = append(got, v.hold)
		} else {
			require.ErrorIs(t, v.err, holdfast.ErrNotAcquired)
		}
	}
	require.Len(t, got, 1, "a free lock was called taken")
	require.NoError(t, got[0].Unlock(t.Context()))
}

func TestA41PubSubNotAllowed(t *testing.T) {
	const poll = 300 * time.Millisecond
	for what, c := range map[string]struct {
		rules []any
		mute  bool // PUBLISH is refused, too
	}{
		"no channels":      {[]any{"+@all", "resetchannels"}, true},
		"no SUBSCRIBE":     {[]any{"+@all", "-subscribe", "allchannels"}, false},
		"no pub/sub group": {[]any{"+@all", "-@pubsub", "resetchannels"}, true},
	} {
		t.Run(what, func(t *testing.T) {
			srv := redistest.Start(t)
			admin := srv.Client(t)
			rules := append([]any{"acl", "setuser", "app", "reset", "on", ">secret", "allkeys"}, c.rules...)
			require.NoError(t, admin.Do(t.Context(), rules...).Err())
			as := func(o *redis.Options) { o.Username, o.Password = "app", "secret" }
			p1 := newParty(t, srv.Client(t, as), holdfast.WithLease(never), holdfast.WithPollFallback(deaf))
			p2 := newParty(t, srv.Client(t, as), holdfast.WithPollFallback(poll))

			a, err := p1.Lock("n").Lock(t.Context())
			require.NoError(t, err)
			require.NoError(t, a.Unlock(t.Context()))
			require.False(t, exists(t, admin, "n"), "the notification's failure kept the lock")

			// A waiter of another process lives on its poll.
			a, err = p1.Lock("n").Lock(t.Context())
			require.NoError(t, err)
			b := begin(func() (*rlock.Hold, error) { return p2.Lock("n").Lock(t.Context()) })
			eventually(t, "the refusal is told", func() bool { return p2.log.count("SUBSCRIBE was refused") > 0 })
			require.Contains(t, p2.log.String(), "NOPERM")
			before, start := p2.scripts(), time.Now()
			_, err = p2.Lock("n").TryLock(t.Context(), rlock.Wait(3*poll))
			require.ErrorIs(t, err, holdfast.ErrNotAcquired)
			require.LessOrEqual(t, p2.scripts()-before, int(time.Since(start)/poll)+2, "it spins")
			require.NoError(t, a.Unlock(t.Context()))
			v := granted(t, b, poll+prompt)
			require.Equal(t, c.mute, p1.log.count("PUBLISH is refused") > 0, p1.log)

			// One of the same process is told in the process, poll or not.
			d := begin(func() (*rlock.Hold, error) { return p1.Lock("n").Lock(t.Context()) })
			eventually(t, "the refusal is told", func() bool { return p1.log.count("SUBSCRIBE was refused") > 0 })
			waits(t, d)
			opened, err := p1.Lock("n").ForceUnlock(t.Context())
			require.NoError(t, err)
			require.True(t, opened)
			w := granted(t, d, prompt)
			require.ErrorIs(t, v.hold.Unlock(t.Context()), holdfast.ErrLost)
			require.NoError(t, w.hold.Unlock(t.Context()))
			require.False(t, exists(t, admin, "n"))

			_, rejected := served(t, admin, "subscribe")
			require.LessOrEqual(t, rejected, 8, "SUBSCRIBE is sent again and again")
			require.LessOrEqual(t, p2.log.count("SUBSCRIBE was refused"), 4, "the log is flooded")
		})
	}
}

func TestA42NoStampede(t *testing.T) {
	t.Parallel() // it waits
	const waiters, others = 400, 100
	srv := redistest.Start(t)
	p1 := newParty(t, srv.Client(t))
	p2 := newParty(t, srv.Client(t))
	p3 := newParty(t, srv.Client(t))
	clock := newParty(t, srv.Client(t))
	a, err := p1.Lock("n").Lock(t.Context())
	require.NoError(t, err)
	inside := 0 // guarded by the lock alone
	wait := func(p *party) <-chan verdict {
		return begin(func() (*rlock.Hold, error) {
			h, err := p.Lock("n").Lock(t.Context())
			if err != nil {
				return nil, err
			}
			inside++
			<-time.After(time.Millisecond) // its work
			return h, h.Unlock(t.Context())
		})
	}
	var all []<-chan verdict
	for range waiters {
		all = append(all, wait(p2))
	}
	for range others {
		all = append(all, wait(p3))
	}

	const idle = 6 * time.Second // longer than the poll
	_, err = clock.Lock("n").TryLock(t.Context(), rlock.Wait(idle))
	require.ErrorIs(t, err, holdfast.ErrNotAcquired)
	for _, p := range []*party{p2, p3} {
		require.LessOrEqual(t, p.scripts(), 6, "waiting is no work")
	}
	before := p2.scripts() + p3.scripts()

	require.NoError(t, a.Unlock(t.Context()))
	for _, w := range all {
		granted(t, w, 4*prompt)
	}
	require.Equal(t, waiters+others, inside)
	releases := 1 + waiters + others
	require.LessOrEqual(t, p2.scripts()+p3.scripts()-before, releases+2*releases+releases/5,
		"a release is one unlock, and one try a process")
}

func TestA42OldSignalsAreNotBurnedLater(t *testing.T) {
	const own, bursts, messages = 2000, 5, 1600 // 10,000 releases
	p1 := newParty(t, server.Client(t), holdfast.WithLease(never))
	p2 := newParty(t, server.Client(t), holdfast.WithPollFallback(deaf))
	admin := server.Client(t)
	name := t.Name()
	for range own {
		h, err := p2.Lock(name).TryLock(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Unlock(t.Context()))
	}

	h, err := p1.Lock(name).Lock(t.Context())
	require.NoError(t, err)
	for range bursts {
		before := p2.scripts()
		_, err := p2.Lock(name).TryLock(t.Context(), rlock.Wait(300*time.Millisecond))
		require.ErrorIs(t, err, holdfast.ErrNotAcquired)
		require.LessOrEqual(t, p2.scripts()-before, 3, "it spins through old signals")
		// These find the channel still subscribed, with nobody waiting.
		pipe := admin.Pipeline()
		for range messages {
			pipe.Publish(t.Context(), channelOf(name), "0")
		}
		_, err = pipe.Exec(t.Context())
		require.NoError(t, err)
		// One connection keeps order: when this is heard, they have come.
		m, err := p1.Lock(name + "-behind").Lock(t.Context())
		require.NoError(t, err)
		seen := p2.answered.count()
		behind := begin(func() (*rlock.Hold, error) { return p2.Lock(name + "-behind").Lock(t.Context()) })
		eventually(t, "it sleeps", func() bool { return p2.answered.count() >= seen+2 })
		require.NoError(t, m.Unlock(t.Context()))
		require.NoError(t, granted(t, behind, prompt).hold.Unlock(t.Context()))
	}
	require.NoError(t, h.Unlock(t.Context()))
}
