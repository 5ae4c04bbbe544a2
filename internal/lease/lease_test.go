package lease

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/errs"
)

func TestMargin(t *testing.T) {
	for d, margin := range map[time.Duration]time.Duration{
		time.Millisecond:       250 * time.Microsecond,
		20 * time.Millisecond:  5 * time.Millisecond,
		40 * time.Millisecond:  10 * time.Millisecond,
		time.Second:            10 * time.Millisecond,
		30 * time.Second:       300 * time.Millisecond,
		100 * time.Millisecond: 10 * time.Millisecond,
	} {
		require.Equal(t, margin, Margin(d), d)
	}
}

// A positive lease never rounds to none, and the longest doesn't overflow.
func TestRound(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{
		1: time.Millisecond, time.Millisecond: time.Millisecond,
		1500 * time.Microsecond: 2 * time.Millisecond, math.MaxInt64: Max,
	} {
		require.Equal(t, want, Round(d))
	}
	require.ErrorIs(t, Check(0, "lease"), errs.ErrInvalid)
	require.ErrorIs(t, Check(-1, "lease"), errs.ErrInvalid)
	require.Less(t, Max.Milliseconds(), int64(1)<<53, "a Lua number holds it exactly")
}

type holder struct{ ended []error }

func (h *holder) LeaseEnded(_ *Lease, why error) { h.ended = append(h.ended, why) }
func (h *holder) Orphaned() bool                 { return false }

func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &holder{}
		l := &Lease{Holder: h}
		asked := time.Now()
		require.True(t, l.Extend(asked, time.Second))
		end := asked.Add(time.Second - Margin(time.Second))
		require.Equal(t, end, l.Deadline())
		require.True(t, l.Extend(asked, time.Millisecond))
		require.Equal(t, end, l.Deadline(), "a deadline never moves back")

		require.False(t, l.Passed(end.Add(-1)))
		require.True(t, l.Passed(end))
		require.False(t, l.Expire(end.Add(-1), errs.ErrLost))
		require.True(t, l.Expire(end, errs.ErrLost))
		require.True(t, l.Expire(end, errs.ErrLost))
		l.Lose(errs.ErrLost)
		require.Len(t, h.ended, 1, "told once")
		require.False(t, l.Extend(end, time.Hour), "what is over stays over")
	})
}

// A lease that was given back is over without a loss.
func TestClosedLeaseIsNoLoss(t *testing.T) {
	h := &holder{}
	l := &Lease{Holder: h}
	l.Extend(time.Now(), time.Millisecond)
	l.Close()
	require.True(t, l.Over())
	require.True(t, l.Expire(time.Now().Add(time.Hour), errs.ErrLost))
	require.Empty(t, h.ended)
}
