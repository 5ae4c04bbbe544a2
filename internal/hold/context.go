package hold

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
	"weak"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/owner"
)

// holdContext is the context of a hold: the caller's values and cancellation,
// the owner, and the end of the hold. Nothing that the ledger or the watchdog
// keeps leads to it or to its owner, so that both can be collected when nobody
// can give the hold back any more. (A cancellable context that the caller derived
// from a hold's and never ended does lead there: such a hold isn't collected.)
type holdContext struct {
	context.Context //nolint:containedctx // it is a context
	record          *record
	token           *owner.Token
	tie             *tie
}

// tie connects a hold to its caller's cancellation.
type tie struct{ stop func() bool }

// holdKey is the key under which a hold's context answers itself.
type holdKey struct{}

// init makes the signal of a record, and the context that shows it.
func (c *holdContext) init(parent context.Context, r *record, t *owner.Token) {
	base := context.Background()
	if deadline, ok := parent.Deadline(); ok {
		// So that contexts derived from ours report DeadlineExceeded too.
		base, r.free = context.WithDeadline(base, deadline)
	}
	r.signal, r.end = context.WithCancelCause(base)
	c.Context, c.record, c.token = parent, r, t
	source := parent
	if outer, ok := parent.Value(holdKey{}).(*holdContext); ok && outer.Done() == parent.Done() {
		// The outer hold's signal ends when it does, and doesn't lead to the
		// owner: two holds that are dropped together can be collected.
		source = outer.record.signal
	}
	if source.Done() != nil {
		c.tie = &tie{}
		tied, end := c.tie, r.end
		_, timed := parent.Deadline()
		c.tie.stop = context.AfterFunc(source, func() {
			if !timed || !errors.Is(source.Err(), context.DeadlineExceeded) {
				end(context.Cause(source)) // else our own deadline ends it, with the right Err
			}
			runtime.KeepAlive(tied) // the source keeps it reachable for release
		})
		r.tie = weak.Make(c.tie)
	}
}

// untie lets go of the caller's context.
func (r *record) untie() {
	if t := r.tie.Value(); t != nil {
		t.stop()
	}
	if r.free != nil {
		r.free()
	}
}

// Done is closed when the hold is lost or given back, or the parent ends.
func (c *holdContext) Done() <-chan struct{} { return c.record.signal.Done() }

// Err looks at the clocks: after a stop of the process a timer is late, but the
// first look here is right.
func (c *holdContext) Err() error {
	c.record.look()
	if err := c.record.signal.Err(); err != nil {
		return err
	}
	if c.Context.Err() != nil && !errors.Is(c.Context.Err(), context.DeadlineExceeded) {
		c.record.end(context.Cause(c.Context)) // the tie is about to do the same
	}
	return c.record.signal.Err()
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
	c.record.look()
	if v := c.record.signal.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}

func (c *holdContext) String() string { return fmt.Sprintf("holdfast.Hold(%q)", c.record.entry.name) }

// look ends the hold if its deadline has passed. Before the hold is recorded
// there is no lease yet, and nobody else to look.
func (r *record) look() {
	if now := time.Now(); r.signal.Err() == nil && r.lease.Passed(now) {
		r.lease.Expire(now, r.ranOut())
		r.end(r.ranOut()) // whoever ends the lease may not have come to us yet
	}
}

func (r *record) ranOut() error {
	return fmt.Errorf("%w: %s: its lease ran out", errs.ErrLost, errs.Quote(r.entry.name))
}
