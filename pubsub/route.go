package pubsub

import (
	"context"
	"math/rand/v2"

	"github.com/redis/go-redis/v9"
)

// route is the life of the link to nowhere: it finds the link of each channel
// that has none, and moves the channel there.
func (h *Hub) route() {
	pause := minReconnect
	for h.nowhere.awaitTopics() {
		h.mu.Lock()
		stale := h.stale
		h.stale = false
		h.mu.Unlock()
		var err error
		if !stale {
			if err = h.settle(h.tasks.Context()); err == nil {
				pause = minReconnect
				continue
			}
			h.log.Warn("holdfast: no shard for a channel, looking again", "cause", err)
		}
		// go-redis looks for the slots behind our back: give it the time.
		h.reload(h.tasks.Context())
		if !h.nowhere.sleep(pause/2 + rand.N(pause/2)) {
			return
		}
		pause = min(2*pause, maxReconnect)
	}
}

// settle moves the channels that are nowhere to their links.
func (h *Hub) settle(ctx context.Context) error {
	sharded, err := h.sharded(ctx)
	if err != nil {
		return err
	}
	h.mu.Lock()
	var homeless []*topic
	for _, t := range h.nowhere.topics {
		homeless = append(homeless, t)
	}
	if !sharded && h.plain == nil {
		h.plain = h.newPlain()
	}
	h.mu.Unlock()
	for _, t := range homeless {
		l := h.plain
		if sharded {
			if l, err = h.shardOf(ctx, t.channel); err != nil {
				return err
			}
		}
		h.mu.Lock()
		if t.link == h.nowhere && h.nowhere.topics[t.channel] == t {
			h.nowhere.dropLocked(t)
			l.takeLocked(t)
		}
		h.mu.Unlock()
	}
	return nil
}

// shardOf answers the link to the node that has the channel's slot: the only one
// there is, if it isn't a cluster.
func (h *Hub) shardOf(ctx context.Context, channel string) (*link, error) {
	addr, connect := "", func(ctx context.Context) *redis.PubSub { return h.rdb.SSubscribe(ctx) }
	if cluster, ok := h.rdb.(*redis.ClusterClient); ok {
		node, err := cluster.MasterForKey(ctx, channel)
		if err != nil {
			return nil, err
		}
		addr, connect = node.Options().Addr, func(ctx context.Context) *redis.PubSub { return node.SSubscribe(ctx) }
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.shards[addr]
	if l == nil {
		l = h.newLink(shardedVerbs, nil)
		l.astray = h.astray
		h.shards[addr] = l
	}
	// go-redis makes a node's client anew when the node has been away.
	l.connect = connect
	return l, nil
}

// astray takes a channel from a link whose node doesn't serve it any more. It
// needs mu.
func (h *Hub) astray(from *link, t *topic) {
	from.dropLocked(t)
	h.nowhere.takeLocked(t)
	h.stale = true
}

// reload has a cluster client look for its slots again.
func (h *Hub) reload(ctx context.Context) {
	if cluster, ok := h.rdb.(*redis.ClusterClient); ok {
		cluster.ReloadState(ctx)
	}
}
