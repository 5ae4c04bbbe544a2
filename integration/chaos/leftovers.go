package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/integration/internal/topology"
)

// lasting says which keys may be there when nobody is: numbers of permits and
// counts, rates, fencing tokens. All others end with who made them, at the latest
// after their time to live.
func lasting(key string) bool {
	for _, mark := range []string{"semaphore-", "expirable-", "latch-", "limiter-", "redisson_lock_token"} {
		if strings.Contains(key, mark) {
			return true
		}
	}
	return false
}

// marks are the markers of requests. They outlive who made them, by markers at
// most, and nobody waits for that: each is judged by its time to live.
func marks(key string) bool { return strings.Contains(key, "holdfast:req:") }

const markers = 75 * time.Second

// queues are places of waiters. Those of a killed process stay until somebody comes
// by, or until they expire.
func queues(key string) bool {
	for _, mark := range []string{"redisson_lock_queue", "redisson_lock_timeout", "holdfast:alive", "holdfast:writers", "holdfast:readers"} {
		if strings.Contains(key, mark) {
			return true
		}
	}
	return false
}

// leftovers answers what the clients, all of which have ended, left in the servers.
// The holds of those that were killed have a lease to run out.
func leftovers(ctx context.Context, top *topology.Topology, killed bool) (left []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*lease+patience/2)
	defer cancel()
	err = retry(ctx, func() error {
		left = nil
		for _, n := range top.Nodes() {
			found, err := leftAt(ctx, n, killed)
			if err != nil {
				return fmt.Errorf("look at %s: %w", n.Name(), err)
			}
			left = append(left, found...)
		}
		if len(left) > 0 {
			return errors.New("something is left")
		}
		return nil
	})
	if len(left) > 0 {
		return left, nil
	}
	return nil, err
}

// leftAt looks at one server.
func leftAt(ctx context.Context, n *topology.Node, killed bool) (left []string, err error) {
	say := func(format string, args ...any) {
		left = append(left, "left at "+n.Name()+": "+fmt.Sprintf(format, args...))
	}
	rdb := n.Admin()
	conns, err := rdb.ClientList(ctx).Result()
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(conns) {
		if strings.Contains(line, " user="+appUser+" ") {
			say("connection %s", strings.TrimSpace(line))
		}
	}
	channels, err := rdb.PubSubChannels(ctx, "*").Result()
	if err != nil {
		return nil, err
	}
	if shards, err := rdb.PubSubShardChannels(ctx, "*").Result(); err == nil { // Redis 6.2 has none
		channels = append(channels, shards...)
	}
	for _, c := range channels {
		if !strings.HasPrefix(c, "__sentinel__") {
			say("subscription to %s", c)
		}
	}
	found, err := keysLeft(ctx, rdb, killed)
	for _, k := range found {
		say("%s", k)
	}
	return left, err
}

// keysLeft are the keys of a server that should have gone, and those that never
// will, in words. A replica waits for its master to remove what has expired.
func keysLeft(ctx context.Context, rdb *redis.Client, killed bool) (left []string, err error) {
	keys := rdb.Scan(ctx, 0, "*", 1000).Iterator()
	var names []string
	for keys.Next(ctx) {
		if marks(keys.Val()) || !lasting(keys.Val()) {
			names = append(names, keys.Val())
		}
	}
	if err := keys.Err(); err != nil {
		return nil, err
	}
	slices.Sort(names)
	for _, key := range names {
		ttl, err := rdb.PTTL(ctx, key).Result()
		switch {
		case err != nil:
			if !strings.HasPrefix(err.Error(), "MOVED ") { // a replica of a cluster: its master is asked, too
				return nil, err
			}
		case ttl == -2: // it has gone
		case ttl > 0 && ttl <= markers && marks(key):
		case ttl > 0 && killed && queues(key):
		default:
			left = append(left, fmt.Sprintf("key %s, time to live %v", key, ttl))
		}
	}
	return left, nil
}
