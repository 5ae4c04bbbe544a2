package main

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/integration/internal/history"
	"github.com/holdfast-go/holdfast/integration/internal/topology"
)

var replicated = []topology.Kind{topology.Sentinel, topology.Cluster}

// Failovers. Replication is asynchronous: what a master answered and had not sent
// on is lost with it.
var failoverFaults = []kind{
	{
		name: "failover", changes: true, does: "SENTINEL FAILOVER, CLUSTER FAILOVER: a replica takes over in good order",
		lane: servers, on: replicated, after: 2 * time.Second, loses: true,
		new: func(e event) fault { return &handover{pick: e.Pick} },
	},
	{
		name: "kill-master", changes: true, does: "kill -9 of a master; it comes back once a replica has taken over",
		lane: servers, on: replicated, least: 0, most: 500 * time.Millisecond, after: 4 * time.Second, loses: true,
		new: func(e event) fault { return &deposed{pick: e.Pick, down: killed, up: restarted} },
	},
	{
		name: "freeze-master", changes: true, does: "SIGSTOP of a master; it goes on once a replica has taken over, and believes to be master still",
		lane: servers, on: replicated, least: 0, most: 500 * time.Millisecond, after: 4 * time.Second, loses: true,
		new: func(e event) fault {
			return &deposed{pick: e.Pick, down: (*topology.Node).Pause, up: (*topology.Node).Resume}
		},
	},
}

// handover makes a replica the master while all are alive.
type handover struct {
	pick uint64
	old  *topology.Node
}

func (f *handover) Aim(ctx context.Context, w *world, e *history.Event) (err error) {
	f.old, err = w.aim(ctx, f.pick, e)
	// In a cluster the master waits until its replica has everything.
	e.Loses = w.top.Kind() != topology.Cluster
	return err
}

func (f *handover) Begin(ctx context.Context, w *world) error {
	// Sentinels may give up: the one that promotes a replica, if another one makes
	// it follow again.
	return retry(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, patience/6)
		defer cancel()
		_, err := w.top.Failover(ctx, f.old)
		return err
	})
}

func (*handover) End(ctx context.Context, w *world) error { return w.top.Await(ctx) }

// deposed takes a master away until another one has taken its place.
type deposed struct {
	pick     uint64
	down, up func(*topology.Node) error
	old      *topology.Node
	slot     int // one that it has, in a cluster
}

func killed(n *topology.Node) error {
	n.Kill()
	return nil
}

func restarted(n *topology.Node) error { return n.Restart() }

func (f *deposed) Aim(ctx context.Context, w *world, e *history.Event) (err error) {
	f.old, err = w.aim(ctx, f.pick, e)
	if len(e.Scope.Slots) > 0 {
		f.slot = e.Scope.Slots[0][0]
	}
	return err
}

func (f *deposed) Begin(ctx context.Context, w *world) error {
	if err := f.down(f.old); err != nil {
		return err
	}
	return retry(ctx, func() error {
		now, err := w.top.OwnerOf(ctx, f.slot)
		if err == nil && now == f.old {
			err = errors.New("nobody has taken over yet")
		}
		return err
	})
}

func (f *deposed) End(ctx context.Context, w *world) error {
	return errors.Join(retry(ctx, func() error { return f.up(f.old) }), w.top.Await(ctx))
}
