package holdfasttest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
)

// The read-write lock's scripts run on the embedded server, too.
func TestReadWriteLock(t *testing.T) {
	s := NewServer(t)
	a, b := s.Client().RWLock("rw"), s.Client(holdfast.WithPollFallback(time.Hour)).RWLock("rw")
	ctx := holdfast.WithOwner(t.Context())

	_, err := a.Write().TryLock(ctx)
	require.NoError(t, err)
	_, err = a.Read().TryLock(ctx)
	require.NoError(t, err)
	got := make(chan error, 1)
	go func() {
		h, err := b.Read().Lock(t.Context())
		if err == nil {
			err = h.Unlock(t.Context())
		}
		got <- err
	}()
	awaitSubscriber(t, s)
	require.NoError(t, a.Write().Unlock(ctx))
	select {
	case err := <-got:
		require.NoError(t, err)
	case <-time.After(within):
		t.Fatal("the reader wasn't woken")
	}
	_, err = a.Write().TryLock(ctx)
	require.ErrorIs(t, err, holdfast.ErrUpgrade)

	go func() {
		h, err := b.Write().Lock(t.Context())
		if err == nil {
			err = h.Unlock(t.Context())
		}
		got <- err
	}()
	awaitSubscriber(t, s)
	require.NoError(t, a.Read().Unlock(ctx))
	select {
	case err := <-got:
		require.NoError(t, err)
	case <-time.After(within):
		t.Fatal("the writer wasn't woken")
	}
}
