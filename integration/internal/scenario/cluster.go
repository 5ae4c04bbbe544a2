package scenario

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/internal/topology"
	"github.com/holdfast-go/holdfast/internal/keys"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// diary keeps what a client logs.
type diary struct{ redistest.Diary }

func (d *diary) logger() *slog.Logger { return slog.New(slog.NewTextHandler(d, nil)) }

// ThousandsOfHolds is A17: n holds over a link with 5 ms of delay are all renewed,
// in batches for each node, and one that can't be costs the others nothing.
func (p Place) ThousandsOfHolds(t *testing.T, n int) {
	locktest.Patiently(t, 3*time.Second, func(lease time.Duration) bool { return p.thousands(t, n, lease) })
}

func (p Place) thousands(t *testing.T, n int, lease time.Duration) (kept bool) {
	rdb := p.Redis(t)
	c := p.Via(t, locktest.Link{Lease: lease})
	name := t.Name() + lease.String() + "-"
	hs := make([]*holdfast.Hold, n)
	var g errgroup.Group
	g.SetLimit(30)
	for i := range hs {
		g.Go(func() (err error) {
			hs[i], err = c.Lock(name + strconv.Itoa(i)).Lock(t.Context())
			return err
		})
	}
	require.NoError(t, g.Wait())
	for _, x := range c.All() {
		x.SetLatency(5*time.Millisecond, 5*time.Millisecond)
	}
	odd := hs[7]
	require.NoError(t, rdb.Del(t.Context(), odd.Name()).Err())
	require.NoError(t, rdb.LPush(t.Context(), odd.Name(), "somebody's list").Err())
	<-time.After(2 * lease)
	lost := 0
	for _, h := range hs {
		if h.Context().Err() != nil {
			lost++
		}
	}
	require.ErrorIs(t, context.Cause(odd.Context()), holdfast.ErrLost)
	left, err := redistest.Keys(t.Context(), rdb, name)
	require.NoError(t, err)
	require.NoError(t, c.Shutdown(t.Context()))
	require.NoError(t, rdb.Del(t.Context(), odd.Name()).Err())
	return lost == 1 && len(left) == n
}

