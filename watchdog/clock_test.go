package watchdog

import (
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/task"
)

// suspended answers now as a machine sees it that was suspended for d: its wall
// clock has run on, its monotonic clock hasn't. No public way makes such a Time.
func suspended(now time.Time, d time.Duration) time.Time {
	const nsecBits = 30 // of Time.wall, below the seconds, if it has a monotonic part
	wall := (*uint64)(unsafe.Pointer(&now))
	*wall += uint64(d/time.Second) << nsecBits
	return now
}

// What only the wall clock shows is found at the next look, wherever in the heap
// it stands: there the order is that of the monotonic clock.
func TestSuspendedMachine(t *testing.T) {
	// No bubble: its clock has no monotonic part. No goroutine either: the looks
	// are ours.
	b := &bench{tasks: task.NewGroup()}
	b.Watchdog = &Watchdog{period: leaseTime / 3, wake: make(chan struct{}, 1), cfg: Config{
		Lease: leaseTime, Batch: 100, Renew: renewed, Tasks: b.tasks, Log: slog.New(slog.DiscardHandler),
	}}
	defer b.close()
	short := b.take(true)
	keep := func(d time.Duration, r *lease.Renewal) *lease.Lease {
		l := &lease.Lease{Holder: b, Renew: r}
		l.Extend(time.Now(), d)
		b.Keep(l)
		return l
	}
	long, alive := keep(time.Hour, nil), keep(24*time.Hour, &b.renewal)
	b.look(time.Now())

	now := suspended(time.Now(), 2*time.Hour)
	require.Less(t, time.Until(now), time.Minute, "the monotonic clock stood still")
	found := b.look(now)
	require.Len(t, found.over, 2)
	require.Contains(t, found.over, ended{Lease: short})
	require.Contains(t, found.over, ended{Lease: long})
	require.Len(t, found.batches, 1, "what is still ours is renewed at once")
	require.Equal(t, []*lease.Lease{alive}, found.batches[0].leases)
	for _, l := range found.over {
		require.True(t, l.Expire(now, errs.ErrLost))
	}
}

// Answers to renewals of before may come after the lease was kept anew.
func TestLateAnswersAfterKeptAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(renewed)
		defer b.close()
		l := b.take(true)
		b.Watchdog.mu.Lock()
		l.Watch.Sent = 3 // three under way
		for range 3 {
			b.flying = append(b.flying, &batch{leases: []*lease.Lease{l}})
		}
		sent := slices.Clone(b.flying)
		b.Watchdog.mu.Unlock()
		b.Stop(l)
		b.Keep(l)
		for _, s := range sent {
			b.renew(s)
		}
		b.Watchdog.mu.Lock()
		require.Zero(t, l.Watch.Sent)
		b.Watchdog.mu.Unlock()
		sleep(2 * leaseTime)
		require.NoError(t, b.reason(l))
	})
}
