package pubsub

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/script"
)

// over is a context that has ended. Receive is given it so that go-redis
// doesn't connect and subscribe again by itself: a new connection is ours to
// make, since it has to wake everybody.
var over = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// read receives until the connection ends.
func (l *link) read(ps *redis.PubSub) error {
	for {
		msg, err := ps.Receive(over)
		var reply redis.Error
		switch {
		case errors.As(err, &reply):
			l.refused(err)
			continue
		case err != nil:
			return err
		}
		switch m := msg.(type) {
		case *redis.Subscription:
			l.answered(m.Kind, m.Channel)
		case *redis.Message:
			l.deliver(m.Channel)
		default: // a pong
			l.heard()
		}
	}
}

func (l *link) heard() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heardLocked()
}

func (l *link) heardLocked() { l.lastRead, l.pinged = time.Now(), false }

// connected starts the clocks of a new connection: making it may have taken
// longer than an answer may.
func (l *link) connected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heardLocked()
	l.pendingFrom = l.lastRead
}

// answered takes the confirmation of one channel.
func (l *link) answered(kind, channel string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heardLocked()
	t := l.topics[channel]
	if kind == l.verbs.unsubscribe && t != nil && t.state == confirmed && l.astray != nil {
		l.astray(l, t) // not asked for: the slot has moved
		return
	}
	if kind != l.pendingKind {
		return
	}
	if t != nil {
		switch t.state {
		case asked:
			t.state, t.alone = confirmed, false
			l.noteLocked(t)
			l.sound = true
			if !t.isReady {
				t.isReady = true
				close(t.ready)
				break
			}
			for s := range t.subs {
				s.notify() // what was published in between is lost: look again
			}
		case leaving:
			delete(l.topics, channel)
			delete(l.open, channel)
		case wanted, confirmed: // made anew while the UNSUBSCRIBE was under way
		}
	}
	delete(l.pending, channel)
	l.finishedLocked()
}

func (l *link) finishedLocked() {
	if len(l.pending) == 0 {
		l.pendingKind = ""
		l.nudge()
	}
}

// refused takes an error reply: the SUBSCRIBE under way was not granted.
func (l *link) refused(err error) {
	if channel := l.refuse(script.Temporary(script.Explain(err))); channel != "" {
		l.log.Warn("holdfast: waiting without notifications: SUBSCRIBE was refused", "channel", channel, "cause", err)
	}
}

// refuse answers the channel that was refused, if it was one alone. moved: this
// node doesn't serve it now.
func (l *link) refuse(moved bool) (channel string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heardLocked()
	if l.pendingKind != l.verbs.subscribe {
		return ""
	}
	several := len(l.pending) > 1
	for c := range l.pending {
		t := l.topics[c]
		if t == nil || t.state != asked {
			continue
		}
		t.state = wanted
		l.noteLocked(t)
		if moved && l.astray != nil {
			l.astray(l, t)
			continue
		}
		if several {
			t.alone = true // to find out which of them it was
			continue
		}
		t.refusedUntil, channel = time.Now().Add(askAgain), c
	}
	clear(l.pending)
	l.finishedLocked()
	return channel
}

func (l *link) deliver(channel string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heardLocked()
	if t := l.topics[channel]; t != nil {
		for s := range t.subs {
			s.notify()
		}
	}
}
