package redisson_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/redisson"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// Waiters of both sides are served strictly in the order in which they came.
func TestFairQueueOfBothSides(t *testing.T) {
	versions(t, func(t *testing.T, j *redisson.JVM) {
		c, _ := connect(t)
		rdb := server.Client(t)
		name := t.Name()
		first, err := c.FairLock(name).Lock(t.Context())
		require.NoError(t, err)

		const waiters = 12
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		served := make(chan int, waiters)
		for i := range waiters {
			if i%2 == 0 {
				theirs := j.Owner(t, fmt.Sprint("java", i)).Object("FairLock", name)
				got := theirs.Call("lock")
				wg.Go(func() {
					select {
					case <-got.Done():
						served <- i
						theirs.Call("unlock")
					case <-ctx.Done():
					}
				})
			} else {
				wg.Go(func() {
					h, err := c.FairLock(name).Lock(ctx)
					if err == nil {
						served <- i
						err = h.Unlock(context.Background())
					}
					if err != nil {
						t.Errorf("Go waiter %d: %v", i, err)
					}
				})
			}
			redistest.Eventually(t, prompt, func() bool {
				return rdb.LLen(t.Context(), "redisson_lock_queue:{"+name+"}").Val() == int64(i+1)
			}, "waiter %d stands in the queue", i)
		}
		require.NoError(t, first.Unlock(t.Context()))
		for i := range waiters {
			select {
			case who := <-served:
				require.Equal(t, i, who)
			case <-time.After(prompt):
				require.Fail(t, "the queue stands still", "waiter %d", i)
			}
		}
		redistest.Eventually(t, prompt, func() bool { return rdb.Exists(t.Context(), name).Val() == 0 }, "all gave it back")
	})
}

// A JVM that dies in the queue is passed over when its place has expired: a Java
// waiter gives no other sign of life.
func TestFairQueuePassesADeadJVM(t *testing.T) {
	for _, version := range []string{newest, older} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			victim := redisson.Start(t, home, alone(version))
			c, _ := connect(t)
			rdb := server.Client(t)
			first, err := c.FairLock(t.Name()).Lock(t.Context())
			require.NoError(t, err)
			const wait = 3 * time.Second // its place is kept for as long
			victim.Owner(t, "a").Object("FairLock", t.Name()).Call("tryLock", wait.Milliseconds(), watched.Milliseconds(), redisson.Millis)
			redistest.Eventually(t, prompt, func() bool {
				return rdb.LLen(t.Context(), "redisson_lock_queue:{"+t.Name()+"}").Val() == 1
			}, "Java stands in the queue")
			got := async(func() (*holdfast.Hold, error) { return c.FairLock(t.Name()).Lock(t.Context()) })
			redistest.Eventually(t, prompt, func() bool {
				return rdb.LLen(t.Context(), "redisson_lock_queue:{"+t.Name()+"}").Val() == 2
			}, "Go stands behind it")
			victim.Kill()
			require.NoError(t, first.Unlock(t.Context()))
			select {
			case r := <-got:
				require.NoError(t, r.err)
				require.NoError(t, r.hold.Unlock(t.Context()))
			case <-time.After(wait + watched + prompt):
				require.Fail(t, "Go waits behind a dead JVM")
			}
		})
	}
}
