package pubsub

import (
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// proofWithin is how long a link in doubt has for a sign of life once it is asked.
	proofWithin = 500 * time.Millisecond
	// settled is how old a connection has to be before it is made anew because of a
	// doubt: a connection that breaks again and again isn't worth more.
	settled = time.Second
)

var errMoved = errors.New("the server may have another role by now")

// Doubt tells the hub that commands had failed and work again. What was published
// meanwhile may have been lost: a server that was stopped closes no connection, and
// one that isn't the master any more passes on only what its new master sends it,
// if it has one. So every link has to prove that it is alive. moved says that
// connections broke or a server refused to write, as in a failover: then the link
// of a client without a cluster is made anew, where the commands go now. In a
// cluster it is if its channels have another master.
func (h *Hub) Doubt(moved bool) {
	left := h.left()
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if h.plain != nil {
		h.plain.doubtLocked(now, moved && !h.clustered())
	}
	for addr, l := range h.shards {
		l.doubtLocked(now, left[addr] || moved && !h.clustered())
	}
}

func (h *Hub) clustered() bool {
	_, ok := h.rdb.(*redis.ClusterClient)
	return ok
}

// left answers the nodes that aren't the masters of their links' channels any more.
// One channel of each is looked at: a slot that moves alone tells by itself.
func (h *Hub) left() map[string]bool {
	cluster, ok := h.rdb.(*redis.ClusterClient)
	if !ok {
		return nil
	}
	h.mu.Lock()
	sample := make(map[string]string)
	for addr, l := range h.shards {
		for channel := range l.topics {
			sample[addr] = channel
			break
		}
	}
	h.mu.Unlock()
	left := make(map[string]bool)
	for addr, channel := range sample {
		node, err := cluster.MasterForKey(h.tasks.Context(), channel)
		left[addr] = err == nil && node.Options().Addr != addr
	}
	return left
}

func (l *link) doubtLocked(now time.Time, moved bool) {
	if l.begun.IsZero() {
		return // there is no connection
	}
	if l.inDoubt.IsZero() {
		l.inDoubt = now
	}
	if moved && l.renewAt.IsZero() {
		l.renewAt = now
		if at := l.begun.Add(settled); at.After(now) {
			l.renewAt = at
		}
	}
	l.nudge()
}

// begin notes that a connection is made from now on.
func (l *link) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heardLocked()
	l.begun, l.inDoubt, l.askedAt, l.renewAt = l.lastRead, time.Time{}, time.Time{}, time.Time{}
	if l.serving != nil && !l.following {
		l.following = l.tasks.Go(l.follow)
	}
}

// proveLocked answers what a link in doubt has to do now, and otherwise when it has
// to be looked at again; zero: it isn't in doubt.
func (l *link) proveLocked(now time.Time) (kind string, again time.Time) {
	if !l.renewAt.IsZero() {
		if !now.Before(l.renewAt) {
			return "moved", now
		}
		again = l.renewAt
	}
	switch {
	case l.inDoubt.IsZero():
		return "", again
	case l.lastRead.After(l.inDoubt):
		l.inDoubt, l.askedAt = time.Time{}, time.Time{}
		return "", again
	case l.askedAt.IsZero():
		// The time counts from here, not from the doubt: a busy machine may be late.
		l.askedAt = now
		if !l.pinged {
			l.pinged = true
			return "ping", now
		}
	case now.Sub(l.askedAt) >= proofWithin:
		return "dead", now
	}
	if at := l.askedAt.Add(proofWithin); again.IsZero() || at.Before(again) {
		again = at
	}
	return "", again
}
