package rsemaphore_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
)

// TestTotalsAreExactUnderLostReplies has three clients take and give back permits of both kinds, a tenth of
// whose replies are lost, and looks at what is left.
func TestTotalsAreExactUnderLostReplies(t *testing.T) {
	const permits = 4
	set(t, connect(t).Semaphore(t.Name()), permits)
	set(t, connect(t).ExpirableSemaphore(t.Name()+":e"), permits)
	var plain, expiring atomic.Int64
	enter := func(inside *atomic.Int64) {
		if n := inside.Add(1); n > permits {
			t.Errorf("%d inside", n)
		}
		inside.Add(-1)
	}
	var clients []*holdfast.Client
	var wg sync.WaitGroup
	for seed := range uint64(3) {
		c, proxy := through(t)
		clients = append(clients, c)
		proxy.Add(faultproxy.Rule{Match: faultproxy.All(faultproxy.Cmd("evalsha", "eval"), faultproxy.Prob(0.1, seed)), Do: faultproxy.DropReply})
		for g := range 4 {
			wg.Go(func() {
				for i := range 10 {
					ctx, cancel := context.WithCancel(context.Background())
					if i%3 == 0 {
						time.AfterFunc(time.Duration(g*13+i*7)*time.Millisecond, cancel)
					}
					switch err := c.Semaphore(t.Name()).Acquire(ctx, 1); {
					case err == nil:
						enter(&plain)
						if err := c.Semaphore(t.Name()).Release(ctx, 1); err != nil && !errors.Is(err, holdfast.ErrUncertain) {
							t.Error(err)
						}
					case !errors.Is(err, context.Canceled):
						t.Error(err)
					}
					switch p, err := c.ExpirableSemaphore(t.Name() + ":e").Acquire(ctx); {
					case err == nil:
						enter(&expiring)
						if err := p.Release(ctx); err != nil && !errors.Is(err, holdfast.ErrUncertain) {
							t.Error(err)
						}
					case !errors.Is(err, context.Canceled):
						t.Error(err)
					}
					cancel()
				}
			})
		}
	}
	wg.Wait()
	for _, c := range clients {
		require.NoError(t, c.Shutdown(t.Context()), "which waits for what goes on behind the callers")
	}
	require.True(t, taken(t, t.Name(), "4"))
	require.True(t, taken(t, t.Name()+":e", "4"))
	require.Zero(t, members(t, t.Name()+":e"))
}
