package holdfast_test

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rlock"
)

// logged keeps what a client logs.
type logged struct {
	mu      sync.Mutex
	records []string
}

func (l *logged) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, string(line))
	return len(line), nil
}

// logger writes to l.
func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// about counts the records with all of parts in them.
func (l *logged) about(parts ...string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, r := range l.records {
		all := true
		for _, p := range parts {
			all = all && strings.Contains(r, p)
		}
		if all {
			n++
		}
	}
	return n
}

// gentle is a lease that stands the collector beside it, and a machine that stands
// still for a moment.
const gentle = 3 * time.Second

// logging makes a client on the shared server whose log is kept.
func logging(t testing.TB) (*logged, *holdfast.Client) {
	l := &logged{}
	return l, connect(t, holdfast.WithLease(gentle), holdfast.WithLogger(l.logger()))
}

// traceID is what middleware puts in a context.
type traceID struct{}

const dropped = "dropped without Unlock"

// collected runs the collector until cond holds, which may take the end of a lease.
func collected(t testing.TB, what string, cond func() bool) {
	t.Helper()
	redistest.Eventually(t, gentle+prompt, func() bool {
		runtime.GC()
		return cond()
	}, "%s", what)
}

// renewed watches the test's lock for longer than its lease, beside the collector.
func renewed(t testing.TB, rdb *redis.Client) {
	t.Helper()
	looks := 0
	throughout(t, gentle*3/2, "it isn't renewed", func() bool {
		if looks++; looks%10 == 1 { // the tests beside this one need the machine, too
			runtime.GC()
		}
		return exists(t, rdb, t.Name())
	})
}

// acquireAndDrop takes the lock in a frame of its own, so that nothing of the
// hold is left on the caller's stack.
//
//go:noinline
func acquireAndDrop(t testing.TB, ctx context.Context, l *rlock.Lock, times int) {
	t.Helper()
	for i := range times {
		h, err := l.TryLock(ctx)
		require.NoError(t, err)
		ctx = context.WithValue(h.Context(), traceID{}, i) // further in: a hold within the hold
	}
}

// A hold that nobody can give back any more ends with its lease, loudly.
func TestDroppedHoldIsNotRenewed(t *testing.T) {
	for what, times := range map[string]int{"hold": 1, "nested hold": 3} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			log, c := logging(t)
			rdb := server.Client(t)
			acquireAndDrop(t, t.Context(), c.Lock(t.Name()), times)
			require.True(t, exists(t, rdb, t.Name()))
			collected(t, "it is noticed", func() bool { return log.about(dropped, "level=ERROR", t.Name(), c.ID()) > 0 })
			redistest.Eventually(t, gentle+prompt, func() bool { return !exists(t, rdb, t.Name()) }, "its lease ends")
			require.Equal(t, 1, log.about(dropped), "told once")
		})
	}
}

// So does one whose caller's context lives on, but has no owner to unlock with.
func TestDroppedHoldOfALivingContext(t *testing.T) {
	t.Parallel() // it mostly waits
	log, c := logging(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	acquireAndDrop(t, ctx, c.Lock(t.Name()), 1)
	collected(t, "it is noticed", func() bool { return log.about(dropped) > 0 })
	require.NoError(t, ctx.Err())
}

// A lease that nobody renews goes on without what its caller had in the context.
func TestDroppedHoldLetsItsContextGo(t *testing.T) {
	t.Parallel()
	l := connect(t).Lock(t.Name())
	gone := make(chan struct{})
	func() {
		big := new([1 << 20]byte)
		runtime.AddCleanup(big, func(c chan struct{}) { close(c) }, gone)
		_, err := l.TryLock(context.WithValue(context.Background(), traceID{}, big), holdfast.Lease(never))
		require.NoError(t, err)
	}()
	collected(t, "the value in the context", func() bool {
		select {
		case <-gone:
			return true
		default:
			return false
		}
	})
	require.True(t, exists(t, server.Client(t), t.Name()))
}

// A hold whose owner is still known is renewed, whatever became of the Hold:
// Redisson's habit.
func TestDroppedHoldWithALivingOwner(t *testing.T) {
	for what, ctx := range map[string]context.Context{
		"fresh":  holdfast.WithOwner(t.Context()),
		"chosen": holdfast.WithOwnerID(t.Context(), "17"),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			log, c := logging(t)
			rdb := server.Client(t)
			l := c.Lock(t.Name())
			acquireAndDrop(t, ctx, l, 2)
			renewed(t, rdb)
			require.Zero(t, log.about(dropped))
			require.NoError(t, l.Unlock(ctx))
			require.NoError(t, l.Unlock(ctx))
			require.False(t, exists(t, rdb, t.Name()))
		})
	}
}

