package holdfasttest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
)

func TestLatch(t *testing.T) {
	s := NewServer(t)
	a, b := s.Client(), s.Client(holdfast.WithPollFallback(time.Hour))
	l := a.Latch("import")
	for range 2 { // rounds
		set, err := l.TrySetCount(t.Context(), 2)
		require.NoError(t, err)
		require.True(t, set)
		done := make(chan error, 1)
		go func() { done <- b.Latch("import").Await(t.Context()) }()
		awaitSubscriber(t, s)
		require.NoError(t, l.CountDown(t.Context()))
		n, err := b.Latch("import").Count(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		require.NoError(t, l.CountDown(t.Context()))
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(within):
			t.Fatal("the waiter wasn't woken")
		}
	}
	was, err := l.Delete(t.Context())
	require.NoError(t, err)
	require.False(t, was)
}
