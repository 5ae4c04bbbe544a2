package scenario

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rlock"
)

// alone hides what a lock is, as a type of the user's own around it does: such
// members are taken one by one.
type alone struct{ rlock.Locker }

// MultiInterruptedHalfWay is A36: whatever stops the acquisition of a multi lock of
// five names, on a cluster in as many slots, nothing of it stays.
func (p Place) MultiInterruptedHalfWay(t *testing.T) {
	rdb := p.Redis(t)
	look := p.Connect(t)
	for way, wrap := range map[string]func(rlock.Locker) rlock.Locker{
		"together":   func(l rlock.Locker) rlock.Locker { return l },
		"one by one": func(l rlock.Locker) rlock.Locker { return alone{l} },
	} {
		n := t.Name() + way
		make5 := func(c *holdfast.Client) *rlock.MultiLock {
			var ls []rlock.Locker
			for i := range 5 {
				ls = append(ls, wrap(c.Lock(n+strconv.Itoa(i))))
			}
			return c.MultiLock(ls...)
		}
		requireFree := func() {
			t.Helper()
			redistest.Eventually(t, prompt, func() bool {
				left, err := redistest.Keys(t.Context(), rdb, n)
				return err == nil && len(left) == 0
			}, "%s: members are held", way)
		}
		c := p.Via(t, locktest.Link{Read: 300 * time.Millisecond, Lease: never}, holdfast.WithCommandTimeout(2*time.Second))
		l := make5(c.Client)
		for range 2 { // the scripts are known from here on
			h, err := l.Lock(t.Context())
			require.NoError(t, err)
			require.NoError(t, h.Unlock(t.Context()))
		}
		// from makes the fault happen to the scripts from the nth on, times often, and
		// calls seen then. It is to be ended before the fault's consequences can.
		from := func(nth, times int32, do faultproxy.Action, seen func()) (end func() int32) {
			var count atomic.Int32
			faults := c.Add(faultproxy.Rule{Do: do, Match: func(cmd []string) bool {
				if !faultproxy.Cmd("evalsha", "eval")(cmd) {
					return false
				}
				n := count.Add(1)
				if n == nth {
					seen()
				}
				return n >= nth && n < nth+times
			}})
			return func() int32 {
				for _, f := range faults {
					f.Remove()
				}
				return count.Load()
			}
		}
		nothing := func() {}

		// On a single server all members together are one script; else there is one
		// for each slot, or for each member.
		end := from(1, 0, faultproxy.Pass, nothing)
		h, err := l.Lock(t.Context())
		require.NoError(t, err)
		steps := end()
		require.NotZero(t, steps)
		require.NoError(t, h.Unlock(t.Context()))

		for _, nth := range []int32{(steps + 1) / 2, steps} {
			arrives := make(chan struct{})
			ctx, cancel := context.WithCancel(t.Context())
			end := from(nth, 1, faultproxy.HoldReply(arrives), cancel)
			_, err := l.Lock(ctx)
			require.ErrorIs(t, err, context.Canceled)
			end()
			close(arrives)
			requireFree()

			end = from(nth, 1, faultproxy.DropReply, nothing)
			h, err := l.Lock(t.Context())
			require.NoError(t, err)
			require.Greater(t, end(), steps, "the fault wasn't made")
			count, err := l.HoldCount(h.Context())
			require.NoError(t, err)
			require.Equal(t, 1, count)
			require.NoError(t, h.Unlock(t.Context()))
			requireFree()

			end = from(nth, 1<<20, faultproxy.DropReply, nothing)
			_, err = l.TryLock(t.Context())
			require.ErrorIs(t, err, holdfast.ErrUnavailable)
			require.GreaterOrEqual(t, end(), nth, "the fault wasn't made")
			requireFree()
		}

		blocker, err := look.Lock(n + "3").Lock(t.Context())
		require.NoError(t, err)
		_, err = l.TryLock(t.Context(), holdfast.Wait(100*time.Millisecond))
		require.ErrorIs(t, err, holdfast.ErrNotAcquired)
		left, err := redistest.Keys(t.Context(), rdb, n)
		require.NoError(t, err)
		require.Equal(t, []string{n + "3"}, left, "nothing else is held when the call returns")
		require.NoError(t, blocker.Unlock(t.Context()))
		requireFree()
	}
}
