package watchdog

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/task"
)

// keeper is a holder that remembers what it was told.
type keeper struct {
	mu     sync.Mutex
	ended  map[*lease.Lease]error
	at     map[*lease.Lease]time.Time
	orphan bool
}

func (k *keeper) LeaseEnded(l *lease.Lease, why error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended == nil {
		k.ended, k.at = map[*lease.Lease]error{}, map[*lease.Lease]time.Time{}
	}
	k.ended[l], k.at[l] = why, time.Now()
}

func (k *keeper) Orphaned() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.orphan
}

func (k *keeper) reason(l *lease.Lease) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ended[l]
}

// bench is a watchdog in a bubble, with a server made of a function.
type bench struct {
	*Watchdog
	tasks *task.Group
	keeper
	renewal lease.Renewal

	mu    sync.Mutex
	calls []int // sizes of the batches sent
}

const leaseTime = 30 * time.Second

func newBench(answer func(ctx context.Context, ls []*lease.Lease) []lease.Result) *bench {
	b := &bench{tasks: task.NewGroup()}
	b.Watchdog = New(Config{
		Lease: leaseTime, Batch: 100, Tasks: b.tasks, Log: slog.New(slog.DiscardHandler),
		Renew: func(ctx context.Context, ls []*lease.Lease) []lease.Result {
			b.mu.Lock()
			b.calls = append(b.calls, len(ls))
			b.mu.Unlock()
			return answer(ctx, ls)
		},
	})
	return b
}

func (b *bench) close() {
	b.tasks.Stop()
	b.tasks.Wait()
}

// take makes a lease that was just granted, and has it kept.
func (b *bench) take(renewed bool) *lease.Lease {
	l := &lease.Lease{Subject: &lease.Subject{Name: "n", Key: "n"}, Field: "c:o", Holder: b}
	if renewed {
		l.Renew = &b.renewal
	}
	l.Extend(time.Now(), leaseTime)
	b.Keep(l)
	return l
}

func (b *bench) sent() (calls, names int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.calls {
		names += n
	}
	return len(b.calls), names
}

func renewed(_ context.Context, ls []*lease.Lease) []lease.Result {
	rs := make([]lease.Result, len(ls))
	for i := range rs {
		rs[i] = lease.Result{Verdict: lease.Renewed, Asked: time.Now()}
	}
	return rs
}

func unknown(_ context.Context, ls []*lease.Lease) []lease.Result {
	rs := make([]lease.Result, len(ls))
	for i := range rs {
		rs[i] = lease.Result{Err: errs.ErrUnavailable}
	}
	return rs
}

func sleep(d time.Duration) {
	time.Sleep(d) // in a bubble: the fake clock
	synctest.Wait()
}

// Those that are stopped before the watchdog has looked at them, in whichever order, are
// the ones that it doesn't renew.
func TestStoppedBeforeTheFirstLook(t *testing.T) {
	const leases = 4
	order := make([]int, leases)
	for i := range order {
		order[i] = i
	}
	for range 50 {
		rand.Shuffle(leases, func(i, j int) { order[i], order[j] = order[j], order[i] })
		for stopped := range leases + 1 {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(renewed)
				defer b.close()
				sleep(0) // it sleeps
				var ls []*lease.Lease
				for range leases {
					ls = append(ls, b.take(true))
				}
				for _, i := range order[:stopped] {
					b.Stop(ls[i])
					b.Stop(ls[i])
				}
				require.Equal(t, leases-stopped, b.Len())
				began := time.Now()
				sleep(leaseTime / 2)
				for n, i := range order {
					again := ls[i].Deadline().Sub(began) > leaseTime
					require.Equal(t, n >= stopped, again, "%d of %v, of which %d were stopped", i, order, stopped)
				}
			})
		}
	}
}

func TestRenewsEveryThirdAndKeepsForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(renewed)
		defer b.close()
		l := b.take(true)
		sleep(24*time.Hour + time.Second)
		require.NoError(t, b.reason(l))
		calls, _ := b.sent()
		require.Equal(t, 24*360, calls, "one renewal every 10 s")
		require.Greater(t, time.Until(l.Deadline()), 15*time.Second)
	})
}

