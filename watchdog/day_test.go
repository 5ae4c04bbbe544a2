package watchdog

import (
	"context"
	"log/slog"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/task"
)

// A day of a thousand holds: each is renewed every third of its lease, in full batches, not
// once more or less; none is lost; and nothing has piled up by the evening.
func TestDayOfThousandHolds(t *testing.T) {
	const (
		holds, batch = 1000, 100
		rounds       = 24 * 36
		lasts        = 5 * time.Minute // renewed every 100 s
	)
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		times := make(map[*lease.Lease]*atomic.Int64, holds)
		tasks := task.NewGroup()
		w := New(Config{
			Lease: lasts, Batch: batch, Tasks: tasks, Log: slog.New(slog.DiscardHandler),
			Renew: func(_ context.Context, ls []*lease.Lease) []lease.Result {
				calls.Add(1)
				asked := time.Now()
				rs := make([]lease.Result, len(ls))
				for i, l := range ls {
					times[l].Add(1)
					rs[i] = lease.Result{Verdict: lease.Renewed, Asked: asked}
				}
				return rs
			},
		})
		var k keeper
		var renewal lease.Renewal
		all := make([]*lease.Lease, holds)
		for i := range all {
			l := &lease.Lease{Subject: &lease.Subject{Name: strconv.Itoa(i), Key: strconv.Itoa(i)}, Field: "c:o", Holder: &k, Renew: &renewal}
			l.Extend(time.Now(), lasts)
			all[i], times[l] = l, new(atomic.Int64)
		}
		for _, l := range all {
			w.Keep(l)
		}
		size := func() (bytes uint64, goroutines int) {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return m.HeapAlloc, runtime.NumGoroutine()
		}
		sleep(time.Hour + time.Second)
		bytes, goroutines := size()
		sleep(23 * time.Hour)
		later, then := size()

		require.EqualValues(t, rounds*holds/batch, calls.Load(), "scripts")
		for _, l := range all {
			require.EqualValues(t, rounds, times[l].Load(), "renewals of %s", l.Name)
			require.NoError(t, k.reason(l))
			require.Greater(t, time.Until(l.Deadline()), lasts/2)
		}
		require.Equal(t, holds, w.Len())
		require.Equal(t, goroutines, then)
		require.Less(t, later, bytes+64<<10, "bytes on the heap after one hour, and after 24")
		for _, l := range all {
			w.Stop(l)
		}
		require.Zero(t, w.Len())
		tasks.Stop()
		tasks.Wait()
	})
}
