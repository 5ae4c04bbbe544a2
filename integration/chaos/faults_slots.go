package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/integration/internal/history"
	"github.com/holdfast-go/holdfast/integration/internal/topology"
	"github.com/holdfast-go/holdfast/internal/keys"
)

var clusters = []topology.Kind{topology.Cluster}

// Slots that move, with their keys. No data is lost.
var slotFaults = []kind{
	{
		name: "move-slots", does: "slots with keys move to another master, one after the other",
		lane: servers, on: clusters, least: 0, most: 300 * time.Millisecond, after: time.Second, changes: true,
		new: func(e event) fault { return &moving{pick: e.Pick, slots: 10} },
	},
	{
		name: "move-slowly", does: "a slot with keys stays open on both sides for up to a second (ASK, TRYAGAIN), then moves",
		lane: servers, on: clusters, least: 0, most: 300 * time.Millisecond, after: time.Second, changes: true,
		new: func(e event) fault {
			return &moving{pick: e.Pick, slots: 2, open: time.Duration(200+e.Pick%800) * time.Millisecond}
		},
	},
}

type moving struct {
	pick  uint64
	slots int
	open  time.Duration // how long each is open on both sides
}

func (f *moving) Begin(ctx context.Context, w *world) error {
	from, err := w.master(ctx, f.pick)
	if err != nil {
		return err
	}
	to, err := w.master(ctx, f.pick+1)
	if err != nil {
		return err
	}
	for range f.slots {
		slot, err := slotWithKeys(ctx, from)
		if errors.Is(err, redis.Nil) {
			return nil // it has none
		}
		if err != nil {
			return err
		}
		if err := w.top.MoveSlots(ctx, slot, slot, to, func() { sleepUntil(ctx, time.Now().Add(f.open)) }); err != nil {
			return err
		}
	}
	return nil
}

func (f *moving) End(ctx context.Context, w *world) error { return w.top.Await(ctx) }

func slotWithKeys(ctx context.Context, n *topology.Node) (int, error) {
	key, err := n.Admin().RandomKey(ctx).Result()
	return keys.Slot(key), err
}

// aim chooses a master, and says in the event which names are concerned.
func (w *world) aim(ctx context.Context, pick uint64, e *history.Event) (*topology.Node, error) {
	n, err := w.master(ctx, pick)
	if err != nil || w.top.Kind() != topology.Cluster {
		return n, err
	}
	e.Scope.Slots, err = slotsOf(ctx, n)
	return n, err
}

// slotsOf are the ranges of slots that a master has.
func slotsOf(ctx context.Context, n *topology.Node) (ranges [][2]int, err error) {
	slots, err := n.Admin().ClusterSlots(ctx).Result() //nolint:staticcheck // Redis 6.2 has no CLUSTER SHARDS
	if err != nil {
		return nil, err
	}
	for _, s := range slots {
		if len(s.Nodes) > 0 && s.Nodes[0].Addr == n.Addr() {
			ranges = append(ranges, [2]int{s.Start, s.End})
		}
	}
	if len(ranges) == 0 {
		return nil, errors.New("it has no slots")
	}
	return ranges, nil
}
