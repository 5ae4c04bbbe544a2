package topology

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

const failoverGivesUp = 7 * time.Second

var errNoFailover = errors.New("nothing fails over here")

// Failover hands the place of a master to one of its replicas in good order
// (SENTINEL FAILOVER, CLUSTER FAILOVER) and returns the new master once it is one.
// The old one becomes a replica of it by and by; Await waits for that. For what
// happens when a master dies: n.Kill, then AwaitMaster.
func (t *Topology) Failover(ctx context.Context, n *Node) (*Node, error) {
	var request func(context.Context) error
	switch t.kind {
	case Sentinel:
		// Refused while one is under way, and until replicas have been looked at.
		request = func(ctx context.Context) error {
			return t.sentinels[0].admin.Do(ctx, "sentinel", "failover", masterName).Err()
		}
	case Cluster:
		request = func(ctx context.Context) error {
			replicas, err := t.Replicas(ctx, n)
			if err == nil && len(replicas) == 0 {
				err = errors.New("it has no replica")
			}
			if err != nil {
				return err
			}
			return replicas[0].admin.ClusterFailover(ctx).Err()
		}
	default:
		return nil, n.wrap("failover of", errNoFailover)
	}
	for {
		next, err := t.failover(ctx, n, request)
		if err == nil || ctx.Err() != nil {
			return next, n.wrap("failover of", err)
		}
	}
}

// failover asks once. What was agreed to may come to nothing: the servers give up
// after 5 s.
func (t *Topology) failover(ctx context.Context, n *Node, request func(context.Context) error) (next *Node, err error) {
	if err := redistest.Retry(ctx, func() error { return request(ctx) }); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, failoverGivesUp)
	defer cancel()
	err = redistest.Retry(ctx, func() error {
		var err error
		if next, err = t.successor(ctx, n); err == nil && (next == nil || next == n) {
			err = errors.New("it is the master still")
		}
		return err
	})
	return next, err
}

// successor is the master instead of n, nil while there is none.
func (t *Topology) successor(ctx context.Context, n *Node) (*Node, error) {
	if t.kind == Sentinel {
		return t.sentinelsMaster(ctx)
	}
	info, err := n.info(ctx, "replication")
	if err != nil || info["role"] != "slave" {
		return nil, err
	}
	for _, r := range t.nodes {
		if net.JoinHostPort(info["master_host"], info["master_port"]) == r.Addr() {
			return r, nil
		}
	}
	return nil, nil
}

// MoveSlots gives the slots from first to last and their keys to another master of
// a cluster, as resharding does, whoever has them. between, if not nil, is called
// once for each slot, while it is open on both sides.
func (t *Topology) MoveSlots(ctx context.Context, first, last int, to *Node, between func()) error {
	if t.kind != Cluster {
		return errors.New("topology: only a cluster has slots")
	}
	for slot := first; slot <= last; {
		from, err := t.slotOwner(ctx, slot)
		if err != nil {
			return err
		}
		end := slot // of those that have the same owner
		for _, v := range t.views(ctx) {
			for v.node == from && end < last && v.has(end+1) {
				end++
			}
		}
		if from != to {
			if err := redistest.MoveSlots(ctx, slot, end, from.server, to.server, between); err != nil {
				return fmt.Errorf("topology: move slots %d-%d from %s to %s: %w", slot, end, from.name, to.name, err)
			}
		}
		slot = end + 1
	}
	return nil
}
