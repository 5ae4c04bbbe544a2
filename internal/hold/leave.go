package hold

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/script"
	"github.com/holdfast-go/holdfast/internal/task"
)

// Leaver is a Kind whose waiters have a place in Redis, which others heed. A
// refused try of one that waits takes the place or keeps it, a grant gives it up.
type Leaver interface {
	Kind
	// Leave gives up the place of a waiter that leaves without the lock. It answers
	// as release.lua does.
	Leave(Args) script.Call
	// Refresh is how often a waiter tries again at least, to keep its place.
	Refresh() time.Duration
}

// leavePatience is how long who has been told "taken" stays for its place to be
// given up, so that its caller's next step finds it gone.
const leavePatience = 250 * time.Millisecond

// leave gives up the place that an attempt which ended with err may have in Redis:
// behind the caller if that has to go, or Redis doesn't answer.
func (a *attempt) leave(ctx context.Context, err error) {
	if a.leaver == nil || !a.waits || !a.tried {
		return
	}
	a.entry.stay()
	op := &leaving{attempt: a}
	if !errors.Is(err, errs.ErrNotAcquired) || ctx.Err() != nil {
		if !a.Tasks.Go(op.Run) {
			a.entry.exit()
		}
		return
	}
	bound, cancel := context.WithTimeout(ctx, leavePatience)
	defer cancel()
	a.Tasks.Call(bound.Done(), op)
}

// leaving is a task.Op.
type leaving struct{ *attempt }

var _ task.Op = (*leaving)(nil)

// Run implements task.Op.
func (op *leaving) Run() {
	e := op.entry
	defer e.exit()
	// Behind what is under way: a try that runs later would take the place anew.
	if !e.takeTurn(nil, time.Time{}) {
		return // the client is closed; the place lapses
	}
	defer e.giveTurn()
	args := op.args()
	args.Field = e.fieldArg
	reply := op.Send(context.WithoutCancel(op.Tasks.Context()), op.Patience, op.leaver.Leave(args))
	if reply.Err != nil && !errors.Is(reply.Err, errs.ErrClosed) {
		op.Log.Warn("holdfast: the place of a waiter that left could not be given up; it lapses", "name", op.name, "cause", reply.Err)
	}
	op.heard(op.key, reply)
}

// Abandoned implements task.Op.
func (op *leaving) Abandoned() {}
