package pubsub

import (
	"context"
	"log/slog"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/task"
)

// Hub hands out subscriptions. Make it with New.
type Hub struct {
	rdb     redis.UniversalClient
	sharded func(context.Context) (bool, error)
	tasks   *task.Group
	log     *slog.Logger

	// mu guards all links and topics. See link.
	mu sync.Mutex
	// plain is the one link without shards; nil until that is decided.
	plain *link
	// nowhere has the channels whose link isn't known yet.
	nowhere *link
	// shards are the links of sharded pub/sub, by the address of the node.
	shards map[string]*link
	// stale: a node didn't serve a channel that it should.
	stale bool
}

// New makes a hub on rdb. It connects at the first subscription. sharded tells
// whether channels are subscribed to by SSUBSCRIBE, on the node of their slot; it
// is asked until it answers, and not at all if it is nil: SUBSCRIBE then. The
// hub's goroutines belong to tasks, and end with it.
func New(rdb redis.UniversalClient, sharded func(context.Context) (bool, error), tasks *task.Group, log *slog.Logger) *Hub {
	h := &Hub{rdb: rdb, sharded: sharded, tasks: tasks, log: log, shards: make(map[string]*link)}
	h.nowhere = h.newLink(verbs{}, nil)
	h.nowhere.run = h.route
	if sharded == nil {
		h.plain = h.newPlain()
	}
	return h
}

func (h *Hub) newPlain() *link {
	// Without a channel go-redis doesn't connect yet.
	l := h.newLink(plainVerbs, func(ctx context.Context) *redis.PubSub { return h.rdb.Subscribe(ctx) })
	if h.failover() {
		l.serving = h.serving
	}
	return l
}

// Subscribe registers a waiter on channel. It returns at once; Ready tells when
// the server has confirmed. The caller closes the subscription.
func (h *Hub) Subscribe(channel string) *Subscription {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topicLocked(channel)
	s := &Subscription{hub: h, topic: t, wake: make(chan struct{}, 1)}
	t.subs[s] = struct{}{}
	t.link.noteLocked(t)
	if t.state == wanted {
		t.link.nudge()
	}
	return s
}

// topicLocked answers the channel's topic, and makes it if there is none.
func (h *Hub) topicLocked(channel string) *topic {
	home := h.nowhere
	if h.plain != nil {
		home = h.plain
	}
	if t := home.carries(channel); t != nil {
		return t
	}
	for _, l := range h.shards {
		if t := l.carries(channel); t != nil {
			return t
		}
	}
	t := &topic{channel: channel, ready: make(chan struct{}), subs: make(map[*Subscription]struct{})}
	home.takeLocked(t)
	return t
}

// Channels is the number of channels subscribed or about to be.
func (h *Hub) Channels() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.nowhere.topics)
	if h.plain != nil {
		n += len(h.plain.topics)
	}
	for _, l := range h.shards {
		n += len(l.topics)
	}
	return n
}

// Subscription is one waiter's place on a channel.
type Subscription struct {
	hub   *Hub
	topic *topic
	wake  chan struct{} // one slot
	close sync.Once
}

// Ready is closed once the server has confirmed the channel.
func (s *Subscription) Ready() <-chan struct{} { return s.topic.ready }

// Wake yields a token when something was published since the last one, or when
// it may have been missed.
func (s *Subscription) Wake() <-chan struct{} { return s.wake }

// Close takes the waiter off the channel. It doesn't wait for the server.
func (s *Subscription) Close() {
	s.close.Do(func() {
		s.hub.mu.Lock()
		defer s.hub.mu.Unlock()
		s.topic.link.leave(s)
	})
}

func (s *Subscription) notify() {
	select {
	case s.wake <- struct{}{}:
	default: // a wake-up is waiting already
	}
}
