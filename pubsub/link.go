package pubsub

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/keys"
	"github.com/holdfast-go/holdfast/internal/task"
)

const (
	// linger is how long a channel stays subscribed after its last waiter.
	linger = 100 * time.Millisecond
	// pingAfter is the silence after which the link is pinged, and after twice
	// of which it counts as dead.
	pingAfter = 3 * time.Second
	// idleAfter is how long a connection without channels is kept.
	idleAfter = 30 * time.Second
	// askAgain is the pause before a refused channel is asked for again.
	askAgain = 5 * time.Second

	minReconnect = 10 * time.Millisecond
	maxReconnect = 500 * time.Millisecond
)

var (
	errDead = errors.New("no sign of life from the pub/sub connection")
	errIdle = errors.New("no channels")
)

type state int

const (
	wanted    state = iota // SUBSCRIBE is to be sent
	asked                  // SUBSCRIBE was sent
	confirmed              // the server has answered it
	leaving                // UNSUBSCRIBE was sent
)

// topic is one channel. All fields but ready are guarded by mu.
type topic struct {
	channel string
	link    *link         // that carries it
	ready   chan struct{} // closed at the first confirmation
	isReady bool
	subs    map[*Subscription]struct{}
	state   state
	// alone: its SUBSCRIBE must not carry others, since one that carried
	// several was refused.
	alone bool
	// refusedUntil: not asked for before then.
	refusedUntil time.Time
	// idleSince is when the last waiter left.
	idleSince time.Time
}

// link is one pub/sub connection with its channels. One goroutine, run, writes
// to it; a second one, read, receives, and never blocks but on the connection.
type link struct {
	// connect makes the connection, at the first command. Guarded by mu.
	connect func(context.Context) *redis.PubSub
	// run is the life of the link.
	run func()
	// astray takes a channel that this link can't carry; nil if it carries all.
	// It needs mu.
	astray func(*link, *topic)
	// serving answers which server the commands go to; nil if that can't change
	// without a connection that breaks.
	serving func(context.Context) (string, error)
	verbs   verbs
	tasks   *task.Group
	log     *slog.Logger
	kick    chan struct{} // one slot: there may be something to do for run

	// mu is the hub's, so that a channel can move from link to link. It is a
	// leaf: no call to Redis or to a waiter under it.
	mu      *sync.Mutex
	running bool
	topics  map[string]*topic
	// open are the topics with something to do: wanted, or without a waiter.
	// What is confirmed and in use, which may be many thousands, is not looked at.
	open map[string]*topic
	// pending are the channels of the command under way, by what is expected.
	pending     map[string]struct{}
	pendingKind string
	pendingFrom time.Time
	lastRead    time.Time
	pinged      bool      // since lastRead
	emptySince  time.Time // since when there are no channels; zero if there are
	sound       bool      // something was confirmed on this connection
	// begun is when the connection was begun; zero: there is none. The others
	// are for doubt.go; zero: there is no doubt.
	begun, inDoubt, askedAt, renewAt time.Time
	// server is where commands went when last seen. following: somebody looks.
	server    string
	following bool
}

// verbs are the commands of one way of publishing.
type verbs struct {
	subscribe, unsubscribe string
	// bySlot: one command carries channels of one cluster slot only.
	bySlot bool
}

var (
	plainVerbs   = verbs{subscribe: "subscribe", unsubscribe: "unsubscribe"}
	shardedVerbs = verbs{subscribe: "ssubscribe", unsubscribe: "sunsubscribe", bySlot: true}
)

func (h *Hub) newLink(v verbs, connect func(context.Context) *redis.PubSub) *link {
	l := &link{
		connect: connect, verbs: v, mu: &h.mu, tasks: h.tasks, log: h.log,
		kick:    make(chan struct{}, 1),
		topics:  make(map[string]*topic),
		open:    make(map[string]*topic),
		pending: make(map[string]struct{}),
	}
	l.run = l.keep
	return l
}

