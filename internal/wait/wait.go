// Package wait is the wait loop that serves every primitive: try, subscribe,
// try again, then sleep until a message, the holder's lease, the slow poll or
// the context says to try once more. A message wakes; Redis decides.
package wait

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/script"
)

const (
	// minSleep keeps a remaining time of nothing from becoming a busy loop.
	minSleep = time.Millisecond
	// settle is added to the holder's remaining time, which Redis rounds.
	settle = time.Millisecond
	// firstTry is what the first try gets at least: who waits for a millisecond
	// wants an answer from Redis, not word that there was none yet. laterTry is
	// the same for one that begins shortly before the end of the wait: by so
	// much a wait can be late where Redis doesn't answer.
	firstTry = 500 * time.Millisecond
	laterTry = 250 * time.Millisecond
	// firstPause is the first one between two tries without an answer.
	firstPause = 50 * time.Millisecond
)

// Subscription is a place on a channel.
type Subscription interface {
	// Ready is closed when what is published from now on will arrive.
	Ready() <-chan struct{}
	// Wake yields a token per burst of messages.
	Wake() <-chan struct{}
	Close()
}

// Outcome is what a try was answered.
type Outcome struct {
	Granted bool
	// TTL is, after a refusal, how long to wait at most before trying again;
	// negative if Redis knows no such time.
	TTL time.Duration
	// Free is, after a refusal of permits, how many there were.
	Free int64
	// Unset is, after a refusal of permits, that there is no number of them.
	Unset bool
}

// Spec is one acquisition.
type Spec struct {
	Name string
	// Line is the key on which goroutines of this client stand in line, so
	// that only the first of them asks Redis; empty for primitives that
	// several may hold.
	Line string
	// Wanted is how many permits are asked for; 0 for what only one can hold.
	// Callers that want the same number stand in one line. It begins with the
	// first that is refused: until then all ask side by side. Who is granted
	// lets the next in line try at once.
	Wanted  int64
	Channel string
	// Delay, if there is one, stands in for the channel: who waits hears nothing,
	// and asks again after so long, or when the holder's lease runs out before. It
	// is given the number of refusals so far; what is below a millisecond counts
	// as one.
	Delay func(refusals int) time.Duration
	// Refresh is how often to try again at least, to keep a place in Redis; zero:
	// as often as all others.
	Refresh time.Duration
	// Forever waits until the context ends; otherwise at most Wait, and with
	// Wait zero there is one try.
	Forever bool
	Wait    time.Duration
	Try     Trier
}

// Trier asks Redis once. until is the moment after which it need not send
// again; zero: as long as ctx lives. Its error ends the wait, unless it is
// ErrUnavailable and there is time left.
type Trier interface {
	Try(ctx context.Context, until time.Time) (Outcome, error)
	// Entered is closed when the caller needn't stand in line any more: another
	// call of the same owner got in.
	Entered() <-chan struct{}
}

// Loop runs acquisitions for one client.
type Loop struct {
	Subscribe func(channel string) Subscription
	Poll      time.Duration
	// Patience bounds a single try where the caller gave no time to wait.
	Patience time.Duration
	Closed   <-chan struct{}

	lines lines
	freed atomic.Uint64 // calls of Freed
}

// Acquire tries until it is granted. It answers nil then, ErrNotAcquired with
// name and remaining time when the time to wait is over and somebody else holds
// the name, ErrUnavailable when Redis didn't say, the context's error when that
// ended, and ErrClosed.
func (l *Loop) Acquire(ctx context.Context, s Spec) error {
	if err := l.ended(ctx, s.Name, nil); err != nil {
		return err
	}
	if !s.Forever && s.Wait <= 0 {
		return l.tryOnce(ctx, s)
	}
	w := &waiter{Loop: l, Spec: s, ctx: ctx}
	if !s.Forever {
		w.deadline = time.Now().Add(s.Wait)
		w.timer = time.NewTimer(s.Wait)
		defer w.timer.Stop()
		w.over = w.timer.C
	}
	if s.Line != "" {
		k := lineKey{s.Line, s.Wanted}
		if s.Wanted > 0 && l.lines.standing(k) == nil {
			if done, err := w.ahead(); done {
				return err
			}
		}
		w.place = l.lines.join(k)
		defer w.leave()
		if !w.place.opens {
			switch err := w.awaitTurn(); {
			case errors.Is(err, errServed):
				return nil
			case err != nil:
				return err
			}
		}
	}
	return w.loop()
}

// Ended answers why nothing new may begin: context or Close; nil if it may.
func (l *Loop) Ended(ctx context.Context, name string) error { return l.ended(ctx, name, nil) }

func (l *Loop) tryOnce(ctx context.Context, s Spec) error {
	out, err := s.Try.Try(ctx, time.Now().Add(l.Patience))
	switch {
	case err != nil:
		return err
	case !out.Granted:
		return s.refused(out)
	}
	return nil
}

