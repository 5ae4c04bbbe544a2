package holdfast_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/rlock"
)

// F-A06 (b): each holder of a fair lock, in a client of its own, leaves without a
// word; who is next gets in by the lease, in the order of the queue.
func TestA06bFairHoldersLeaveWithoutAWord(t *testing.T) {
	t.Parallel() // it waits
	const lease = 2 * time.Second
	rdb := server.Client(t)
	_, err := connect(t).FairLock(t.Name()).Lock(t.Context(), holdfast.Lease(2*lease)) // until all wait
	require.NoError(t, err)
	var calls []<-chan verdict
	for i := range 3 {
		l := connect(t, holdfast.WithPollFallback(deaf)).FairLock(t.Name())
		calls = append(calls, begin(func() (*rlock.Hold, error) {
			return l.TryLock(t.Context(), holdfast.Wait(never), holdfast.Lease(lease))
		}))
		eventually(t, "it stands in the queue", func() bool {
			n, err := rdb.LLen(t.Context(), "redisson_lock_queue:{"+t.Name()+"}").Result()
			return err == nil && n == int64(i+1)
		})
	}
	before := time.Now()
	for i, c := range calls {
		v := granted(t, c, 2*lease+prompt)
		require.GreaterOrEqual(t, time.Since(before), lease/2*time.Duration(i), "it came before the lease of the one before it was over")
		for _, later := range calls[i+1:] {
			waits(t, later)
		}
		require.Equal(t, map[string]string{v.hold.Owner(): "1"}, rdb.HGetAll(t.Context(), t.Name()).Val())
	}
	eventually(t, "nothing is left", func() bool { return len(leftKeys(t, rdb, t.Name())) == 0 })
}

// F-A06 (d): a writer leaves without a word; all readers, of two clients, get in
// when its lease ends, and hold at the same time.
func TestA06dWriterLeavesWithoutAWord(t *testing.T) {
	t.Parallel() // it waits
	const lease = time.Second
	rdb := server.Client(t)
	start := time.Now()
	_, err := connect(t).RWLock(t.Name()).Write().Lock(t.Context(), holdfast.Lease(lease))
	require.NoError(t, err)
	var calls []<-chan verdict
	for range 2 {
		l := connect(t, holdfast.WithPollFallback(deaf)).RWLock(t.Name()).Read()
		for range 3 {
			calls = append(calls, begin(func() (*rlock.Hold, error) { return l.Lock(t.Context()) }))
		}
	}
	var holds []*rlock.Hold
	for _, c := range calls {
		holds = append(holds, granted(t, c, lease+prompt).hold)
	}
	require.GreaterOrEqual(t, time.Since(start), lease, "a reader came before the writer's lease was over")
	for _, h := range holds {
		require.NoError(t, h.Context().Err())
		require.NoError(t, h.Unlock(t.Context()))
	}
	eventually(t, "nothing is left", func() bool { return len(leftKeys(t, rdb, t.Name())) == 0 })
}
