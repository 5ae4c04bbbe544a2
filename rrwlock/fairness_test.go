package rrwlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/rrwlock"
)

// Readers that waited for a writer read together, not one after the other.
func TestA05ReadersGetInTogether(t *testing.T) {
	c1, c2 := silent(t), silent(t)
	w := take(t, c1.RWLock(t.Name()).Write(), as(t, "writer"))
	var calls []<-chan result
	for i := range 5 {
		c := c1
		if i > 2 {
			c = c2
		}
		calls = append(calls, locking(as(t, fmt.Sprint("reader", i)), c.RWLock(t.Name()).Read()))
	}
	waiting(t, look(t), t.Name(), "readers", 5)
	unlock(t, w)
	var holds []*rrwlock.Hold
	for _, call := range calls {
		holds = append(holds, got(t, call, "a reader that waits for the others to leave never gets in"))
	}
	for _, h := range holds {
		require.NoError(t, h.Context().Err())
		unlock(t, h)
	}
	nothingLeft(t, look(t), t.Name())
}

// A write lease that runs out tells nobody; those who wait to read know when.
func TestA06WriterIsGoneWithoutAWord(t *testing.T) {
	dead, c := connect(t), silent(t)
	start := time.Now()
	take(t, dead.RWLock(t.Name()).Write(), as(t, "writer"), rrwlock.Lease(time.Second))
	calls := []<-chan result{locking(as(t, "a"), c.RWLock(t.Name()).Read()), locking(as(t, "b"), c.RWLock(t.Name()).Read())}
	for _, call := range calls {
		h := got(t, call, "the lease is over")
		defer h.Unlock(t.Context())
	}
	require.GreaterOrEqual(t, time.Since(start), time.Second)
}

// A writer that waits keeps newcomers out, not those who are in; when it leaves,
// newcomers are let in at once.
func TestWriterThatLeavesLetsReadersIn(t *testing.T) {
	c1, c2, rdb := silent(t), silent(t), look(t)
	rw, other := c1.RWLock(t.Name()), c2.RWLock(t.Name())
	r := take(t, rw.Read(), as(t, "a"))
	for _, leaves := range []string{"cancelled", "time over"} {
		t.Run(leaves, func(t *testing.T) {
			name := r.Name()
			ctx, cancel := context.WithCancel(as(t, "writer"))
			defer cancel()
			opts := []rrwlock.Option{rrwlock.Wait(never)}
			if leaves == "time over" {
				opts = []rrwlock.Option{rrwlock.Wait(3 * time.Second)}
			}
			w := locking(ctx, other.Write(), opts...)
			waiting(t, rdb, name, "writers", 1)
			refused(t, rw.Read(), as(t, "b"))
			unlock(t, take(t, rw.Read(), as(t, "a")))
			newcomer := locking(as(t, "b"), rw.Read())
			waiting(t, rdb, name, "readers", 1)
			if leaves == "cancelled" {
				cancel()
			}
			require.Error(t, (<-w).err)
			unlock(t, got(t, newcomer, "nobody waits to write any more"))
			unlock(t, take(t, other.Read(), as(t, "c")))
			waiting(t, rdb, name, "writers", 0)
		})
	}
	unlock(t, r)
	nothingLeft(t, rdb, t.Name())
}

// What Redis keeps of a writer that died while it waited lapses.
func TestWriterThatDiedKeepsNobodyOut(t *testing.T) {
	c, rdb := silent(t), look(t)
	rw := c.RWLock(t.Name())
	r := take(t, rw.Read(), as(t, "a"))
	const life = 3 * time.Second
	now := rdb.Time(t.Context()).Val()
	key := "{" + t.Name() + "}:holdfast:writers"
	require.NoError(t, rdb.ZAdd(t.Context(), key, redis.Z{Score: float64(now.Add(life).UnixMilli()), Member: "gone:1"}).Err())
	require.NoError(t, rdb.PExpire(t.Context(), key, time.Minute).Err())
	refused(t, rw.Read(), as(t, "b"))
	unlock(t, gotWithin(t, life+prompt, locking(as(t, "b"), rw.Read()), "it counts for so long"))
	unlock(t, r)
}