// refused is the error of a caller who was told out and waits no longer.
func (s Spec) refused(out Outcome) error {
	return &errs.NotAcquiredError{Name: s.Name, Remaining: out.TTL, Wanted: s.Wanted, Free: out.Free, Unset: out.Unset}
}

// ended answers why no further try is due: context or Close. last is the last
// failure of a try, which the error carries along.
func (l *Loop) ended(ctx context.Context, name string, last error) error {
	var err error
	select {
	case <-l.Closed:
		err = fmt.Errorf("%w: waiting for %s", errs.ErrClosed, errs.Quote(name))
	default:
		if ctx.Err() == nil {
			return nil
		}
		err = fmt.Errorf("holdfast: waiting for %s: %w", errs.Quote(name), script.ContextError(ctx))
	}
	if last != nil {
		err = fmt.Errorf("%w (%w)", err, last)
	}
	return err
}

// left is ended, and says that the name was taken: who waits for what it holds
// itself, in another context, learns it here.
func (w *waiter) left(out Outcome, last error) error {
	err := w.ended(w.ctx, w.Name, last)
	if err != nil && last == nil && (w.refusals > 0 || out.TTL != 0) {
		err = fmt.Errorf("%w (%v)", err, w.refused(out)) //nolint:errorlint // it isn't "not acquired": the caller left
	}
	return err
}