// carries answers the channel's topic, unless it is about to go.
func (l *link) carries(channel string) *topic {
	t := l.topics[channel]
	if t == nil || t.state == leaving { // an UNSUBSCRIBE under way is answered first
		return nil
	}
	return t
}

// takeLocked gives a topic to this link, which has its life from now on.
func (l *link) takeLocked(t *topic) {
	t.link, t.state = l, wanted
	l.topics[t.channel] = t
	l.noteLocked(t)
	if !l.running {
		l.running = l.tasks.Go(l.run)
	}
	l.nudge()
}

// dropLocked takes a topic from this link.
func (l *link) dropLocked(t *topic) {
	if l.topics[t.channel] == t {
		delete(l.topics, t.channel)
		delete(l.open, t.channel)
	}
}

func (l *link) leave(s *Subscription) {
	delete(s.topic.subs, s)
	if len(s.topic.subs) > 0 {
		return
	}
	s.topic.idleSince = time.Now()
	l.noteLocked(s.topic)
	l.nudge()
}

func (l *link) nudge() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// keep keeps a connection as long as there are channels.
func (l *link) keep() {
	pause := minReconnect
	for {
		if !l.awaitTopics() {
			return
		}
		err := l.session()
		if l.reset() {
			pause = minReconnect
		}
		if errors.Is(err, errIdle) {
			continue
		}
		if l.tasks.Context().Err() != nil {
			return
		}
		if errors.Is(err, errMoved) {
			l.log.Info("holdfast: pub/sub connection is made anew", "cause", err)
		} else {
			l.log.Warn("holdfast: pub/sub connection lost, connecting again", "cause", err)
		}
		if !l.sleep(pause/2 + rand.N(pause/2)) {
			return
		}
		pause = min(2*pause, maxReconnect)
	}
}

func (l *link) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.tasks.Done():
		return false
	}
}

// awaitTopics returns when there is a channel to subscribe to; false on Close.
func (l *link) awaitTopics() bool {
	for {
		l.mu.Lock()
		l.dropUnusedLocked()
		n := len(l.topics)
		l.mu.Unlock()
		if n > 0 {
			return l.tasks.Context().Err() == nil
		}
		select {
		case <-l.kick:
		case <-l.tasks.Done():
			return false
		}
	}
}

// dropUnusedLocked forgets the channels that nobody waits on and that no
// connection carries.
func (l *link) dropUnusedLocked() {
	for c, t := range l.open {
		if len(t.subs) == 0 && t.state == wanted {
			delete(l.topics, c)
			delete(l.open, c)
		}
	}
}

// noteLocked keeps open true after a change of t.
func (l *link) noteLocked(t *topic) {
	switch {
	case l.topics[t.channel] != t: // made anew while its UNSUBSCRIBE was under way
	case t.state == wanted, len(t.subs) == 0:
		l.open[t.channel] = t
	default:
		delete(l.open, t.channel)
	}
}

// reset forgets what the ended connection carried, and reports whether it was
// sound.
func (l *link) reset() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.topics {
		t.state = wanted
		l.noteLocked(t)
		switch {
		case l.astray == nil:
		case len(t.subs) == 0: // or it would push aside one that was made anew
			l.dropLocked(t)
		default: // its shard may be elsewhere by now
			l.astray(l, t)
		}
	}
	clear(l.pending)
	l.pendingKind = ""
	was := l.sound
	l.sound, l.begun = false, time.Time{}
	return was
}

