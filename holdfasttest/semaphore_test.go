package holdfasttest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
)

// Both kinds of semaphore work on the embedded server, with waiters and leases.
func TestSemaphores(t *testing.T) {
	ctx := t.Context()
	c := holdfasttest.New(t)
	s := c.Semaphore("s")
	ok, err := s.TrySetPermits(ctx, 2)
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, s.Acquire(ctx, 2))
	require.ErrorIs(t, s.TryAcquire(ctx, 1), holdfast.ErrNotAcquired)
	served := make(chan error, 1)
	go func() { served <- s.Acquire(ctx, 1) }()
	require.NoError(t, s.Release(ctx, 1))
	require.NoError(t, <-served)
	n, err := s.Drain(ctx)
	require.NoError(t, err)
	require.Zero(t, n)

	e := c.ExpirableSemaphore("e")
	_, err = e.TrySetPermits(ctx, 2)
	require.NoError(t, err)
	ps, err := e.AcquireN(ctx, 2, holdfast.Lease(200*time.Millisecond))
	require.NoError(t, err)
	p, err := e.Acquire(ctx) // when a lease ends
	require.NoError(t, err)
	require.ErrorIs(t, context.Cause(ps[0].Context()), holdfast.ErrLost)
	require.NoError(t, e.Extend(ctx, p.ID(), time.Hour))
	require.NoError(t, e.SetPermits(ctx, 5))
	free, err := e.Available(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 4, free)
	handle, err := p.Detach()
	require.NoError(t, err)
	p, err = e.Resume(ctx, handle)
	require.NoError(t, err)
	require.NoError(t, e.Release(ctx, p.ID()))
}