// waiter is one acquisition that may wait.
type waiter struct {
	*Loop
	Spec
	ctx      context.Context //nolint:containedctx // lives as long as the call
	deadline time.Time       // zero: forever
	timer    *time.Timer
	over     <-chan time.Time // fires at the deadline
	place    *place           // in the local line; nil without one
	sub      Subscription
	tried    bool
	granted  Outcome // if it was
	refusals int
	// asked: it was refused before it stood in line, with this answer.
	asked bool
	freed uint64 // Loop.freed before it asked
	out   Outcome
	last  error
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// ahead asks before standing in line, where nobody does.
func (w *waiter) ahead() (done bool, err error) {
	w.freed = w.Loop.freed.Load()
	w.out, w.last = w.try()
	switch {
	case w.last == nil && w.out.Granted:
		return true, nil
	case w.last != nil && !script.Temporary(w.last):
		return true, w.last
	}
	if err := w.ended(w.ctx, w.Name, w.last); err != nil {
		return true, err
	}
	if w.isOver() {
		return true, w.late(w.out, w.last)
	}
	w.asked = true
	return false, nil
}

// awaitTurn waits until this waiter is first in its line.
func (w *waiter) awaitTurn() error {
	select {
	case <-w.place.turn:
		return nil
	default:
	}
	w.asked = false // what it was told may be old when its turn comes
	select {
	case <-w.place.turn: // or any of the others: select takes any of what is due
	case <-w.Try.Entered():
		w.stepOut()
		return nil
	case <-w.ctx.Done():
	case <-w.Closed:
	case <-w.over:
		return w.overInLine()
	}
	return w.left(w.place.line.lastKnown())
}

// overInLine ends a wait that never got to the front. If the first in line had
// no answer either, and the wait was short, Redis is asked directly.
func (w *waiter) overInLine() error {
	out, last := w.place.line.lastKnown()
	left := firstTry - w.Wait
	if !errors.Is(last, errNoAnswerYet) || left <= 0 {
		return w.late(out, last)
	}
	ctx, cancel := context.WithTimeoutCause(w.ctx, left, script.ErrPatience)
	defer cancel()
	out, err := w.Try.Try(ctx, time.Now().Add(left))
	if err == nil && out.Granted {
		w.granted = out
		return errServed
	}
	return w.late(out, w.ours(err))
}

// errServed says that awaitTurn ended with the grant itself.
var errServed = errors.New("granted")

// late is the error of a wait whose time is over.
func (w *waiter) late(out Outcome, last error) error {
	if last != nil {
		return last
	}
	return w.refused(out)
}

// leave gives up the place in line. Whoever is next takes over the
// subscription and, if this waiter was granted, the knowledge that the name is
// taken; otherwise it tries by itself: this is how a wake-up is handed on.
func (w *waiter) leave() {
	if w.place != nil {
		w.lines.leave(w.place, w.granted)
	}
}

// stepOut leaves the line for good: the owner holds the name, and its other
// calls must not stand behind those whom it keeps out.
func (w *waiter) stepOut() {
	w.leave()
	w.place = nil
}

// listen answers the line's subscription, or this waiter's own.
func (w *waiter) listen() (sub Subscription, poke <-chan struct{}) {
	switch {
	case w.Delay != nil && w.place != nil:
		return silence{}, w.place.line.ear()
	case w.Delay != nil:
		return silence{}, nil
	case w.place != nil:
		return w.place.line.listen(w.Subscribe, w.Channel)
	}
	if w.sub == nil {
		w.sub = w.Subscribe(w.Channel)
	}
	return w.sub, nil
}

// silence is the subscription of who hears nothing.
type silence struct{}

func (silence) Ready() <-chan struct{} { return nil }
func (silence) Wake() <-chan struct{}  { return nil }
func (silence) Close()                 {}

func (w *waiter) loop() error {
	defer func() {
		if w.sub != nil {
			w.sub.Close()
		}
	}()
	var (
		sub   Subscription
		ready <-chan struct{} // nil once confirmed
		wake  <-chan struct{}
		poke  <-chan struct{} // a release by this client that nobody publishes
		in    <-chan struct{} // the owner got in by another call
		was   <-chan struct{} // what in was when that happened: once is enough
		out   Outcome
		last  error
		pause time.Duration
	)
	try := true
	switch {
	case w.asked:
		// Refused a moment ago: the next time is when we listen, unless somebody
		// was told to try before we stood here.
		try = w.freed != w.Loop.freed.Load()
		out, last = w.out, w.last
		w.place.line.learn(out, last)
		if last != nil {
			pause = firstPause
		}
	case w.place == nil, w.place.opens:
	case w.place.line.takenByNeighbour():
		// The one before us in line has just got it, and what is published
		// since arrives: asking would tell us what we know.
		try = false
		out, _ = w.place.line.lastKnown()
		sub, poke = w.listen()
		wake = sub.Wake()
	case w.place.line.listens():
		// So it is for the first try already, and needs no second one.
		sub, poke = w.listen()
		wake = sub.Wake()
	}
	for {
		if try {
			out, last = w.try()
			switch {
			case last == nil && out.Granted:
				return nil
			case last != nil && !script.Temporary(last):
				return last
			case last != nil:
				pause = min(max(2*pause, firstPause), time.Second)
			default:
				pause = 0
				w.refusals++
			}
		}
		if err := w.left(out, last); err != nil {
			return err
		}
		if try && w.isOver() { // the answer came late, but it came
			return w.late(out, last)
		}
		if sub == nil {
			sub, poke = w.listen()
			ready, wake = sub.Ready(), sub.Wake()
		}
		if in = w.Try.Entered(); in == was || w.place == nil && last != nil {
			in = nil
		}
		sleep := w.sleep(out, last, pause)
		timer := time.NewTimer(sleep)
		try = true
		select {
		case <-ready:
			ready = nil
		case <-wake:
		case <-poke:
		case <-in:
			was = in
			if w.place != nil {
				w.stepOut()
				sub = nil // it was the line's
			}
		case <-timer.C:
		case <-w.over:
			timer.Stop()
			return w.lastTry(ready != nil || w.Delay != nil, out, last)
		case <-w.ctx.Done():
			timer.Stop()
			return w.left(out, last)
		case <-w.Closed:
			timer.Stop()
			return w.left(out, last)
		}
		timer.Stop()
	}
}

func (w *waiter) isOver() bool {
	return !w.deadline.IsZero() && !time.Now().Before(w.deadline)
}

// sleep is how long to wait for a message.
func (w *waiter) sleep(out Outcome, last error, pause time.Duration) time.Duration {
	if last != nil {
		return pause
	}
	longest := w.Poll
	if w.Delay != nil {
		longest = max(w.Delay(max(w.refusals, 1)), minSleep)
	}
	if w.Refresh > 0 {
		longest = min(longest, w.Refresh)
	}
	if out.TTL < 0 {
		return longest
	}
	return min(max(out.TTL, minSleep)+settle, longest)
}

// try asks once, within the time that is left.
func (w *waiter) try() (Outcome, error) {
	ctx, until := w.ctx, w.deadline
	if !until.IsZero() {
		least := laterTry
		if !w.tried {
			least = firstTry
		}
		until = latest(until, time.Now().Add(least))
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, until, script.ErrPatience)
		defer cancel()
	}
	w.tried = true
	out, err := w.Try.Try(ctx, until)
	switch err = w.ours(err); {
	case err == nil && out.Granted:
		w.granted = out
	case w.place != nil:
		w.place.line.learn(out, err)
	}
	return out, err
}

// ours replaces the error of a try that ended by our own deadline, not by the
// caller's context.
func (w *waiter) ours(err error) error {
	if err != nil && w.ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) && !w.deadline.IsZero() {
		return fmt.Errorf("%w: %s: the time to wait is over and no answer came", errs.ErrUnavailable, errs.Quote(w.Name))
	}
	return err
}

// lastTry ends a wait. If there were no notifications, a release may have gone
// unseen, so Redis is asked once more.
func (w *waiter) lastTry(unseen bool, out Outcome, last error) error {
	if !unseen || last != nil {
		return w.late(out, last)
	}
	out, err := w.try()
	if err == nil && out.Granted {
		return nil
	}
	return w.late(out, err)
}