// The deadline is asked + lease - margin: not a nanosecond earlier, and before
// the server can let the key go.
func TestLostWhenRedisStopsAnswering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		b := newBench(func(ctx context.Context, ls []*lease.Lease) []lease.Result {
			if time.Since(start) <= 10*time.Second {
				return renewed(ctx, ls)
			}
			<-ctx.Done()
			return unknown(ctx, ls)
		})
		defer b.close()
		l := b.take(true)
		deadline := 10*time.Second + leaseTime - lease.Margin(leaseTime)
		sleep(deadline - time.Nanosecond)
		require.NoError(t, b.reason(l), "lost early")
		sleep(time.Nanosecond)
		require.ErrorIs(t, b.reason(l), errs.ErrLost)
		require.Zero(t, b.Len())
	})
}

// A renewal on a connection that is stuck is not the last: others go out beside
// it, and one of them is enough.
func TestStuckRenewalIsTriedOnAnotherConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		var mu sync.Mutex
		b := newBench(func(ctx context.Context, ls []*lease.Lease) []lease.Result {
			mu.Lock()
			stuck := first
			first = false
			mu.Unlock()
			if stuck {
				<-ctx.Done()
			}
			return renewed(ctx, ls)
		})
		defer b.close()
		l := b.take(true)
		sleep(10 * leaseTime)
		require.NoError(t, b.reason(l))
	})
}

// A failed renewal is tried again, with pauses, and the next holds of the name
// are renewed as ever.
func TestFailedRenewalsAreRetriedNotHammered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failing := true
		var mu sync.Mutex
		b := newBench(func(ctx context.Context, ls []*lease.Lease) []lease.Result {
			mu.Lock()
			defer mu.Unlock()
			if failing {
				return unknown(ctx, ls)
			}
			return renewed(ctx, ls)
		})
		defer b.close()
		l := b.take(true)
		sleep(25 * time.Second)
		calls, _ := b.sent()
		require.Greater(t, calls, 10, "it gave up")
		require.Less(t, calls, 40, "it hammered")
		mu.Lock()
		failing = false
		mu.Unlock()
		sleep(5 * leaseTime)
		require.NoError(t, b.reason(l), "an answer in time saves the hold")

		mu.Lock()
		failing = true
		mu.Unlock()
		sleep(leaseTime)
		require.ErrorIs(t, b.reason(l), errs.ErrLost)
		require.ErrorIs(t, b.reason(l), errs.ErrUnavailable, "the reason is told along")
		mu.Lock()
		failing = false
		mu.Unlock()
		again := b.take(true)
		sleep(5 * leaseTime)
		require.NoError(t, b.reason(again))
	})
}

func TestGoneIsToldAtTheRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(func(_ context.Context, ls []*lease.Lease) []lease.Result {
			rs := make([]lease.Result, len(ls))
			for i := range rs {
				rs[i] = lease.Result{Verdict: lease.Gone, Asked: time.Now()}
			}
			return rs
		})
		defer b.close()
		l := b.take(true)
		sleep(leaseTime/3 - time.Nanosecond)
		require.NoError(t, b.reason(l))
		sleep(time.Nanosecond)
		require.ErrorIs(t, b.reason(l), errs.ErrLost)
		sleep(5 * leaseTime)
		calls, _ := b.sent()
		require.Equal(t, 1, calls, "what is lost is renewed no more")
	})
}

// F-A09: a renewal never outlives the release, however the two overlap; and
// what is answered to one under way at the release changes nothing.
func TestA09StopAndKeepCantOvertake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(func(ctx context.Context, ls []*lease.Lease) []lease.Result {
			select {
			case <-time.After(rand.N(5 * time.Second)):
			case <-ctx.Done():
			}
			return renewed(ctx, ls)
		})
		defer b.close()
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				for range 20 {
					l := &lease.Lease{Subject: &lease.Subject{Name: "n"}, Holder: b, Renew: &b.renewal}
					l.Extend(time.Now(), leaseTime)
					var both sync.WaitGroup
					both.Go(func() { b.Keep(l) })
					both.Go(func() {
						time.Sleep(rand.N(3 * leaseTime))
						l.Close()
						b.Stop(l)
					})
					both.Wait()
					b.Keep(l) // a start that was late: the lease is over
				}
			})
		}
		wg.Wait()
		require.Zero(t, b.Len())
		before, _ := b.sent()
		sleep(3 * leaseTime)
		after, _ := b.sent()
		require.Equal(t, before, after, "renewed after the release")
	})
}

func TestBatchesAreFullAndFallIntoStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(renewed)
		defer b.close()
		const holds, periods = 2000, 10
		for range holds {
			b.take(true)
			time.Sleep(rand.N(5 * time.Millisecond)) // taken over some 5 s
		}
		sleep(leaseTime)
		before, _ := b.sent()
		sleep(periods * leaseTime / 3)
		calls, names := b.sent()
		perPeriod := float64(calls-before) / periods
		require.LessOrEqual(t, perPeriod, 25.0, "2000 names need 20 calls a period")
		require.GreaterOrEqual(t, names, periods*holds)
		for _, n := range b.calls {
			require.LessOrEqual(t, n, 100)
		}
	})
}

// A batch that gets no answer holds up no deadline and no other batch, and the
// number of goroutines is bounded.
func TestStuckBatchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		inFlight, most := 0, 0
		b := newBench(func(ctx context.Context, ls []*lease.Lease) []lease.Result {
			mu.Lock()
			inFlight++
			most = max(most, inFlight)
			mu.Unlock()
			<-ctx.Done()
			return unknown(ctx, ls)
		})
		defer b.close()
		var ls []*lease.Lease
		for range 3000 {
			ls = append(ls, b.take(true))
		}
		fixed := b.take(false)
		sleep(leaseTime)
		for _, l := range append(ls, fixed) {
			require.ErrorIs(t, b.reason(l), errs.ErrLost)
			b.keeper.mu.Lock()
			require.False(t, b.at[l].After(l.Deadline()), "told late")
			b.keeper.mu.Unlock()
		}
		require.LessOrEqual(t, most, maxInFlight+maxStuck)
	})
}

// Batches that got no answer in time don't keep a later name from being renewed.
func TestStuckBatchesLeavePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var silent atomic.Bool
		b := newBench(func(ctx context.Context, ls []*lease.Lease) []lease.Result {
			if silent.Load() {
				<-ctx.Done() // longer than any lease
				return unknown(ctx, ls)
			}
			return renewed(ctx, ls)
		})
		defer b.close()
		first := b.take(true)
		silent.Store(true)
		sleep(leaseTime)
		require.ErrorIs(t, b.reason(first), errs.ErrLost)
		silent.Store(false)
		second := b.take(true)
		sleep(5 * leaseTime)
		require.NoError(t, b.reason(second))
	})
}

func TestFixedLeaseIsNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(renewed)
		defer b.close()
		l := b.take(false)
		sleep(leaseTime)
		require.ErrorIs(t, b.reason(l), errs.ErrLost)
		calls, _ := b.sent()
		require.Zero(t, calls)
	})
}

func TestExtendedLeaseLastsLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(renewed)
		defer b.close()
		l := b.take(false)
		sleep(leaseTime / 2)
		require.True(t, l.Extend(time.Now(), leaseTime))
		b.Reschedule(l)
		sleep(leaseTime - lease.Margin(leaseTime) - time.Nanosecond)
		require.NoError(t, b.reason(l))
		sleep(time.Nanosecond)
		require.ErrorIs(t, b.reason(l), errs.ErrLost)
	})
}

func TestOrphanIsRenewedNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(renewed)
		defer b.close()
		l := b.take(true)
		sleep(leaseTime)
		require.NoError(t, b.reason(l))
		b.keeper.mu.Lock()
		b.orphan = true
		b.keeper.mu.Unlock()
		before, _ := b.sent()
		sleep(leaseTime)
		after, _ := b.sent()
		require.Equal(t, before, after)
		require.ErrorIs(t, b.reason(l), errs.ErrLost)
	})
}

// After a hundred thousand holds that came and went nothing is left to slow
// down the next renewal.
func TestNothingIsLeftOfHoldsThatWent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(renewed)
		defer b.close()
		for range 100_000 {
			l := b.take(true)
			l.Close()
			b.Stop(l)
		}
		require.Zero(t, b.Len())
		require.Empty(t, b.heap)
		sleep(leaseTime)
		calls, _ := b.sent()
		require.Zero(t, calls)
	})
}

func TestCloseEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(func(ctx context.Context, ls []*lease.Lease) []lease.Result {
			<-ctx.Done()
			require.True(t, errors.Is(context.Cause(ctx), errs.ErrClosed))
			return unknown(ctx, ls)
		})
		b.take(true)
		sleep(leaseTime / 2) // a renewal is under way
		b.close()
		// The bubble fails if a goroutine outlives this.
	})
}
