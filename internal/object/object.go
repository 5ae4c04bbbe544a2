// Package object is what the primitives that are no locks have in common: a
// named key, requests that change it, and acquisitions that go through the wait
// loop and are undone if their caller has left.
package object

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/script"
	"github.com/holdfast-go/holdfast/internal/task"
)

// Object is one named thing in Redis. It has no state of its own: any number of
// them for one name are one thing.
type Object struct {
	*hold.Services
	name, key string
	keyArg    any    // key, boxed once
	marker    string // what the markers of this client's requests start with
	err       error  // of the name, told at the first call
}

// New makes an object. It sends nothing.
func New(s *hold.Services, name string) *Object {
	key, err := s.Key(name)
	return &Object{Services: s, name: name, key: key, keyArg: key, marker: s.Runner.MarkerPrefix(key), err: err}
}

// Name is the name that the object was made with.
func (o *Object) Name() string { return o.name }

// RedisKey is the name as it stands in Redis.
func (o *Object) RedisKey() string { return o.key }

// Refuse has every call answer err, unless the name is bad already: for a
// primitive with rules of its own for names.
func (o *Object) Refuse(err error) {
	if o.err == nil {
		o.err = err
	}
}

// Keys are the keys of a new request.
func (o *Object) Keys() script.Keys {
	return script.Keys{Key: o.keyArg, Marker: o.Runner.NewMarker(o.marker)}
}

// Check refuses a call with a bad name, without context, or after Close.
func (o *Object) Check(ctx context.Context, what string) error {
	switch {
	case o.err != nil:
		return o.err
	case ctx == nil:
		return hold.ErrNilContext(what, o.name)
	case o.Tasks.Context().Err() != nil:
		return fmt.Errorf("%w: %s %s", errs.ErrClosed, what, errs.Quote(o.name))
	}
	return nil
}

// Delivery is what becomes of a request whose caller leaves, or that has no
// answer within the command timeout.
type Delivery int

const (
	// AtMostNow drops it: it may have run or not.
	AtMostNow Delivery = iota
	// Eventually goes on behind the caller for as long as the marker of the
	// request keeps copies apart, also if ctx had ended before the call: for what
	// is given back.
	Eventually
)

// behind is how long a request goes on without its caller. Markers live longer.
const behind = time.Minute

// Change sends a request that changes something and answers what its script
// answered. The request must carry a marker that every copy writes (AlwaysMark),
// unless its effect can be read off the state. Errors: ErrUncertain if it may
// have run but no answer came, with the context's error if the caller left;
// ErrUnavailable if nothing was sent; ErrDenied; ErrInvalid if the key holds
// something else; ErrClosed; the context's.
func (o *Object) Change(ctx context.Context, what string, d Delivery, call script.Call) (int64, error) {
	reply, err := o.Request(ctx, what, d, call)
	return reply.Int(), err
}

// Request is Change for a caller who wants to know more of the reply. Its Err is
// told by the error alone.
func (o *Object) Request(ctx context.Context, what string, d Delivery, call script.Call) (script.Reply, error) {
	var none script.Reply
	if ctx == nil && d == Eventually { // giving back should not fail over that
		ctx = context.Background()
	}
	if err := o.Check(ctx, what); err != nil {
		return none, err
	}
	if ctx.Err() != nil {
		if d == AtMostNow {
			return none, o.Gone(ctx, what, o.name, nil)
		}
		bound, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), o.Patience, script.ErrPatience)
		defer cancel()
		ctx = bound
	}
	failure := &script.Failure{}
	call = call.Noting(failure)
	goOn := func(reply script.Reply) {
		if d != Eventually || reply.Err == nil || !reply.MaybeRan && !script.Temporary(reply.Err) {
			return
		}
		reply = o.Send(context.WithoutCancel(o.Tasks.Context()), behind, call.Resent())
		if reply.Err != nil && !errors.Is(reply.Err, errs.ErrClosed) {
			o.Log.Warn("holdfast: a request behind its caller failed", "request", what, "name", o.name, "cause", reply.Err)
		}
	}
	o.Begin()
	reply, ok := task.Leave(o.Tasks, ctx.Done(), func() script.Reply {
		return o.Send(context.WithoutCancel(ctx), o.Patience, call)
	}, func(reply script.Reply) {
		defer o.End()
		goOn(reply)
	})
	if ok {
		defer o.End()
	}
	switch {
	case !ok:
		return none, fmt.Errorf("%w: %s %s: %w", errs.ErrUncertain, what, errs.Quote(o.name), o.Gone(ctx, what, o.name, failure))
	case script.IsWrongType(reply.Err):
		return none, o.Foreign(ctx, reply.Err)
	case reply.Err != nil:
		err := fmt.Errorf("holdfast: %s %s: %w", what, errs.Quote(o.name), reply.Err)
		if reply.MaybeRan {
			err = fmt.Errorf("%w: %s %s: %w", errs.ErrUncertain, what, errs.Quote(o.name), reply.Err)
		}
		if d == Eventually {
			o.goOn(func() { goOn(reply) })
		}
		return none, err
	}
	return reply, nil
}

// goOn does something behind the caller. After Close it is left to itself.
func (o *Object) goOn(f func()) {
	o.Begin()
	if !o.Tasks.Go(func() {
		defer o.End()
		f()
	}) {
		o.End()
	}
}

// foreignMark opens the error of a script that found a value of the right type
// which is nothing of ours: WRONGTYPE holdfast: what it is
const foreignMark = "WRONGTYPE holdfast: "

// Foreign explains a key that holds something else.
func (o *Object) Foreign(ctx context.Context, err error) error {
	what := ""
	if _, said, ok := strings.Cut(err.Error(), foreignMark); ok {
		what, _, _ = strings.Cut(said, " script:") // Redis 7 adds where it was said
	}
	return o.InvalidKey(ctx, o.name, o.key, what)
}

// Ask runs a reading command and leaves it at the end of ctx. Errors:
// ErrUnavailable, ErrDenied, ErrInvalid if the key holds something else,
// ErrClosed, the context's.
func Ask[T any](ctx context.Context, o *Object, what string, run func(context.Context) (T, error)) (T, error) {
	var zero T
	if err := o.Check(ctx, what); err != nil {
		return zero, err
	}
	val, err := hold.Query(ctx, o.Services, run)
	switch {
	case script.IsWrongType(err):
		return zero, o.Foreign(ctx, err)
	case err != nil:
		return zero, fmt.Errorf("holdfast: %s %s: %w", what, errs.Quote(o.name), err)
	}
	return val, nil
}
