package rsemaphore

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/object"
	"github.com/holdfast-go/holdfast/internal/script"
	"github.com/holdfast-go/holdfast/internal/wait"
)

// HandleKind names permits in handles.
const HandleKind = "permit"

// Detach ends the permit here and answers a handle with which Expirable.Resume
// takes it up elsewhere, once, in this process or another. The permit stays taken,
// for a whole lease from now; its id is good until it is taken up. Errors:
// ErrNotHeld, with ErrLost if it was lost; after any other it is held as before:
// ErrUncertain, ErrUnavailable, ErrDenied, ErrClosed.
func (p *Permit) Detach() (handle string, err error) {
	r := p.record
	r.look()
	if err := r.notHeld(); err != nil {
		return "", err
	}
	r.ledger.Watchdog.Stop(&r.lease)
	if err := r.extend(context.Background(), r.id, max(r.c.Lease, r.lease.Duration())); err != nil {
		r.ledger.Watchdog.Keep(&r.lease) // unless it is over
		return "", err
	}
	if !r.end(givenBack, errs.ErrReleased) {
		return "", r.notHeld()
	}
	r.tellReleased(nil)
	return hold.NewHandle(HandleKind, p.Name(), p.ID()), nil
}

// Resume takes up a permit that Permit.Detach let go of, or any whose id is known,
// whoever took it: it gets a new id, so that nobody else has it any more, and is
// renewed here from now on, or has the fixed lease of Lease(d). A handle works
// once. Errors: ErrInvalid if this is no handle of a permit of this semaphore, and
// no id; ErrNotHeld, with ErrLost, if the permit ran out, was given back, or somebody
// has taken it up before; else as TryAcquire. When ctx ends meanwhile the handle
// stays good.
func (e *Expirable) Resume(ctx context.Context, handle string, opts ...Option) (*Permit, error) {
	o, err := hold.Collect(opts)
	if err != nil {
		return nil, err
	}
	from, err := e.parseHandle(handle)
	if err != nil {
		return nil, err
	}
	d := e.c.Lease
	if o.LeaseSet {
		d = o.Lease
	}
	to := newIDs(1)
	pass := func(k script.Keys, from, to id) script.Call {
		return script.NewMutation(resumePermit, e.keys(k), nil, string(from), string(to), d.Milliseconds())
	}
	var asked time.Time
	err = e.c.Acquire(ctx, wait.Spec{}, object.Request{
		What:    "resume a permit of",
		Make:    func(k script.Keys) script.Call { return pass(k, from, to[0]) },
		Undo:    func(k script.Keys) script.Call { return pass(k, to[0], from) },
		Granted: func(_ script.Keys, r script.Reply) { asked = r.Asked },
		Read: func(r script.Reply) (wait.Outcome, error) {
			if r.Int() == missing {
				return wait.Outcome{}, &errs.NotHeldError{Name: e.Name(), Reason: errs.Lost}
			}
			return wait.Outcome{Granted: true}, nil
		},
	})
	if err != nil {
		return nil, err
	}
	if r := e.ledger.findOne(e.c.RedisKey(), from); r != nil {
		if r.end(givenBack, errs.ErrReleased) { // it was this client's, by its id
			r.tellReleased(nil)
		}
	}
	permits, ok := e.ledger.add(ctx, e.expirable, to, asked, d, !o.LeaseSet)
	if !ok {
		// Back to the handle: whoever has it may try elsewhere.
		_, err := e.c.Request(context.WithoutCancel(ctx), "resume a permit of", object.Eventually, pass(e.c.Keys(), to[0], from).AlwaysMark())
		return nil, joined(fmt.Errorf("%w: resume a permit of %s", errs.ErrClosed, errs.Quote(e.Name())), err)
	}
	e.tellAcquired(asked, permits)
	return permits[0], nil
}

// parseHandle reads a handle, or an id.
func (e *Expirable) parseHandle(text string) (id, error) {
	if b, err := hex.DecodeString(text); err == nil && len(b) == 16 {
		return id(b), nil
	}
	kind, name, err := hold.ParseHandle(text)
	if err != nil {
		return "", errs.Invalid("this is neither a handle of a permit nor an id: pass the text that Permit.Detach answered")
	}
	if kind != HandleKind || name != e.Name() {
		return "", errs.Invalid("the handle is of a %s of %s, not of a permit of %s", kind, errs.Quote(name), errs.Quote(e.Name()))
	}
	field, err := hold.HandleField(text)
	if err != nil {
		return "", err
	}
	return parseID(name, field)
}