// ScriptsAreFlushed is A43: servers that forget their scripts all the time, while
// slots move, are no error for anybody.
func ScriptsAreFlushed(t *testing.T, top *topology.Topology) {
	const lease = 5 * time.Second // among fifty goroutines
	p := On(top)
	rdb := p.Redis(t)
	log := &diary{}
	a, b := p.With(t, locktest.Link{Lease: lease}, holdfast.WithLogger(log.logger())), p.With(t, locktest.Link{Lease: lease})
	flushing, stop := context.WithCancel(t.Context())
	var faults, wg sync.WaitGroup
	faults.Go(func() {
		for tick := time.NewTicker(50 * time.Millisecond); flushing.Err() == nil; <-tick.C {
			err := redistest.EachMaster(t.Context(), rdb, func(ctx context.Context, m redis.UniversalClient) error { return m.ScriptFlush(ctx).Err() })
			if err != nil {
				t.Error(err)
			}
		}
	})
	const prefix = "flushed"
	var kept []*holdfast.Hold // renewed in pipelines meanwhile
	for i := range 30 {
		h, err := a.Lock(prefix + strconv.Itoa(i)).Lock(t.Context())
		require.NoError(t, err)
		kept = append(kept, h)
	}
	parked := make(chan error, 1)
	go func() {
		h, err := b.Lock(prefix + "0").Lock(t.Context())
		if err == nil {
			err = h.Unlock(t.Context())
		}
		parked <- err
	}()
	if top.Kind() == topology.Cluster {
		faults.Go(func() {
			for i := range 5 { // the slots of five of them go round
				slot := keys.Slot(prefix + strconv.Itoa(i))
				for _, to := range top.Nodes()[:2] {
					if err := top.MoveSlots(t.Context(), slot, slot, to, nil); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	var pairs atomic.Int32
	end := time.Now().Add(lease) // by then each was renewed twice
	for i := range 50 {
		c := a
		if i%2 == 1 {
			c = b
		}
		l := c.Lock("busy" + strconv.Itoa(i%20))
		wg.Go(func() {
			for time.Now().Before(end) {
				h, err := l.Lock(t.Context())
				if err == nil {
					_, err = l.HoldCount(h.Context())
				}
				if err == nil {
					err = errors.Join(h.Extend(t.Context(), 2*lease), h.Unlock(t.Context()))
				}
				if err != nil {
					t.Error(err)
					return
				}
				pairs.Add(1)
			}
		})
	}
	wg.Wait()
	stop()
	faults.Wait()
	for _, h := range kept {
		require.NoError(t, h.Context().Err())
		require.NoError(t, h.Unlock(t.Context()))
	}
	require.NoError(t, <-parked, "the parked waiter gets it")
	require.NotZero(t, pairs.Load())
	require.NotContains(t, log.String(), "NOSCRIPT", "a renewal told of it")
}

// NamesOfAllKinds is A44: names that can't work are refused; all others work,
// whatever they are, where a script that touches two slots fails.
func (p Place) NamesOfAllKinds(t *testing.T) {
	a, b, rdb := p.Connect(t), p.Connect(t), p.Redis(t)
	before, err := redistest.Keys(t.Context(), rdb, "")
	require.NoError(t, err)
	for name, possible := range map[string]bool{
		"a": true, "{a}": true, "x{a}y": true, "{a}{b}": true, "a b\r\n": true, "\x00\xff": true, "ключ": true, strings.Repeat("x", 10<<10): true,
		"}{": false, "{}": false, "a{": false, "a}": false, "": false,
	} {
		for kind, try := range Trials() {
			err := try(t.Context(), a, b, name)
			if !possible || kind == "latch" && strings.Contains(name, "{") {
				require.ErrorIs(t, err, holdfast.ErrInvalid, "%s %.20q", kind, name)
			} else {
				require.NoError(t, err, "%s %.20q", kind, name)
			}
		}
	}
	left, err := redistest.Keys(t.Context(), rdb, "")
	require.NoError(t, err)
	for _, key := range left { // markers, and what outlives a lock by design
		require.True(t, slices.Contains(before, key) || strings.Contains(key, "holdfast:") || strings.Contains(key, "redisson_lock_token"), "%.80q is left", key)
	}
}

// SlotMovesWhileSomeoneWaits is A45: who waits follows a slot that moves, and is
// woken by the release at its new place.
func SlotMovesWhileSomeoneWaits(t *testing.T, top *topology.Topology, mode holdfast.ShardedPubSub) {
	p := On(top)
	rdb := p.Redis(t)
	p1 := p.With(t, locktest.Link{Lease: 5 * time.Second}, holdfast.WithShardedPubSub(mode))
	p2 := p.Via(t, locktest.Link{Lease: 5 * time.Second, Poll: never}, holdfast.WithShardedPubSub(mode))
	name := t.Name()
	slot := keys.Slot(name)
	for i := range 3 {
		a, err := p1.Lock(name).Lock(t.Context())
		require.NoError(t, err)
		p2.Sent.Reset()
		got := make(chan error, 1)
		go func() {
			h, err := p2.Lock(name).Lock(t.Context())
			if err == nil {
				err = h.Unlock(t.Context())
			}
			got <- err
		}()
		redistest.Eventually(t, prompt, func() bool { return p2.Sent.Count("evalsha", "eval") >= 2 }, "no try after the confirmation")
		from, err := top.OwnerOf(t.Context(), slot)
		require.NoError(t, err)
		masters, err := top.Masters(t.Context())
		require.NoError(t, err)
		to := masters[i%len(masters)]
		if to == from {
			to = masters[(i+1)%len(masters)]
		}
		require.NoError(t, top.MoveSlots(t.Context(), slot, slot, to, nil))
		select {
		case err := <-got:
			t.Fatal("it waits no longer: ", err)
		default:
		}
		if mode == holdfast.On { // the waiter follows the slot
			redistest.Eventually(t, prompt, func() bool {
				channels, err := to.Admin().PubSubShardChannels(t.Context(), "*").Result()
				return err == nil && strings.Contains(strings.Join(channels, " "), name)
			}, "the waiter doesn't listen at the new owner")
		}
		require.NoError(t, a.Context().Err(), "the hold was lost in the move")
		require.NoError(t, a.Unlock(t.Context()))
		select {
		case err := <-got:
			require.NoError(t, err)
		case <-time.After(prompt):
			t.Fatal("the waiter slept through the release")
		}
	}
	redistest.Eventually(t, prompt, func() bool {
		left, err := redistest.Channels(t.Context(), rdb, name)
		return err == nil && len(left) == 0
	}, "subscriptions are left")
}
