package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/integration/internal/history"
	"github.com/holdfast-go/holdfast/integration/internal/topology"
)

// Faults that take data away.
var dataFaults = []kind{
	{
		name: "lose-server", does: "kill -9 of the server, which comes back empty",
		lane: servers, on: []topology.Kind{topology.Single}, least: 0, most: time.Second, loses: true,
		new: func(event) fault { return emptied{} },
	},
	{
		name: "evict", does: "maxmemory below what is used, allkeys-random: keys vanish, then writes are refused",
		lane: servers, least: 50 * time.Millisecond, most: 300 * time.Millisecond, loses: true,
		new: func(e event) fault { return &eviction{pick: e.Pick} },
	},
}

// emptied kills the only server and its data.
type emptied struct{}

func (emptied) Begin(_ context.Context, w *world) error {
	w.top.Nodes()[0].Kill()
	return nil
}

func (emptied) End(ctx context.Context, w *world) error {
	return retry(ctx, w.top.Nodes()[0].RestartEmpty)
}

// eviction makes the memory of a master too small.
type eviction struct {
	pick uint64
	node *topology.Node
}

func (f *eviction) Aim(ctx context.Context, w *world, e *history.Event) (err error) {
	f.node, err = w.aim(ctx, f.pick, e)
	return err
}

func (f *eviction) Begin(ctx context.Context, _ *world) error {
	// Again and again: go-redis refuses to dial for a while after a server was down.
	return retry(ctx, func() error {
		admin := f.node.Admin()
		used, err := usedMemory(ctx, f.node)
		if err != nil {
			return err
		}
		// A little below: some keys go. Far below: all go, and writes are refused.
		limit := used - 8<<10
		if f.pick>>32%2 == 0 {
			limit = used / 2
		}
		if err := admin.ConfigSet(ctx, "maxmemory-policy", "allkeys-random").Err(); err != nil {
			return err
		}
		return admin.ConfigSet(ctx, "maxmemory", strconv.FormatInt(limit, 10)).Err()
	})
}

func (f *eviction) End(ctx context.Context, _ *world) error {
	return retry(ctx, func() error {
		admin := f.node.Admin()
		return errors.Join(admin.ConfigSet(ctx, "maxmemory", "0").Err(),
			admin.ConfigSet(ctx, "maxmemory-policy", "noeviction").Err())
	})
}

func usedMemory(ctx context.Context, n *topology.Node) (int64, error) {
	fields, err := n.Admin().InfoMap(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(fields["Memory"]["used_memory"], 10, 64)
}
