package trials

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/internal/topology"
	"github.com/holdfast-go/holdfast/internal/keys"
)

// reshardLease is short, so that several renewals fall into the move.
const reshardLease = 3 * time.Second

// namesIn answers so many names for each of the first slots.
func namesIn(slots, each int) (names []string) {
	found := make([]int, slots)
	for i := 0; len(names) < slots*each; i++ {
		name := fmt.Sprint("moved-", i)
		if s := keys.Slot(name); s < slots && found[s] < each {
			found[s]++
			names = append(names, name)
		}
	}
	return names
}

// resharded is what came of a move.
type resharded struct {
	moving  time.Duration
	renewed int    // holds that were renewed after the move
	lost    int    // holds
	took    spread // from each unlock to the waiter's grant
}

// reshard has names held by one client and waited for by another, moves their
// slots to another master, each of them open on both sides for a while, gives all
// names back, and waits for the waiters.
func reshard(tb testing.TB, slots, each int, open time.Duration) (r resharded) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*hang)
	defer cancel()
	top := topology.Run(tb, topology.Cluster, topology.Options{})
	holder := newParty(tb, connect(top), holdfast.WithLease(reshardLease))
	waiter := newParty(tb, connect(top))
	defer leaveAll(holder, waiter)
	masters, err := top.Masters(ctx)
	require.NoError(tb, err)
	from, err := top.OwnerOf(ctx, 0)
	require.NoError(tb, err)
	to := masters[0]
	if to == from {
		to = masters[1]
	}

	names := namesIn(slots, each)
	holds := make([]*holdfast.Hold, len(names))
	given := make([]time.Time, len(names))
	took := make(spread, len(names))
	var waiters sync.WaitGroup
	for i, name := range names {
		holds[i], err = holder.Lock(name).Lock(ctx)
		require.NoError(tb, err)
		waiters.Go(func() {
			h, err := waiter.Lock(name).Lock(ctx)
			if err != nil {
				tb.Errorf("a waiter was told: %v", err)
				return
			}
			took[i] = time.Since(given[i])
			if err := h.Unlock(ctx); err != nil {
				tb.Errorf("a new hold was lost: %v", err)
			}
		})
	}
	eventually(tb, prompt, "all wait", func() bool {
		shards, err := from.Admin().PubSubShardChannels(ctx, "*moved-*").Result()
		return err == nil && len(shards) == len(names)
	})
	begin := time.Now()
	require.NoError(tb, top.MoveSlots(ctx, 0, slots-1, to, func() { pause(open) }))
	r.moving = time.Since(begin)

	// What is renewed from now on is renewed at the new place. (One renewal may have
	// been answered at the old one just before.)
	moved := time.Now()
	for _, h := range holds {
		eventually(tb, 2*reshardLease, "the hold is renewed or lost", func() bool {
			return h.Context().Err() != nil || h.ExpiresAt().After(moved.Add(reshardLease+reshardLease/3))
		})
		if h.Context().Err() == nil {
			r.renewed++
		}
	}
	for i, h := range holds {
		given[i] = time.Now()
		if err := h.Unlock(ctx); err != nil {
			r.lost++
			tb.Errorf("an unlock after the move: %v", err)
		}
	}
	waiters.Wait()
	r.took = took
	return r
}

// Slots that move take their locks, waiters and renewals along.
func TestReshardWhileWaiting(t *testing.T) {
	r := reshard(t, 10, 5, 50*time.Millisecond)
	t.Logf("moved in %v; hand-offs: median %v, longest %v", r.moving, r.took.median(), r.took.max())
	require.Equal(t, 50, r.renewed)
}

// Bar: 100 slots move with 500 names held and 500 waiters: nobody hangs, no error
// reaches a caller, and what is held is renewed. A waiter whose subscription was on
// its way may wait for the fallback poll, no longer.
func BenchmarkReshard100(b *testing.B) {
	const slots, each = 100, 5
	for b.Loop() {
		r := reshard(b, slots, each, 100*time.Millisecond)
		b.ReportMetric(ms(r.moving), "ms_moving")
		b.ReportMetric(float64(r.renewed), "holds_renewed")
		b.ReportMetric(float64(r.lost), "lost")
		r.took.report(b, "hand-off")
		if r.renewed != slots*each || r.took.max() > fallback {
			b.Errorf("%d holds of %d were renewed; the longest hand-off took %v", r.renewed, slots*each, r.took.max())
		}
	}
	b.ReportMetric(0, "ns/op")
}
