package rsemaphore

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/object"
	"github.com/holdfast-go/holdfast/internal/script"
	"github.com/holdfast-go/holdfast/internal/task"
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
	if err := e.c.Check(ctx, resuming); err != nil {
		return nil, err
	}
	if err := e.c.Loop.Ended(ctx, e.Name()); err != nil {
		return nil, err
	}
	give, err := e.c.TakeHandle(ctx, resuming, e.Name(), hold.NewHandle(HandleKind, e.Name(), from.String()))
	if err != nil {
		return nil, err
	}
	d := e.c.Lease
	if o.LeaseSet {
		d = o.Lease
	}
	to := newIDs(1)
	p := &passing{Expirable: e, from: from, to: to[0], lease: d, keys: e.c.Keys(), give: give}
	asked, err := p.pass(ctx)
	if err != nil {
		return nil, err
	}
	defer give()
	if r := e.ledger.findOne(e.c.RedisKey(), from); r != nil {
		if r.end(givenBack, errs.ErrReleased) { // it was this client's, by its id
			r.tellReleased(nil)
		}
	}
	permits, ok := e.ledger.add(ctx, e.expirable, to, asked, d, !o.LeaseSet)
	if !ok {
		// Back to the handle: whoever has it may try elsewhere.
		_, err := e.c.Request(context.WithoutCancel(ctx), resuming, object.Eventually, p.call(e.c.Keys(), to[0], from).AlwaysMark())
		return nil, joined(fmt.Errorf("%w: %s %s", errs.ErrClosed, resuming, errs.Quote(e.Name())), err)
	}
	e.tellAcquired(asked, permits)
	return permits[0], nil
}

const resuming = "resume a permit of"

// behind is how long a resumption is undone for. Markers live longer.
const behind = time.Minute

// passing is one call of Resume: one request, which is undone if its caller has
// left. Until then no other call of this client is at the handle.
type passing struct {
	*Expirable
	from, to id
	lease    time.Duration
	keys     script.Keys
	give     func() // gives the handle back
	failure  script.Failure
}

func (p *passing) call(k script.Keys, from, to id) script.Call {
	return script.NewMutation(resumePermit, p.Expirable.keys(k), nil, string(from), string(to), p.lease.Milliseconds())
}

// pass answers when the permit was asked for. Who has an error doesn't have the
// handle any more.
func (p *passing) pass(ctx context.Context) (asked time.Time, err error) {
	reply, ok := task.Leave(p.c.Tasks, ctx.Done(), func() script.Reply { return p.send(ctx) }, p.settle)
	switch {
	case !ok:
		return asked, p.c.Gone(ctx, resuming, p.Name(), &p.failure)
	case reply.Err == nil && passed(reply.Val):
		return reply.Asked, nil
	}
	if !p.c.Tasks.Go(func() { p.settle(reply) }) {
		p.give()
	}
	switch {
	case reply.Err == nil:
		return asked, &errs.NotHeldError{Name: p.Name(), Reason: errs.Lost}
	case script.IsWrongType(reply.Err):
		return asked, p.c.Foreign(ctx, reply.Err)
	}
	return asked, fmt.Errorf("holdfast: %s %s: %w", resuming, errs.Quote(p.Name()), reply.Err)
}

func (p *passing) send(ctx context.Context) script.Reply {
	reply := p.c.Send(ctx, p.c.Patience, p.call(p.keys, p.from, p.to).Noting(&p.failure).Replicated(passed))
	reply.MaybeRan = reply.MaybeRan || reply.HalfRan
	if errors.Is(reply.Err, errs.ErrNotReplicated) {
		// Redis answers: the handle is good when the caller learns of it.
		reply.MaybeRan = p.undo(p.c.Patience) != nil
	}
	return reply
}

// settle makes the handle good again if the permit may have been passed on, and
// lets other calls go on.
func (p *passing) settle(reply script.Reply) {
	defer p.give()
	if reply.Err == nil && !passed(reply.Val) || reply.Err != nil && !reply.MaybeRan {
		return
	}
	if err := p.undo(behind); err != nil {
		p.c.Log.Warn("holdfast: a permit that was to be resumed is left to its lease", "name", p.Name(), "cause", err)
	}
}

func (p *passing) undo(within time.Duration) error {
	k := p.c.Keys()
	k.Voided = p.keys.Marker
	return p.c.Send(context.WithoutCancel(p.c.Tasks.Context()), within, p.call(k, p.to, p.from).AlwaysMark()).Err
}

// passed reports whether the script found the permit.
func passed(answer any) bool { return answer != int64(missing) }

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