// A reader that died while it waited for the writer delays the next writer by the
// readers' turn, no more; one that left, not at all.
func TestReadersTurnEnds(t *testing.T) {
	c, rdb := silent(t), look(t)
	rw := c.RWLock(t.Name())
	w := take(t, rw.Write(), as(t, "a"))
	ctx, cancel := context.WithCancel(as(t, "reader"))
	left := locking(ctx, rw.Read())
	waiting(t, rdb, t.Name(), "readers", 1)
	cancel()
	require.ErrorIs(t, (<-left).err, context.Canceled)
	waiting(t, rdb, t.Name(), "readers", 0)
	unlock(t, w)
	w = take(t, rw.Write(), as(t, "b"))

	now := rdb.Time(t.Context()).Val()
	key := "{" + t.Name() + "}:holdfast:readers"
	require.NoError(t, rdb.ZAdd(t.Context(), key, redis.Z{Score: float64(now.Add(time.Minute).UnixMilli()), Member: "gone:1"}).Err())
	require.NoError(t, rdb.PExpire(t.Context(), key, time.Minute).Err())
	unlock(t, w)
	refused(t, rw.Write(), as(t, "c"))
	unlock(t, got(t, locking(as(t, "c"), rw.Write()), "the readers' turn is over"))
}

// Those who were kept out by a writer go before the next one.
func TestReadersGoBeforeTheNextWriter(t *testing.T) {
	c1, c2, rdb := silent(t), silent(t), look(t)
	for i := range 10 {
		name := fmt.Sprint(t.Name(), i)
		w := take(t, c1.RWLock(name).Write(), as(t, "first"))
		next := locking(as(t, "next"), c2.RWLock(name).Write())
		waiting(t, rdb, name, "writers", 1)
		r1, r2 := locking(as(t, "r1"), c1.RWLock(name).Read()), locking(as(t, "r2"), c2.RWLock(name).Read())
		waiting(t, rdb, name, "readers", 2)
		unlock(t, w)
		h1 := got(t, r1, "it is the readers' turn")
		h2 := got(t, r2, "it is the readers' turn")
		refused(t, c1.RWLock(name).Read(), as(t, "late"))
		select {
		case <-next:
			require.FailNow(t, "beside readers")
		default:
		}
		unlock(t, h1)
		unlock(t, h2)
		unlock(t, got(t, next, "the next writer"))
		nothingLeft(t, rdb, name)
	}
}

// Readers that come and go without a gap don't keep a writer out, nor writers that
// follow each other a reader.
func TestNobodyStarves(t *testing.T) {
	clients := []*holdfast.Client{connect(t), connect(t)}
	stream := func(ctx context.Context, wg *sync.WaitGroup, served *atomic.Int64, n int, hold time.Duration, side func(*rrwlock.RWLock) rrwlock.Locker, name string) {
		for i := range n {
			l := side(clients[i%2].RWLock(name))
			wg.Go(func() {
				for ctx.Err() == nil {
					h, err := l.Lock(ctx)
					if err != nil {
						if !errors.Is(err, context.Canceled) {
							t.Error(err)
						}
						return
					}
					select {
					case <-time.After(hold):
					case <-ctx.Done():
					}
					served.Add(1)
					if err := h.Unlock(context.Background()); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	for what, sides := range map[string][2]func(*rrwlock.RWLock) rrwlock.Locker{
		"writer": {(*rrwlock.RWLock).Read, (*rrwlock.RWLock).Write},
		"reader": {(*rrwlock.RWLock).Write, (*rrwlock.RWLock).Read},
	} {
		t.Run(what, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			var served atomic.Int64
			stream(ctx, &wg, &served, 12, 20*time.Millisecond, sides[0], t.Name())
			for range 5 {
				before := served.Load()
				unlock(t, got(t, locking(t.Context(), sides[1](clients[0].RWLock(t.Name()))), "it starves"))
				// One phase of the others, and what was under way when it asked; not their
				// stream, which serves 600 a second.
				require.Less(t, served.Load()-before, int64(240))
			}
			cancel()
			wg.Wait()
			nothingLeft(t, look(t), t.Name())
		})
	}
}
