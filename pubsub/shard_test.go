package pubsub

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/keys"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/task"
)

// shardBench is a hub on a cluster with sharded pub/sub.
type shardBench struct {
	*bench
	cluster *redistest.Cluster
	rdb     *redis.ClusterClient
}

func newShardBench(t *testing.T, nodes int) *shardBench {
	t.Helper()
	b := &shardBench{cluster: redistest.StartCluster(t, nodes)}
	b.bench = &bench{t: t, tasks: task.NewGroup(), log: &logbook{}}
	b.rdb = b.cluster.Client(t)
	b.Hub = New(b.rdb, func(context.Context) (bool, error) { return true, nil }, b.tasks, slog.New(slog.NewTextHandler(b.log, nil)))
	t.Cleanup(b.close)
	return b
}

func (b *shardBench) spublish(channel string) {
	b.t.Helper()
	n, err := b.rdb.SPublish(context.Background(), channel, "0").Result()
	require.NoError(b.t, err)
	require.EqualValues(b.t, 1, n, "%s has another number of subscribers", channel)
}

// on counts, on each node, the subscribed connections and channels.
func (b *shardBench) on() (conns, channels []int) {
	b.t.Helper()
	for _, s := range b.cluster.Nodes() {
		rdb := redis.NewClient(s.Options())
		b.admin = rdb
		conns = append(conns, b.pubsubConns())
		names, err := rdb.PubSubShardChannels(context.Background(), "*").Result()
		require.NoError(b.t, err)
		channels = append(channels, len(names))
		require.NoError(b.t, rdb.Close())
	}
	return conns, channels
}

func sum(ns []int) (n int) {
	for _, m := range ns {
		n += m
	}
	return n
}

func TestShardsHaveOneConnectionEach(t *testing.T) {
	const n = 60
	b := newShardBench(t, 3)
	var subs []*Subscription
	for i := range n {
		subs = append(subs, b.Subscribe(b.channel(i)))
	}
	for _, s := range subs {
		b.await(s.Ready(), "confirmation")
	}
	conns, channels := b.on()
	require.Equal(t, []int{1, 1, 1}, conns)
	require.Equal(t, n, sum(channels))
	for i, s := range subs {
		b.spublish(b.channel(i))
		b.await(s.Wake(), "message")
		s.Close()
	}
	redistest.Eventually(t, prompt, func() bool { _, channels := b.on(); return sum(channels) == 0 }, "channels are left")
	redistest.Eventually(t, gone, func() bool { return b.Channels() == 0 }, "channels are left in the hub")
	require.Zero(t, b.log.count(lostText), b.log)
}

// A server drops the sharded subscriptions of a slot that it loses.
func TestSubscriptionFollowsItsSlot(t *testing.T) {
	b := newShardBench(t, 3)
	channel := b.channel(1)
	s, other := b.ready(channel), b.ready(b.channel(2))
	slot := keys.Slot(channel)
	require.NotEqual(t, slot, keys.Slot(b.channel(2)))
	from := b.cluster.Owner(t, slot)
	for _, to := range b.cluster.Nodes() {
		if to == from {
			continue
		}
		b.cluster.MoveSlot(t, slot, to, nil)
		b.await(s.Wake(), "wake-up after the move")
		rdb := to.Client(t)
		num, err := rdb.PubSubShardNumSub(t.Context(), channel).Result()
		require.NoError(t, err)
		require.EqualValues(t, 1, num[channel], "not subscribed on the new owner")
		require.NoError(t, rdb.SPublish(t.Context(), channel, "0").Err())
		b.await(s.Wake(), "message on the new owner")
	}
	require.False(t, has(other.Wake()), "woken by another slot's move")
	fresh := b.ready(channel)
	_, channels := b.on()
	require.Equal(t, 2, sum(channels))
	for _, s := range []*Subscription{s, other, fresh} {
		s.Close()
	}
	redistest.Eventually(t, prompt, func() bool { _, channels := b.on(); return sum(channels) == 0 }, "channels are left")
}