// session is the life of one connection.
func (l *link) session() error {
	ctx := l.tasks.Context()
	l.mu.Lock()
	connect := l.connect
	l.mu.Unlock()
	ps := connect(ctx)
	dead := make(chan error, 1)
	defer func() { _ = ps.Close() }() // ends read; nothing to do about an error
	l.begin()

	timer := time.NewTimer(linger)
	defer timer.Stop()
	reading := false
	for {
		kind, channels, sleep := l.next(time.Now())
		var err error
		switch kind {
		case plainVerbs.subscribe:
			err = ps.Subscribe(ctx, channels...)
		case plainVerbs.unsubscribe:
			err = ps.Unsubscribe(ctx, channels...)
		case shardedVerbs.subscribe:
			err = ps.SSubscribe(ctx, channels...)
		case shardedVerbs.unsubscribe:
			err = ps.SUnsubscribe(ctx, channels...)
		case "ping":
			err = ps.Ping(ctx)
		case "dead":
			err = errDead
		case "moved":
			err = errMoved
		case "idle":
			err = errIdle
		}
		if err != nil {
			_ = ps.Close()
			if reading {
				for range dead { // until read has ended; err is the reason
				}
			}
			return err
		}
		if !reading && kind != "" { // the first command has connected
			l.connected()
			reading = l.tasks.Go(func() {
				defer close(dead)
				dead <- l.read(ps)
			})
			if !reading {
				return ctx.Err()
			}
		}
		timer.Reset(sleep)
		select {
		case <-l.kick:
		case <-timer.C:
		case err := <-dead:
			return err
		case <-ctx.Done():
			_ = ps.Close()
			if reading {
				for range dead { // until read has ended
				}
			}
			return ctx.Err()
		}
	}
}

// next decides what to send now, and how long to sleep when nothing comes.
func (l *link) next(now time.Time) (kind string, channels []string, sleep time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropUnusedLocked()
	kind, again := l.proveLocked(now)
	if kind != "" {
		return kind, nil, 0
	}
	defer func() {
		if !again.IsZero() {
			sleep = min(sleep, max(again.Sub(now), 0))
		}
	}()
	silent := now.Sub(l.lastRead)
	switch {
	case silent >= 2*pingAfter, l.pendingKind != "" && now.Sub(l.pendingFrom) >= 2*pingAfter:
		return "dead", nil, 0
	case silent >= pingAfter && !l.pinged:
		l.pinged = true
		return "ping", nil, 0
	case silent >= pingAfter: // the rest doesn't wait for the pong
		sleep = 2*pingAfter - silent
	default:
		sleep = pingAfter - silent
	}
	if l.pendingKind != "" {
		return "", nil, sleep // one command at a time
	}
	switch {
	case len(l.topics) > 0:
		l.emptySince = time.Time{}
	case l.emptySince.IsZero():
		l.emptySince = now
	case now.Sub(l.emptySince) >= idleAfter:
		return "idle", nil, 0
	}
	var subscribe, unsubscribe []string
	for c, t := range l.open {
		switch {
		case t.state == wanted && now.Before(t.refusedUntil):
			sleep = min(sleep, t.refusedUntil.Sub(now))
		case t.state == wanted && t.alone:
			alone := []string{c}
			return l.sendLocked(l.verbs.subscribe, alone, now), alone, sleep
		case t.state == wanted:
			subscribe = append(subscribe, c)
		case t.state == confirmed && len(t.subs) == 0:
			if d := t.idleSince.Add(linger).Sub(now); d > 0 {
				sleep = min(sleep, d)
				continue
			}
			unsubscribe = append(unsubscribe, c)
		}
	}
	if len(subscribe) > 0 {
		subscribe = l.together(subscribe)
		return l.sendLocked(l.verbs.subscribe, subscribe, now), subscribe, sleep
	}
	if len(unsubscribe) > 0 {
		unsubscribe = l.together(unsubscribe)
		return l.sendLocked(l.verbs.unsubscribe, unsubscribe, now), unsubscribe, sleep
	}
	return "", nil, sleep
}

// together answers those of channels that may stand in one command.
func (l *link) together(channels []string) []string {
	if !l.verbs.bySlot {
		return channels
	}
	slot := keys.Slot(channels[0])
	return slices.DeleteFunc(channels, func(c string) bool { return keys.Slot(c) != slot })
}

func (l *link) sendLocked(kind string, channels []string, now time.Time) string {
	to := asked
	if kind == l.verbs.unsubscribe {
		to = leaving
	}
	for _, c := range channels {
		l.topics[c].state = to
		l.noteLocked(l.topics[c])
		l.pending[c] = struct{}{}
	}
	l.pendingKind, l.pendingFrom = kind, now
	return kind
}
