package object

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/script"
	"github.com/holdfast-go/holdfast/internal/task"
	"github.com/holdfast-go/holdfast/internal/wait"
)

// Request is an acquisition's way of asking.
type Request struct {
	// What names it in errors.
	What string
	// Make makes the request. Its script must leave a marker (AlwaysMark) if
	// Undo can't read its effect off the state.
	Make func(script.Keys) script.Call
	// Undo takes back what the request whose marker stands in Voided was
	// granted, if it was, and keeps copies of it that come late from being
	// granted anything; nil for a request that changes nothing, which replicas
	// needn't confirm.
	Undo func(script.Keys) script.Call
	// Granted is called, on the caller's goroutine, with the keys and the answer
	// of the request that was granted; may be nil.
	Granted func(script.Keys, script.Reply)
	// Read reads the answer. Its error ends the acquisition; what was asked for
	// is then undone if the outcome says that it was granted.
	Read func(script.Reply) (wait.Outcome, error)
	// Undone is called after each undoing that was answered; may be nil.
	Undone func(script.Reply)
}

// Acquire runs an acquisition through the wait loop. spec says how to wait; its
// Name and Try are set here. Errors: those of wait.Loop, ErrInvalid if the key
// holds something else, and Read's. After an error nothing is held: what may
// have been granted is undone behind the caller.
func (o *Object) Acquire(ctx context.Context, spec wait.Spec, r Request) error {
	if err := o.Check(ctx, r.What); err != nil {
		return err
	}
	o.Begin()
	defer o.End()
	spec.Name, spec.Try = o.name, &attempt{Object: o, Request: r}
	return o.Loop.Acquire(ctx, spec)
}

// attempt implements wait.Trier.
type attempt struct {
	*Object
	Request
	failure script.Failure
}

// Entered implements wait.Trier: nobody else's success serves this caller.
func (a *attempt) Entered() <-chan struct{} { return nil }

// Try implements wait.Trier. Each try is a request of its own.
func (a *attempt) Try(ctx context.Context, until time.Time) (wait.Outcome, error) {
	keys := a.Keys()
	call := a.Make(keys).Noting(&a.failure)
	if a.Undo != nil {
		call = call.Replicated(a.grants)
	}
	a.Begin()
	reply, ok := task.Leave(a.Tasks, ctx.Done(), func() script.Reply {
		reply := a.Runner.Do(ctx, time.Now(), until, call)
		reply.MaybeRan = reply.MaybeRan || reply.HalfRan
		if errors.Is(reply.Err, errs.ErrNotReplicated) {
			// Redis answers: nothing is left when the caller learns of it.
			reply.MaybeRan = a.takeBack(keys, a.Patience) != nil
		}
		return reply
	}, func(reply script.Reply) {
		defer a.End()
		a.settle(keys, reply)
	})
	if ok {
		defer a.End()
	}
	switch {
	case !ok:
		return wait.Outcome{}, a.Gone(ctx, a.What, a.name, &a.failure)
	case reply.Err != nil:
		a.settleBehind(keys, reply)
		if script.IsWrongType(reply.Err) {
			return wait.Outcome{}, a.Foreign(ctx, reply.Err)
		}
		return wait.Outcome{}, fmt.Errorf("holdfast: %s %s: %w", a.What, errs.Quote(a.name), reply.Err)
	}
	out, err := a.Read(reply)
	if err != nil && out.Granted {
		a.settleBehind(keys, reply)
		out = wait.Outcome{}
	}
	if out.Granted && a.Granted != nil {
		a.Granted(keys, reply)
	}
	return out, err
}

// grants reports whether the script's answer is a grant.
func (a *attempt) grants(answer any) bool {
	out, _ := a.Read(script.Reply{Val: answer})
	return out.Granted
}

// settle undoes a request whose caller has left.
func (a *attempt) settle(keys script.Keys, reply script.Reply) {
	if a.Undo == nil || reply.Err != nil && !reply.MaybeRan {
		return
	}
	if reply.Err == nil {
		if out, _ := a.Read(reply); !out.Granted { // an error without a grant leaves nothing
			return
		}
	}
	if err := a.takeBack(keys, behind); err != nil {
		a.Log.Warn("holdfast: an acquisition that nobody waits for could not be undone", "request", a.What, "name", a.name, "cause", err)
	}
}

// takeBack undoes what was granted, and voids the copies of the request.
func (a *attempt) takeBack(keys script.Keys, within time.Duration) error {
	undo := a.Keys()
	undo.Voided = keys.Marker
	reply := a.Send(context.WithoutCancel(a.Tasks.Context()), within, a.Undo(undo).AlwaysMark())
	if reply.Err == nil && a.Undone != nil {
		a.Undone(reply)
	}
	return reply.Err
}

// settleBehind is settle on a goroutine of its own: the caller has its error.
func (a *attempt) settleBehind(keys script.Keys, reply script.Reply) {
	if a.Undo != nil && (reply.Err == nil || reply.MaybeRan) {
		a.goOn(func() { a.settle(keys, reply) })
	}
}
