package holdfasttest

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/locktest"
)

// The fair lock's scripts run on the embedded server too: waiters of two clients
// get in as they came, and who gave up is not waited for.
func TestFairLockServesInOrder(t *testing.T) {
	s := NewServer(t)
	a, b := s.Client(), s.Client()
	hold, err := a.FairLock("order").Lock(t.Context())
	require.NoError(t, err)
	err = locktest.Answered(func() error {
		_, err := b.FairLock("order").TryLock(t.Context(), holdfast.Wait(within/100))
		return err
	})
	require.ErrorIs(t, err, holdfast.ErrNotAcquired)

	got := make(chan string, 2)
	var wg sync.WaitGroup
	for i, c := range []*holdfast.Client{b, a} {
		wg.Go(func() {
			h, err := c.FairLock("order").Lock(t.Context())
			if err == nil {
				got <- c.ID()
				err = h.Unlock(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		})
		require.Eventually(t, func() bool {
			n, err := s.Redis().LLen(t.Context(), "redisson_lock_queue:{order}").Result()
			return err == nil && n == int64(i+1)
		}, within, within/1000)
	}
	require.NoError(t, hold.Unlock(t.Context()))
	require.Equal(t, b.ID(), <-got)
	require.Equal(t, a.ID(), <-got)
	wg.Wait()
}
