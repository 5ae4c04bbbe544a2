// Package hold is what all kinds of locks have in common: the hold and its
// context, the Locker interface, the ledger of holds, and the Mutex that runs a
// kind's scripts through the wait loop.
package hold

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/owner"
)

// Hold is one acquisition. A re-entry is a Hold of its own. A Hold that is
// dropped is renewed as long as somebody could give it back, by it or by a
// context that carries its owner; then renewal ends, and that is logged as an
// error.
type Hold struct {
	record *record
	group  *group // instead of a record: several holds as one
	ctx    holdContext
}

// newHold makes what will be a hold of ctx's owner once it has a record. A context
// without one gets an owner. That of a hold which is renewed is part of it: whoever can
// reach one keeps both alive, and the caller's context. A fixed lease may be long, and
// the ledger leads to its owner to the end.
func newHold(ctx context.Context, renewed bool) (*Hold, error) {
	if t := owner.From(ctx); t != nil {
		return holdOf(ctx, t), t.Check()
	}
	if !renewed {
		return holdOf(ctx, owner.Mint()), nil
	}
	h := &struct { // one allocation
		Hold
		own owner.Token
	}{}
	h.own.Mint()
	h.ctx.Context, h.ctx.token = ctx, &h.own
	return &h.Hold, nil
}

func holdOf(ctx context.Context, t *owner.Token) *Hold {
	h := &Hold{}
	h.ctx.Context, h.ctx.token = ctx, t
	return h
}

func (h *Hold) begin(r *record) { h.record, h.ctx.of = r, r }

// Name is the name of the lock; that of a multi lock is its members' names,
// joined by commas.
func (h *Hold) Name() string { return h.ctx.of.title() }

// Context is the caller's context with the owner in it: callees that lock with
// it re-enter. It also ends, with cause ErrLost, before the key can expire in
// Redis, and, with cause ErrReleased, when the hold is given back. Ending the
// caller's context ends it too, but gives nothing back: renewal goes on until
// Unlock.
func (h *Hold) Context() context.Context {
	h.ctx.once.Do(h.ctx.init)
	return &h.ctx
}

// Owner is the holder in Redis: <client id>:<owner id>. That is its field in the
// lock's hash, where a writer's ends in ":write". Members of several clients differ
// in the client id: then it is the first one's.
func (h *Hold) Owner() string {
	if h.group != nil {
		return h.group.members[0].Owner()
	}
	return h.record.entry.ownerOf(h.record.entry.field)
}

// Token is the fencing token; 0 if the lock is not fenced, or made of several.
func (h *Hold) Token() int64 {
	if h.group != nil {
		return 0
	}
	return h.record.token
}

// ExpiresAt is until when the hold is certainly ours, as far as known here: a
// margin before the moment at which Redis may let the key go. It moves with
// each renewal. It is zero once the hold was given back or lost. For a multi lock
// it is the earliest of its members'; for a quorum lock, when no majority of them
// is left.
func (h *Hold) ExpiresAt() time.Time {
	if h.group != nil {
		return h.group.expiresAt()
	}
	r := h.record
	r.entry.ledger.mu.Lock()
	defer r.entry.ledger.mu.Unlock()
	if r.status != held {
		return time.Time{}
	}
	return r.lease.Deadline()
}

// Unlock gives back exactly this hold, once, even if ctx has ended. Errors:
// ErrNotHeld at a second call, which frees nothing, and, with ErrLost, if the
// hold was lost; ErrUncertain if no answer came: the release goes on behind the
// caller; ErrDenied if Redis refused; ErrClosed. When ctx ends meanwhile, other
// than by the end of a hold, the caller leaves with ErrUncertain and the context's
// error. Of a multi lock all members are given back, whatever becomes of the others,
// and their errors joined, losses first; of a quorum lock too, with an error only if
// no majority was given back.
func (h *Hold) Unlock(ctx context.Context) error {
	if h.group != nil {
		return h.group.unlock(ctx)
	}
	return h.record.entry.release(ctx, h.record)
}

// Extend gives the hold a lease of at least d from now. A fixed lease counts
// anew. It never shortens the key's life, and never this hold's. Errors:
// ErrInvalid for a d that is not positive; ErrNotHeld, with ErrLost if it is
// gone; ErrUncertain if no answer came, in which case the old lease counts;
// ErrDenied; ErrClosed. When ctx ends the caller leaves.
func (h *Hold) Extend(ctx context.Context, d time.Duration) error {
	if ctx == nil {
		return ErrNilContext("extend", h.Name())
	}
	if d <= 0 {
		return errs.Invalid("extend %s by %v: give a positive time", errs.Quote(h.Name()), d)
	}
	if h.group != nil {
		return h.group.extend(ctx, d)
	}
	return h.record.entry.extend(ctx, h.record, lease.Round(d))
}

// Detach ends this hold here and answers a handle with which Client.Resume
// takes it up elsewhere, once, in this process or another. The lock stays
// taken, for a whole lease from now, under an owner that nobody else is. Only
// the single hold of an owner can be detached: ErrInvalid if it has entered
// more than once. Errors otherwise: ErrNotHeld; ErrDenied, ErrUnavailable and
// ErrClosed, in which case it is held as before; ErrUncertain if no answer came
// within the command timeout: the hold is then over, and given back behind the
// caller. The members of a multi lock are detached one by one, under one handle:
// if one of them fails, the hold is over, and all are given back. Members of
// several clients can't be resumed by one: ErrInvalid.
func (h *Hold) Detach() (handle string, err error) {
	if h.group != nil {
		return h.group.detach()
	}
	return h.record.entry.detach(h.record, "")
}

// notHeld is the error of a hold that is over. It needs ledger.mu.
func (r *record) notHeld() error {
	reason := errs.GivenBack
	if r.status == lost {
		reason = errs.Lost
	}
	return r.notHeldAs(reason)
}

func (r *record) notHeldAs(reason errs.Reason) error {
	return &errs.NotHeldError{Name: r.entry.name, Reason: reason}
}
