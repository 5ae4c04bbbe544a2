package rsemaphore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
	"weak"

	"github.com/holdfast-go/holdfast/internal/errs"
)

// Permit is one permit of an Expirable, taken by this client. One that is dropped,
// with its context, is renewed no more, which is logged as an error; so keep it as
// long as the work goes on, also where somebody else gives it back by its id.
type Permit struct {
	record *record
	ctx    permitContext
}

// ID is the permit's id in Redis, 32 hex digits: whoever knows it can give the
// permit back or extend it.
func (p *Permit) ID() string { return p.record.lease.Field }

// Name is the name of the semaphore.
func (p *Permit) Name() string { return p.record.lease.Name }

// Context is the caller's context. It also ends, with cause ErrLost, before the
// permit can be free in Redis, and, with cause ErrReleased, when the permit is
// given back. Ending the caller's context ends it too, but gives nothing back:
// renewal goes on until Release. What no clock shows (the semaphore deleted,
// the permit given back by somebody else) is told at the next renewal; for a
// fixed lease at its end.
func (p *Permit) Context() context.Context {
	p.ctx.once.Do(p.ctx.init)
	return &p.ctx
}

// ExpiresAt is until when the permit is certainly ours, as far as known here: a
// margin before the moment at which it may be free in Redis. It moves with each
// renewal. It is zero once the permit was given back or lost.
func (p *Permit) ExpiresAt() time.Time {
	p.record.ledger.mu.Lock()
	defer p.record.ledger.mu.Unlock()
	if p.record.status != held {
		return time.Time{}
	}
	return p.record.lease.Deadline()
}

// Release gives the permit back, once, even if ctx has ended. Errors: ErrNotHeld at
// a second call, which frees nothing, and, with ErrLost, if the permit was lost;
// ErrUncertain if no answer came, or ctx ended meanwhile: the release goes on
// behind the caller, and the lease bounds it, since renewal has ended;
// ErrUnavailable, likewise; ErrDenied; ErrClosed.
func (p *Permit) Release(ctx context.Context) error {
	r := p.record
	r.look()
	if !r.end(givenBack, errs.ErrReleased) {
		return r.notHeld()
	}
	n, err := r.release(ctx, true, []id{r.id}, false)
	if err != nil || n >= 0 {
		r.tellReleased(err)
		return err
	}
	r.ledger.mu.Lock()
	r.status = lost
	r.ledger.mu.Unlock()
	r.ledger.Log.Error("holdfast: permit lost", "name", p.Name(), "permit", p.ID(), "why", "it was gone at its release")
	err = r.notHeld()
	r.tellLost(err)
	return err
}

// permitContext is the context of a permit: the caller's values and cancellation,
// and the end of the permit. It is made as that of a lock's hold is: nothing that
// the ledger or the watchdog keeps leads to it.
type permitContext struct {
	context.Context //nolint:containedctx // it is a context
	record          *record

	// Made by the first call of Permit.Context.
	once   sync.Once
	signal context.Context // ends with the permit
	tie    *tie
}

// tie connects a permit to its caller's cancellation.
type tie struct{ stop func() bool }

func (c *permitContext) init() {
	parent, r := c.Context, c.record
	base, free := context.Background(), context.CancelFunc(nil)
	deadline, timed := parent.Deadline()
	if timed {
		// So that contexts derived from ours report DeadlineExceeded too.
		base, free = context.WithDeadline(base, deadline)
	}
	signal, cancel := context.WithCancelCause(base)
	c.signal = signal
	var weakTie weak.Pointer[tie]
	if parent.Done() != nil {
		c.tie = &tie{}
		tied := c.tie
		c.tie.stop = context.AfterFunc(parent, func() {
			if !timed || !errors.Is(parent.Err(), context.DeadlineExceeded) {
				cancel(context.Cause(parent)) // else our own deadline ends it, with the right Err
			}
			runtime.KeepAlive(tied) // the parent keeps it reachable for finish
		})
		weakTie = weak.Make(c.tie)
	}

	r.ledger.mu.Lock()
	r.cancel, r.free, r.tie = cancel, free, weakTie
	over := r.cause
	r.ledger.mu.Unlock()
	if over != nil {
		r.finish(over)
	}
}

// finish ends a permit's context, if there is one, and lets go of the caller's.
// The first cause counts.
func (r *record) finish(why error) {
	l := r.ledger
	l.mu.Lock()
	if r.cause == nil {
		r.cause = why
	}
	why = r.cause
	cancel, free, t := r.cancel, r.free, r.tie.Value()
	l.mu.Unlock()
	if cancel == nil {
		return
	}
	cancel(why)
	if t != nil {
		t.stop()
	}
	if free != nil {
		free()
	}
}

// Done is closed when the permit is lost or given back, or the parent ends.
func (c *permitContext) Done() <-chan struct{} { return c.signal.Done() }

// Err looks at the clocks: after a stop of the process a timer is late, but the
// first look here is right.
func (c *permitContext) Err() error {
	c.look()
	if err := c.signal.Err(); err != nil {
		return err
	}
	if c.Context.Err() != nil && !errors.Is(c.Context.Err(), context.DeadlineExceeded) {
		c.record.ledger.mu.Lock()
		cancel := c.record.cancel
		c.record.ledger.mu.Unlock()
		cancel(context.Cause(c.Context)) // the tie is about to do the same
	}
	return c.signal.Err()
}

// Value answers the caller's values. context.Cause finds the signal here too, after
// a look at the clocks.
func (c *permitContext) Value(key any) any {
	c.look()
	if v := c.signal.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}

func (c *permitContext) String() string {
	return fmt.Sprintf("holdfast.Permit(%q)", c.record.lease.Name)
}

func (c *permitContext) look() {
	if c.signal.Err() == nil {
		c.record.look()
	}
}
