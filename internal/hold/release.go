package hold

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/script"
)

// releasing is a release under way. It survives its caller.
type releasing struct {
	*Services
	record *record
	ctx    context.Context //nolint:containedctx // of the caller, without its end
	until  time.Time       // the caller's patience
	taken  time.Time       // when it was taken out
	call   script.Call
	made   bool    // call is
	spare  *marker // of call; see usual
	left   int     // holds that it leaves
	unsent bool    // there was nothing to write
	turn   bool    // the entry's turn is ours
	reply  script.Reply
	// failure is kept apart: it is read while send runs, which a copy of this
	// struct must not share. nil where nobody can leave.
	failure *script.Failure
}

// release gives one hold back. From the first moment on it is over for this
// client; the rest is telling Redis.
func (s *Services) release(ctx context.Context, r *record) error {
	if ctx == nil { // giving back should not fail over that
		ctx = context.Background()
	}
	now := time.Now()
	turn, err := r.entry.take(r, now, true)
	if err != nil {
		return err
	}
	return s.releaseTaken(ctx, r, now, turn)
}

// releaseTaken is release of a hold that was taken out already, maybe with the turn.
func (s *Services) releaseTaken(ctx context.Context, r *record, now time.Time, turn bool) error {
	op := releasing{Services: s, record: r, taken: now, until: now.Add(s.Patience), turn: turn}
	if s.Tasks.Context().Err() != nil {
		op.done()
		err := fmt.Errorf("%w: unlock %s", errs.ErrClosed, errs.Quote(r.entry.name))
		r.tellReleased(err)
		return err
	}
	if ctx.Done() == nil {
		op.send(ctx, now, op.until)
		return op.answer()
	}
	behind := op
	return behind.leave(ctx)
}

// leave is release for a caller who may have to go before the answer.
func (op *releasing) leave(ctx context.Context) error {
	s, r := op.Services, op.record
	ctx, done := beyondHold(ctx, s.Patience)
	defer done()
	leave := ctx.Done()
	if ctx.Err() != nil {
		// The caller's context is over, as it is in a deferred Unlock. Giving
		// back takes its own, short time.
		bound, cancel := context.WithDeadlineCause(context.WithoutCancel(ctx), op.until, script.ErrPatience)
		defer cancel()
		ctx, leave = bound, bound.Done()
	}
	op.ctx, op.failure = context.WithoutCancel(ctx), &script.Failure{}
	if !s.Tasks.Call(leave, op) {
		return fmt.Errorf("%w: unlock %s: %w", errs.ErrUncertain, errs.Quote(r.entry.name), s.Gone(ctx, "waiting for the answer to unlock", r.entry.name, op.failure))
	}
	return op.answer()
}

// Run implements task.Op.
func (op *releasing) Run() { op.send(op.ctx, time.Now(), op.until) }

// Abandoned implements task.Op.
func (op *releasing) Abandoned() { op.finish() }

// answer is what the caller is told once send has ended. Without an answer the
// release goes on behind.
func (op *releasing) answer() error {
	if !unanswered(op.reply) {
		defer op.done()
		return op.record.told(op.outcome())
	}
	cause, behind := op.reply.Err, *op
	if !op.Tasks.Go(behind.finish) {
		op.done()
		op.record.tellReleased(cause)
	}
	return fmt.Errorf("%w: unlock %s: %w", errs.ErrUncertain, errs.Quote(op.record.entry.name), cause)
}

// unanswered reports that a copy may run yet, or that none could be sent.
func unanswered(reply script.Reply) bool {
	return reply.Err != nil && (reply.MaybeRan || script.Temporary(reply.Err))
}

