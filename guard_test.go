package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/rlock"
)

// guarded makes a guard of name that runs fn.
func guarded(c *holdfast.Client, fn func(ctx context.Context, name string) (int, error), opts ...rlock.Option) func(context.Context, string) (int, error) {
	return holdfast.Guard(c, func(name string) string { return name }, fn, opts...)
}

// A guard that doesn't get the lock in time is an error, not a silent zero.
func TestGuardRefusesLoudly(t *testing.T) {
	c := connect(t, holdfast.WithLease(never))
	inside, give := make(chan struct{}), make(chan struct{})
	g := guarded(c, func(context.Context, string) (int, error) {
		close(inside) // a second time panics
		<-give
		return 42, nil
	}, holdfast.Wait(2*time.Second))

	type answer struct {
		n   int
		err error
	}
	answers := make(chan answer, 3)
	call := func() {
		n, err := g(t.Context(), t.Name())
		answers <- answer{n, err}
	}
	go call()
	<-inside
	go call()
	go call()
	for range 2 {
		a := <-answers
		require.ErrorIs(t, a.err, holdfast.ErrNotAcquired)
		require.Zero(t, a.n)
	}
	close(give)
	a := <-answers
	require.NoError(t, a.err)
	require.Equal(t, 42, a.n)
}

// The hold lasts exactly as long as the function, whichever way that ends.
func TestGuardGivesBack(t *testing.T) {
	c, rdb := connect(t), server.Client(t)
	failed := errors.New("no stock")
	for what, end := range map[string]func() (int, error){
		"returns": func() (int, error) { return 1, nil },
		"fails":   func() (int, error) { return 2, failed },
		"panics":  func() (int, error) { panic("boom") },
	} {
		t.Run(what, func(t *testing.T) {
			var held context.Context
			g := guarded(c, func(ctx context.Context, name string) (int, error) {
				require.True(t, exists(t, rdb, name), "not held")
				n, err := c.Lock(name).HoldCount(ctx)
				require.NoError(t, err)
				require.Equal(t, 1, n)
				held = ctx
				return end()
			})
			switch what {
			case "panics":
				require.PanicsWithValue(t, "boom", func() { _, _ = g(t.Context(), t.Name()) })
			case "fails":
				n, err := g(t.Context(), t.Name())
				require.ErrorIs(t, err, failed)
				require.Equal(t, 2, n, "the function's answer comes through")
			default:
				n, err := g(t.Context(), t.Name())
				require.NoError(t, err)
				require.Equal(t, 1, n)
			}
			require.False(t, exists(t, rdb, t.Name()), "not given back")
			require.ErrorIs(t, context.Cause(held), holdfast.ErrReleased)
		})
	}
}

// A lock that didn't last as long as the work is reported beside its result.
func TestGuardReportsLoss(t *testing.T) {
	c, rdb := connect(t, holdfast.WithLease(watched)), server.Client(t)
	failed := errors.New("gave up")
	for what, g := range map[string]func(context.Context, string) (int, error){
		"fixed lease": guarded(c, func(ctx context.Context, _ string) (int, error) {
			<-ctx.Done()
			return 7, failed
		}, holdfast.Lease(50*time.Millisecond)),
		"deleted": guarded(c, func(ctx context.Context, name string) (int, error) {
			require.NoError(t, rdb.Del(t.Context(), name).Err())
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), holdfast.ErrLost)
			return 7, failed
		}),
	} {
		t.Run(what, func(t *testing.T) {
			n, err := g(t.Context(), t.Name())
			require.Equal(t, 7, n)
			require.ErrorIs(t, err, failed)
			require.ErrorIs(t, err, holdfast.ErrLost)
			require.ErrorIs(t, err, holdfast.ErrNotHeld)
		})
	}
}

// A context that ended under the function doesn't keep the lock.
func TestGuardGivesBackAfterCancel(t *testing.T) {
	c, rdb := connect(t), server.Client(t)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := guarded(c, func(ctx context.Context, _ string) (int, error) {
		cancel()
		<-ctx.Done()
		return 0, ctx.Err()
	})(ctx, t.Name())
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, holdfast.ErrUncertain)
	require.False(t, exists(t, rdb, t.Name()))

	_, err = guarded(c, func(context.Context, string) (int, error) {
		t.Error("ran under a context that was over")
		return 0, nil
	})(ctx, t.Name())
	require.ErrorIs(t, err, context.Canceled)
}

// Guards nest under one owner.
func TestGuardNests(t *testing.T) {
	c := connect(t)
	depth := 0
	var g func(context.Context, string) (int, error)
	g = guarded(c, func(ctx context.Context, name string) (int, error) {
		if depth++; depth < 3 {
			return g(ctx, name)
		}
		n, err := c.Lock(name).HoldCount(ctx)
		return n, err
	}, holdfast.Wait(0))
	n, err := g(t.Context(), t.Name())
	require.NoError(t, err)
	require.Equal(t, 3, n)
}

// Nil arguments and bad names are errors at the call.
func TestGuardInvalid(t *testing.T) {
	c := connect(t)
	key := func(name string) string { return name }
	fn := func(context.Context, string) (int, error) { return 1, nil }
	for what, g := range map[string]func(context.Context, string) (int, error){
		"client":   holdfast.Guard(nil, key, fn),
		"key":      holdfast.Guard(c, nil, fn),
		"function": holdfast.Guard[string, int](c, key, nil),
		"lease":    guarded(c, fn, holdfast.Lease(0)),
	} {
		t.Run(what, func(t *testing.T) {
			n, err := g(t.Context(), t.Name())
			require.ErrorIs(t, err, holdfast.ErrInvalid)
			require.Zero(t, n)
		})
	}
	_, err := guarded(c, fn)(nil, t.Name())
	require.ErrorIs(t, err, holdfast.ErrInvalid)
	_, err = guarded(c, fn)(t.Context(), "")
	require.ErrorIs(t, err, holdfast.ErrInvalid)
	_, err = guarded(c, fn, nil)(t.Context(), t.Name())
	require.NoError(t, err, "a nil option is no option")
}