// A node that dies takes its channels along; they wait for who serves the slot
// next, and the others are not disturbed.
func TestShardThatDies(t *testing.T) {
	b := newShardBench(t, 3)
	dead := b.cluster.Nodes()[1]
	var here, there []*Subscription
	for i := range 30 {
		s := b.ready(b.channel(i))
		if b.cluster.Owner(t, keys.Slot(b.channel(i))) == dead {
			here = append(here, s)
		} else {
			there = append(there, s)
		}
	}
	require.NotEmpty(t, here)
	dead.Kill()
	redistest.Eventually(t, prompt, func() bool { return b.log.count(lostText) >= 2 }, "no attempt to connect")
	dead.Restart()
	for _, s := range here {
		b.awaitFor(4*prompt, s.Wake(), "wake-up by the reconnect")
	}
	for _, s := range there {
		require.False(t, has(s.Wake()), "woken by another shard's trouble")
	}
	for _, s := range append(here, there...) {
		b.spublish(s.topic.channel)
		b.await(s.Wake(), "message")
		s.Close()
	}
}

// Until it is known which way, channels wait; then all of them go that way.
func TestWayOfPublishingIsAskedForUntilKnown(t *testing.T) {
	for _, sharded := range []bool{false, true} {
		t.Run(fmt.Sprint("sharded ", sharded), func(t *testing.T) {
			b := newBench(t, redistest.Start(t), nil)
			b.close()
			var asked atomic.Int32
			b.tasks = task.NewGroup()
			b.Hub = New(b.admin, func(context.Context) (bool, error) {
				if asked.Add(1) < 4 {
					return false, fmt.Errorf("no answer")
				}
				return sharded, nil
			}, b.tasks, slog.New(slog.NewTextHandler(b.log, nil)))
			subs := []*Subscription{b.ready(b.channel(1)), b.ready(b.channel(2)), b.ready(b.channel(1))}
			require.GreaterOrEqual(t, asked.Load(), int32(4))
			if sharded {
				require.NoError(t, b.admin.SPublish(t.Context(), b.channel(1), "0").Err())
			} else {
				b.publish(b.channel(1))
			}
			b.await(subs[0].Wake(), "message")
			b.await(subs[2].Wake(), "message")
			require.False(t, has(subs[1].Wake()))
			require.Equal(t, 1, b.pubsubConns())
			for _, s := range subs {
				s.Close()
			}
			redistest.Eventually(t, gone, func() bool { return b.Channels() == 0 }, "channels are left in the hub")
		})
	}
}

// A channel on its way out, whose connection ends before the server has answered,
// must not take the place of the one that was made anew meanwhile: those who wait
// on that would never be told.
func TestChannelMadeAnewOutlivesTheOldOne(t *testing.T) {
	tasks := task.NewGroup()
	defer func() {
		tasks.Stop()
		tasks.Wait()
	}()
	h := New(nil, func(ctx context.Context) (bool, error) {
		<-tasks.Done() // no channel finds its way while we look
		return false, ctx.Err()
	}, tasks, slog.New(slog.DiscardHandler))
	shard := h.newLink(shardedVerbs, nil)
	shard.astray = h.astray
	shard.running = true // by this test
	h.mu.Lock()
	h.shards["shard"] = shard
	old := &topic{channel: "c", ready: make(chan struct{}), subs: make(map[*Subscription]struct{})}
	shard.takeLocked(old)
	shard.sendLocked(shardedVerbs.unsubscribe, []string{"c"}, time.Now())
	h.mu.Unlock()

	s := h.Subscribe("c")
	defer s.Close()
	shard.reset()
	h.mu.Lock()
	defer h.mu.Unlock()
	require.Same(t, s.topic, h.nowhere.topics["c"])
	require.Empty(t, shard.topics)
}

// wrapped is a client of a type that go-redis doesn't know.
type wrapped struct{ redis.UniversalClient }

// Sharded pub/sub works on whatever client has it.
func TestShardedOnAWrappedClient(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	tasks := task.NewGroup()
	h := New(wrapped{rdb}, func(context.Context) (bool, error) { return true, nil }, tasks, slog.New(slog.DiscardHandler))
	defer func() {
		tasks.Stop()
		tasks.Wait()
	}()
	s := h.Subscribe(t.Name())
	defer s.Close()
	<-s.Ready()
	require.NoError(t, rdb.SPublish(t.Context(), t.Name(), "0").Err())
	<-s.Wake()
}
