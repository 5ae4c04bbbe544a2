package wait

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	poll     = 5 * time.Second
	patience = 3 * time.Second
	name     = "n"
)

// sub is a subscription of the bench's bus.
type sub struct {
	b           *bench
	ready, wake chan struct{}
	closed      bool // guarded by b.mu
}

func (s *sub) Ready() <-chan struct{} { return s.ready }
func (s *sub) Wake() <-chan struct{}  { return s.wake }

func (s *sub) Close() {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.closed = true
}

// ask is one question that reached the server.
type ask struct {
	who string
	at  time.Duration
}

// bench is a loop in a bubble, on a server made of a function and a bus that
// the test rings.
type bench struct {
	*Loop
	began  time.Time
	closed chan struct{}

	mu     sync.Mutex
	deaf   bool // subscriptions aren't confirmed until the test does it
	subs   []*sub
	asks   []ask
	answer func(ctx context.Context, who string, until time.Time) (Outcome, error)
}

func newBench(answer func(ctx context.Context, who string, until time.Time) (Outcome, error)) *bench {
	b := &bench{began: time.Now(), closed: make(chan struct{}), answer: answer}
	b.Loop = &Loop{Subscribe: b.subscribe, Poll: poll, Patience: patience, Closed: b.closed}
	return b
}

// replies answers every try the same.
func replies(out Outcome, err error) func(context.Context, string, time.Time) (Outcome, error) {
	return func(context.Context, string, time.Time) (Outcome, error) { return out, err }
}

func (b *bench) subscribe(string) Subscription {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &sub{b: b, ready: make(chan struct{}), wake: make(chan struct{}, 1)}
	if !b.deaf {
		close(s.ready)
	}
	b.subs = append(b.subs, s)
	return s
}

// ring wakes whoever is subscribed.
func (b *bench) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.subs {
		if s.closed {
			continue
		}
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// confirm confirms all subscriptions made while the bench was deaf.
func (b *bench) confirm() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deaf = false
	for _, s := range b.subs {
		close(s.ready)
	}
}

func (b *bench) subscriptions() (open, made int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.subs {
		if !s.closed {
			open++
		}
	}
	return open, len(b.subs)
}

// asked takes the questions asked since the last call.
func (b *bench) asked() []ask {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.asks
	b.asks = nil
	return out
}

func (b *bench) now() time.Duration { return time.Since(b.began) }

// tries makes the Trier of one waiter.
func (b *bench) tries(who string) Trier { return &trier{b, who, make(chan struct{})} }

type trier struct {
	b       *bench
	who     string
	entered chan struct{} // the test closes it
}

func (q *trier) Entered() <-chan struct{} { return q.entered }

func (q *trier) Try(ctx context.Context, until time.Time) (Outcome, error) {
	q.b.mu.Lock()
	q.b.asks = append(q.b.asks, ask{q.who, q.b.now()})
	answer := q.b.answer
	q.b.mu.Unlock()
	return answer(ctx, q.who, until)
}

// call is one acquisition under way.
type call struct {
	b    *bench
	err  error         // once it is over
	at   time.Duration // likewise: when that was
	over bool          // guarded by b.mu
}

func (c *call) done() bool {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	return c.over
}

// forever and within are acquisitions that stand in line.
func (b *bench) forever(who string) Spec {
	return Spec{Name: name, Line: name, Channel: "c", Forever: true, Try: b.tries(who)}
}

func (b *bench) within(who string, d time.Duration) Spec {
	return Spec{Name: name, Line: name, Channel: "c", Wait: d, Try: b.tries(who)}
}

// start begins an acquisition and returns when it sleeps or is over.
func (b *bench) start(ctx context.Context, s Spec) *call {
	c := &call{b: b}
	go func() {
		err := b.Acquire(ctx, s)
		b.mu.Lock()
		defer b.mu.Unlock()
		c.err, c.at, c.over = err, b.now(), true
	}()
	synctest.Wait()
	return c
}

// enter tells the waiter of s that its owner got in by another call.
func enter(s Spec) {
	close(s.Try.(*trier).entered)
	synctest.Wait()
}

func (b *bench) idle(t *testing.T) {
	t.Helper()
	open, _ := b.subscriptions()
	require.Zero(t, open, "subscriptions are left")
	for _, l := range b.lines.byKey {
		require.Same(t, b.lines.resting, l, "lines are left")
		require.Nil(t, l.sub, "what rests hears nothing")
		require.Nil(t, l.first)
		require.Nil(t, l.last)
		require.Nil(t, l.opener.next, "nor does it keep who stood there")
	}
}

// lock is a server with one lock.
type lock struct {
	mu    sync.Mutex
	taken bool
	ttl   time.Duration // of a refusal
	lease time.Duration // of a grant
}

func (l *lock) answer(context.Context, string, time.Time) (Outcome, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.taken {
		return Outcome{TTL: l.ttl}, nil
	}
	l.taken = true
	return Outcome{Granted: true, TTL: l.lease}, nil
}

func (l *lock) free() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken = false
}

func heldLock() *lock { return &lock{taken: true, ttl: -1, lease: time.Hour} }

// release frees l, tells it, and returns when everybody has reacted.
func (b *bench) release(l *lock) {
	l.free()
	b.ring()
	synctest.Wait()
}

func times(asks []ask) []time.Duration {
	var ts []time.Duration
	for _, a := range asks {
		ts = append(ts, a.at)
	}
	return ts
}

func askers(asks []ask) []string {
	var ws []string
	for _, a := range asks {
		ws = append(ws, a.who)
	}
	return slices.Compact(ws)
}
