package pubsub

import (
	"log/slog"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/task"
)

// Hub hands out subscriptions. Make it with New.
type Hub struct {
	link *link
}

// New makes a hub on rdb. It connects at the first subscription. Its goroutines
// belong to tasks, and end with it.
func New(rdb redis.UniversalClient, tasks *task.Group, log *slog.Logger) *Hub {
	return &Hub{link: newLink(rdb, tasks, log)}
}

// Subscribe registers a waiter on channel. It returns at once; Ready tells when
// the server has confirmed. The caller closes the subscription.
func (h *Hub) Subscribe(channel string) *Subscription {
	return h.linkFor(channel).subscribe(channel)
}

// linkFor is where sharded pub/sub will pick the shard of the channel's slot.
func (h *Hub) linkFor(string) *link { return h.link }

// Channels is the number of channels subscribed or about to be.
func (h *Hub) Channels() int { return h.link.channels() }

// Subscription is one waiter's place on a channel.
type Subscription struct {
	link  *link
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
	s.close.Do(func() { s.link.leave(s) })
}

func (s *Subscription) notify() {
	select {
	case s.wake <- struct{}{}:
	default: // a wake-up is waiting already
	}
}