// A chosen id can be named again by anybody, so its holds are never dropped.
func TestDroppedContextWithAChosenOwner(t *testing.T) {
	t.Parallel() // it mostly waits
	log, c := logging(t)
	rdb := server.Client(t)
	l := c.Lock(t.Name())
	acquireAndDrop(t, holdfast.WithOwnerID(context.Background(), "18"), l, 1)
	renewed(t, rdb)
	require.Zero(t, log.about(dropped))
	require.NoError(t, l.Unlock(holdfast.WithOwnerID(context.Background(), "18")))
}

// So can the id of a fresh owner once somebody else has used it.
func TestDroppedOwnerWhoseIDIsUsedElsewhere(t *testing.T) {
	t.Parallel() // it mostly waits
	log, c := logging(t)
	rdb := server.Client(t)
	l := c.Lock(t.Name())
	id := func() string {
		ctx := holdfast.WithOwner(context.Background())
		acquireAndDrop(t, ctx, l, 1)
		id, _ := holdfast.OwnerID(ctx)
		return id
	}()
	acquireAndDrop(t, holdfast.WithOwnerID(context.Background(), id), l, 1)
	renewed(t, rdb)
	require.Zero(t, log.about(dropped))
	for range 2 {
		require.NoError(t, l.Unlock(holdfast.WithOwnerID(context.Background(), id)))
	}
	require.False(t, exists(t, rdb, t.Name()))
}

// An inner hold that was dropped can still be given back by its owner.
func TestDroppedInnerHold(t *testing.T) {
	t.Parallel() // it mostly waits
	log, c := logging(t)
	rdb := server.Client(t)
	l := c.Lock(t.Name())
	outer, err := l.Lock(t.Context())
	require.NoError(t, err)
	acquireAndDrop(t, outer.Context(), l, 1)
	renewed(t, rdb)
	require.Zero(t, log.about(dropped))
	require.NoError(t, l.Unlock(outer.Context())) // the inner one
	require.NoError(t, outer.Context().Err())
	require.NoError(t, outer.Unlock(t.Context()))
	require.False(t, exists(t, rdb, t.Name()))
}

// A context of the hold is enough to keep it, and to give it back.
func TestHoldContextKeepsTheHold(t *testing.T) {
	t.Parallel() // it mostly waits
	log, c := logging(t)
	rdb := server.Client(t)
	l := c.Lock(t.Name())
	inside := func() context.Context {
		h, err := l.Lock(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(h.Context(), time.Hour)
		t.Cleanup(cancel)
		return ctx
	}()
	renewed(t, rdb)
	require.Zero(t, log.about(dropped))
	require.NoError(t, l.Unlock(inside))
}

// A holder learns of a loss by the log, too.
func TestLossIsLogged(t *testing.T) {
	log, c := logging(t)
	rdb := server.Client(t)
	h, err := c.Lock(t.Name()).Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, rdb.Del(t.Context(), t.Name()).Err())
	locktest.RequireLost(t, h)
	eventually(t, "the loss is logged", func() bool { return log.about("hold lost", "level=ERROR", t.Name()) == 1 })
}
