package redistest

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// EachMaster calls f with a client of each server that rdb sends writes to: the
// masters of a cluster one after the other, else rdb itself.
func EachMaster(ctx context.Context, rdb redis.UniversalClient, f func(context.Context, redis.UniversalClient) error) error {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return f(ctx, rdb)
	}
	var mu sync.Mutex // ForEachMaster asks them at once
	return cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		return f(ctx, master)
	})
}

// Keys are the keys on all masters whose names contain part, but for the markers
// of requests, which go by themselves.
func Keys(ctx context.Context, rdb redis.UniversalClient, part string) (found []string, err error) {
	err = EachMaster(ctx, rdb, func(ctx context.Context, master redis.UniversalClient) error {
		it := master.Scan(ctx, 0, "*", 1000).Iterator()
		for it.Next(ctx) {
			if k := it.Val(); strings.Contains(k, part) && !strings.Contains(k, ":holdfast:req:") {
				found = append(found, k)
			}
		}
		return it.Err()
	})
	return found, err
}

// Channels are those with part in their names that somebody has subscribed to, on
// any master, sharded ones (which Redis 6 doesn't have) included.
func Channels(ctx context.Context, rdb redis.UniversalClient, part string) (found []string, err error) {
	err = EachMaster(ctx, rdb, func(ctx context.Context, master redis.UniversalClient) error {
		plain, err := master.PubSubChannels(ctx, "*").Result()
		if err != nil {
			return err
		}
		sharded, err := master.PubSubShardChannels(ctx, "*").Result()
		if err != nil && !strings.Contains(strings.ToLower(err.Error()), "unknown") {
			return err
		}
		for _, c := range slices.Concat(plain, sharded) {
			if strings.Contains(c, part) {
				found = append(found, c)
			}
		}
		return nil
	})
	return found, err
}