// send sends the release until it is answered or the time is over.
func (op *releasing) send(ctx context.Context, now, until time.Time) {
	e := op.record.entry
	if !op.turn {
		if op.turn = e.takeTurn(nil, until); !op.turn {
			op.reply.Err = e.errTurn(ctx, "unlock")
			return
		}
	}
	if !op.made {
		n, d, each := e.left(now)
		if n == e.written {
			// Another release of this owner, sent after this one was taken out,
			// has written the count without it already.
			op.reply = script.Reply{Val: int64(n)}
			op.unsent = true
			return
		}
		op.left = n
		op.call, op.made = op.request(n, d, each).Noting(op.failure), true
	}
	resent := op.reply.MaybeRan
	if resent {
		op.call = op.call.Resent()
	}
	op.reply = op.Runner.Do(ctx, now, until, op.call)
	e.written = unknown
	if op.reply.Err == nil {
		e.written = op.left
	}
	op.reply.Resent = op.reply.Resent || resent
	e.answered(op.spare, op.reply)
	op.reply.MaybeRan = op.reply.MaybeRan || op.reply.Err != nil && resent
}

// request is the release script's, which leaves n holds.
func (op *releasing) request(n int, d time.Duration, each []time.Duration) script.Call {
	e, asUsual := op.record.entry, !op.record.entry.usual.none && n == 0
	var args Args
	if asUsual {
		op.spare = e.spareMarker()
		if c := e.usual.release.Load(); c != nil {
			return c.Again(op.spare.arg, e.fieldArg)
		}
		args = e.argsWith(op.spare.arg)
	} else {
		args = e.args()
	}
	args.Field, args.Count, args.Lease, args.Leases = e.fieldArg, n, d, each
	c := e.kind.Release(args)
	if asUsual {
		return keep(&e.usual.release, c).Again(op.spare.arg, e.fieldArg)
	}
	return c
}

// finish goes on behind the caller until the lease has ended the hold anyway.
func (op *releasing) finish() {
	defer op.done()
	if unanswered(op.reply) {
		end := op.taken.Add(max(op.Patience, op.Lease, op.record.lease.Duration()))
		op.send(context.WithoutCancel(op.Tasks.Context()), time.Now(), end)
	}
	if err := op.record.told(op.outcome()); err != nil {
		op.Log.Warn("holdfast: a release behind its caller failed; the lease ends the hold", "name", op.record.entry.name, "cause", err)
	}
}

// told tells the end of a release, and passes its error on.
func (r *record) told(err error) error {
	if errors.Is(err, errs.ErrLost) {
		r.tellLost(err)
	} else {
		r.tellReleased(err)
	}
	return err
}

// done gives back the turn and the entry.
func (op *releasing) done() {
	if e := op.record.entry; op.turn {
		e.leave()
	} else {
		e.exit()
	}
}

// outcome reads the answer.
func (op *releasing) outcome() error {
	if op.unsent {
		return nil
	}
	return op.released(op.record, op.reply)
}

// released reads the answer to the release of one hold.
func (s *Services) released(r *record, reply script.Reply) error {
	e := r.entry
	switch {
	case script.IsWrongType(reply.Err), reply.Err == nil && reply.Int() == notThere && !reply.Resent:
		// Not there, and it wasn't us: force-unlocked, evicted, deleted, lost
		// in a failover.
		e.loseAll(fmt.Errorf("%w: %s: the key was gone at an unlock", errs.ErrLost, errs.Quote(e.name)))
		return s.lostBefore(r)
	case reply.Err != nil && script.Temporary(reply.Err):
		return fmt.Errorf("%w: unlock %s: %w", errs.ErrUncertain, errs.Quote(e.name), reply.Err)
	case reply.Err != nil:
		return fmt.Errorf("holdfast: unlock %s: %w", errs.Quote(e.name), reply.Err)
	default:
		// A further copy that finds nothing comes after one that did the work:
		// the hold was ours when the first was sent.
		s.heard(e.key, reply)
		return nil
	}
}

// lostBefore notes that a hold which was given back had been lost before.
func (s *Services) lostBefore(r *record) error {
	e, l := r.entry, &s.ledger
	l.mu.Lock()
	r.status = lost
	e.rememberLocked(errs.Lost)
	l.mu.Unlock()
	s.Log.Error("holdfast: hold lost", "name", e.name, "owner", e.field, "why", "the key was gone at an unlock")
	return r.notHeldAs(errs.Lost)
}
