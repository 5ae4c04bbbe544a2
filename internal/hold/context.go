package hold

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
	"weak"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/owner"
	"github.com/holdfast-go/holdfast/internal/script"
)

// holdContext is the context of a hold: the caller's values and cancellation,
// the owner, and the end of the hold. Nothing that the ledger or the watchdog
// keeps leads to it or to its owner, so that both can be collected when nobody
// can give the hold back any more. (A cancellable context that the caller derived
// from a hold's and never ended does lead there: such a hold isn't collected. So does a
// new owner until the first renewal, see newHold.)
type holdContext struct {
	context.Context //nolint:containedctx // it is a context
	of              subject
	token           *owner.Token

	// Made by the first call of Hold.Context.
	once   sync.Once
	signal context.Context // ends with the hold
	tie    *tie
}

// tie connects a hold to its caller's cancellation.
type tie struct{ stop func() bool }

// holdKey is the key under which a hold's context answers itself.
type holdKey struct{}

// init makes the signal. A hold whose context nobody asks for does without.
func (c *holdContext) init() {
	parent := c.Context
	base, free := context.Background(), context.CancelFunc(nil)
	_, timed := parent.Deadline()
	if timed {
		// So that contexts derived from ours report DeadlineExceeded too.
		deadline, _ := parent.Deadline()
		base, free = context.WithDeadline(base, deadline)
	}
	signal, end := context.WithCancelCause(base)
	c.signal = signal
	source := parent
	if outer, ok := parent.Value(holdKey{}).(*holdContext); ok && outer.Done() == parent.Done() {
		// The outer hold's signal ends when it does, and doesn't lead to the
		// owner: two holds that are dropped together can be collected.
		source = outer.signal
	}
	var weakTie weak.Pointer[tie]
	if source.Done() != nil {
		c.tie = &tie{}
		tied := c.tie
		c.tie.stop = context.AfterFunc(source, func() {
			if !timed || !errors.Is(source.Err(), context.DeadlineExceeded) {
				end(context.Cause(source)) // else our own deadline ends it, with the right Err
			}
			runtime.KeepAlive(tied) // the source keeps it reachable for finish
		})
		weakTie = weak.Make(c.tie)
	}

	if over := c.of.attach(end, free, weakTie); over != nil {
		c.of.finish(over)
	}
}

// Done is closed when the hold is lost or given back, or the parent ends.
func (c *holdContext) Done() <-chan struct{} { return c.signal.Done() }

// Err looks at the clocks: after a stop of the process a timer is late, but the
// first look here is right.
func (c *holdContext) Err() error {
	c.look()
	if err := c.signal.Err(); err != nil {
		return err
	}
	if c.Context.Err() != nil && !errors.Is(c.Context.Err(), context.DeadlineExceeded) {
		c.of.endContext(context.Cause(c.Context)) // the tie is about to do the same
	}
	return c.signal.Err()
}

// Value answers the owner. context.Cause finds the signal here too, after a
// look at the clocks.
func (c *holdContext) Value(key any) any {
	switch key {
	case owner.ContextKey{}:
		return c.token
	case holdKey{}:
		return c
	}
	c.look()
	if v := c.signal.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}

func (c *holdContext) String() string { return fmt.Sprintf("holdfast.Hold(%q)", c.of.title()) }

// beyondHold is ctx without the end of a hold that it comes from, after which it has
// patience left: who gives back or opens must not be cut short by what that does to
// the hold itself, or to one inside it. Until then, everything else that ends ctx ends
// it too. If ctx has ended already, it is ctx.
func beyondHold(ctx context.Context, patience time.Duration) (context.Context, context.CancelFunc) {
	if ctx == nil || ctx.Value(holdKey{}) == nil || ctx.Err() != nil {
		return ctx, func() {}
	}
	// Whoever is given it needn't do the same again.
	timed, free := context.WithValue(context.WithoutCancel(ctx), holdKey{}, nil), context.CancelFunc(func() {})
	if deadline, ok := ctx.Deadline(); ok {
		timed, free = context.WithDeadline(timed, deadline)
	}
	kept, end := context.WithCancelCause(timed)
	var mu sync.Mutex
	var timer *time.Timer
	stop := context.AfterFunc(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		why := context.Cause(ctx)
		switch {
		case kept.Err() != nil || errors.Is(ctx.Err(), context.DeadlineExceeded): // kept has that deadline too
		case errors.Is(why, errs.ErrReleased), errors.Is(why, errs.ErrLost):
			timer = time.AfterFunc(patience, func() { end(script.ErrPatience) })
		default:
			end(why)
		}
	})
	return kept, func() {
		stop()
		mu.Lock()
		defer mu.Unlock()
		end(nil)
		free()
		if timer != nil {
			timer.Stop()
		}
	}
}

// look ends the hold if its deadline has passed.
func (c *holdContext) look() {
	if c.signal.Err() == nil {
		c.of.look()
	}
}

func (r *record) look() {
	if now := time.Now(); r.lease.Passed(now) {
		r.expire(now)
	}
}

// expire ends the holds on a lease whose deadline has passed, also if somebody else
// is at it and hasn't come to them yet.
func (r *record) expire(now time.Time) {
	if why := r.ranOut(); r.lease.Expire(now, why) {
		r.entry.lose(r.lease, why)
		r.finish(why)
	}
}

func (r *record) attach(end context.CancelCauseFunc, free context.CancelFunc, t weak.Pointer[tie]) error {
	return r.attachUnder(&r.entry.ledger.mu, end, free, t)
}

func (r *record) endContext(why error)    { r.endContextUnder(&r.entry.ledger.mu, why) }
func (r *record) finish(why error)        { r.finishUnder(&r.entry.ledger.mu, why) }
func (r *record) watch(f func(why error)) { r.watchUnder(&r.entry.ledger.mu, f) }
func (r *record) ended() error            { return r.endedUnder(&r.entry.ledger.mu) }
func (r *record) title() string           { return r.entry.name }

func (r *record) lapse(now time.Time) {
	l := r.lease
	if l.Renew == nil && l.Deadline().Sub(now) <= lease.Margin(l.Duration()) {
		l.Lose(r.ranOut())
	}
}

func (r *record) discount() {
	if r.lease.Renew == nil {
		r.entry.ledger.mu.Lock()
		r.void = true
		r.entry.ledger.mu.Unlock()
	}
}

func (r *record) ranOut() error { return r.lease.RanOut() }
