package script

import (
	"context"
	"sync/atomic"
)

// Sharding says how a release is published and listened to on a cluster.
type Sharding int

const (
	// Auto is On where the nodes of a cluster know sharded pub/sub, as Redis 7
	// and Valkey do, else Off.
	Auto Sharding = iota
	// On is SPUBLISH and SSUBSCRIBE: what is published stays in the shard.
	On
	// Off is PUBLISH and SUBSCRIBE: every node of a cluster gets all of it.
	Off
)

// sharding is the choice of one client. It is made once.
type sharding struct {
	mode    Sharding
	decided atomic.Int32 // undecided, plain or sharded
}

const (
	undecided = iota
	plainPubSub
	shardedPubSub
)

// Shard sets how scripts publish. It is called before the first request.
func (r *Runner) Shard(mode Sharding) { r.sharding.mode = mode }

// MayShard reports whether SPUBLISH may come to be used, by what is known before
// anything is sent.
func (r *Runner) MayShard() bool {
	return r.sharding.mode == On || r.sharding.mode == Auto && r.cluster != nil
}

// Sharded reports whether SPUBLISH is used, and asks the cluster unless that is
// known. An error, go-redis' own, leaves it undecided. Redisson decides likewise,
// so that both sides of a migration come to the same.
func (r *Runner) Sharded(ctx context.Context) (bool, error) {
	switch {
	case r.sharding.mode == On:
		return true, nil
	case r.sharding.mode == Off || r.cluster == nil:
		return false, nil
	}
	if d := r.sharding.decided.Load(); d != undecided {
		return d == shardedPubSub, nil
	}
	err := r.cluster.PubSubShardNumSub(ctx).Err()
	switch {
	case err == nil:
		r.sharding.decided.Store(shardedPubSub)
	case fateOf(err) == refused && isReply(err): // a node that doesn't know it, or doesn't let us
		r.sharding.decided.Store(plainPubSub)
	default:
		return false, err
	}
	return r.sharding.decided.Load() == shardedPubSub, nil
}

// shards reports whether c goes out in its sharded form.
func (r *Runner) shards(ctx context.Context, c *Call) (bool, error) {
	if !c.script.publishes {
		return false, nil
	}
	return r.Sharded(ctx)
}
