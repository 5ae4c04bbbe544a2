package hold

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/script"
)

// unlockAll gives holds back: those that may stand in one script call in one,
// and all calls beside each other. It answers the error of each.
func unlockAll(ctx context.Context, holds []*Hold) []error {
	for _, h := range holds {
		if h.group == nil {
			h.record.entry.expire(time.Now())
		}
	}
	var units [][]int
	for i, h := range holds {
		at := -1
		if h.group == nil && h.record.entry.batched() != nil {
			at = slices.IndexFunc(units, func(u []int) bool { return joins(holds, u, h.record.entry) })
		}
		if at < 0 {
			units = append(units, []int{i})
			continue
		}
		units[at] = append(units[at], i)
	}
	each := make([]error, len(holds))
	forEach(len(units), func(u int) error {
		unit := units[u]
		if len(unit) == 1 {
			each[unit[0]] = holds[unit[0]].Unlock(ctx)
			return nil
		}
		rs := make([]*record, len(unit))
		for j, i := range unit {
			rs[j] = holds[i].record
		}
		for j, err := range releaseBatch(ctx, rs) {
			each[unit[j]] = err
		}
		return nil
	})
	return each
}

// joins reports whether a hold of e's may be given back together with those of a
// unit. Two holds of one entry may not: each takes its turn.
func joins(holds []*Hold, unit []int, e *entry) bool {
	if len(unit) == maxBatch {
		return false
	}
	for _, i := range unit {
		h := holds[i]
		if h.group != nil || h.record.entry == e {
			return false
		}
	}
	first := holds[unit[0]].record.entry
	return first.batched() != nil && first.beside(e.names) && first.field == e.field
}

// batchRelease is the release of several holds of one owner under way. It
// survives its caller.
type batchRelease struct {
	*Services
	kind    Batched
	records []*record       // taken out; in the order of their keys
	ctx     context.Context //nolint:containedctx // of the caller, without its end
	until   time.Time       // the caller's patience
	taken   time.Time       // when they were taken out
	end     time.Time       // then the leases have ended them
	turns   int             // so many of the entries' turns are ours
	call    script.Call
	made    bool         // call is
	sent    []*record    // those in call: of the others nothing was to be written
	left    []int        // holds that it leaves of these
	reply   script.Reply // to call
	alone   []error      // of sent, if each of them had to be released by itself
	failure *script.Failure
}

// releaseBatch is Services.release for several holds, whose entries differ and
// stand beside each other.
func releaseBatch(ctx context.Context, rs []*record) []error {
	if ctx == nil { // giving back should not fail over that
		ctx = context.Background()
	}
	s, now := rs[0].entry.Services, time.Now()
	results := make([]error, len(rs))
	var places []int
	for i, r := range rs {
		if _, results[i] = r.entry.take(r, now, false); results[i] == nil {
			places = append(places, i)
		}
	}
	switch {
	case len(places) == 0:
		return results
	case len(places) == 1 || s.Tasks.Context().Err() != nil:
		for _, i := range places {
			results[i] = s.releaseTaken(ctx, rs[i], now, false)
		}
		return results
	}
	slices.SortFunc(places, func(a, b int) int { return strings.Compare(rs[a].entry.key, rs[b].entry.key) })
	op := &batchRelease{Services: s, kind: rs[0].entry.batched(), taken: now, until: now.Add(s.Patience), failure: &script.Failure{}}
	longest := max(s.Patience, s.Lease)
	for _, i := range places {
		op.records = append(op.records, rs[i])
		longest = max(longest, rs[i].lease.Duration())
	}
	op.end = now.Add(longest)
	for j, err := range op.run(ctx, now) {
		results[places[j]] = err
	}
	return results
}

// run sends the release, and answers for each record as soon as the caller may go.
func (op *batchRelease) run(ctx context.Context, now time.Time) []error {
	if ctx.Done() == nil {
		op.send(ctx, now, op.until)
		return op.answer()
	}
	ctx, done := beyondHold(ctx, op.Patience)
	defer done()
	leave := ctx.Done()
	if ctx.Err() != nil {
		// See releasing.leave: the caller's context is over, giving back isn't.
		bound, cancel := context.WithDeadlineCause(context.WithoutCancel(ctx), op.until, script.ErrPatience)
		defer cancel()
		ctx, leave = bound, bound.Done()
	}
	op.ctx = context.WithoutCancel(ctx)
	records, failure := op.records, op.failure
	if !op.Tasks.Call(leave, op) {
		return sameFor(records, func(r *record) error {
			return fmt.Errorf("%w: unlock %s: %w", errs.ErrUncertain, errs.Quote(r.entry.name),
				op.Gone(ctx, "waiting for the answer to unlock", r.entry.name, failure))
		})
	}
	return op.answer()
}

func sameFor(records []*record, f func(r *record) error) []error {
	each := make([]error, len(records))
	for i, r := range records {
		each[i] = f(r)
	}
	return each
}

// Run implements task.Op.
func (op *batchRelease) Run() { op.send(op.ctx, time.Now(), op.until) }

// Abandoned implements task.Op.
func (op *batchRelease) Abandoned() { op.finish() }

// answer is what the caller is told once send has ended. Without an answer the
// release goes on behind.
func (op *batchRelease) answer() []error {
	if !unanswered(op.reply) {
		defer op.done()
		return op.outcome()
	}
	cause, records := op.reply.Err, op.records
	if !op.Tasks.Go(op.finish) {
		op.done()
		for _, r := range records {
			r.tellReleased(cause)
		}
	}
	return sameFor(records, func(r *record) error {
		return fmt.Errorf("%w: unlock %s: %w", errs.ErrUncertain, errs.Quote(r.entry.name), cause)
	})
}

// send sends the release until it is answered or the time is over.
func (op *batchRelease) send(ctx context.Context, now, until time.Time) {
	for ; op.turns < len(op.records); op.turns++ {
		if e := op.records[op.turns].entry; !e.takeTurn(nil, until) {
			op.reply.Err = e.errTurn(ctx, "unlock")
			return
		}
	}
	if !op.made {
		op.make(now)
	}
	if len(op.sent) == 0 {
		op.reply = script.Reply{}
		return
	}
	resent := op.reply.MaybeRan
	if resent {
		op.call = op.call.Resent()
	}
	op.reply = op.Runner.Do(ctx, now, until, op.call)
	op.reply.Resent = op.reply.Resent || resent
	op.reply.MaybeRan = op.reply.MaybeRan || op.reply.Err != nil && resent
	for i, r := range op.sent {
		r.entry.written = unknown
		if op.reply.Err == nil {
			r.entry.written = op.left[i]
		}
	}
	if err := op.reply.Err; err != nil && !unanswered(op.reply) && !errors.Is(err, errs.ErrClosed) {
		op.oneByOne(ctx, now, until) // one key that is denied must not keep the others
	}
}

// make makes the call. Names whose count has been written already, by another
// release of this owner, stay out of it.
func (op *batchRelease) make(now time.Time) {
	op.made = true
	var es []*entry
	var leases []time.Duration
	for _, r := range op.records {
		n, d, _ := r.entry.left(now)
		if n == r.entry.written {
			continue
		}
		op.sent, op.left = append(op.sent, r), append(op.left, n)
		es, leases = append(es, r.entry), append(leases, d)
	}
	if len(es) == 0 {
		return
	}
	each := argsOf(es)
	for i := range each {
		each[i].Count, each[i].Lease = op.left[i], leases[i]
	}
	op.call = op.kind.ReleaseAll(each).Noting(op.failure)
}

// oneByOne gives back name by name what was refused as a whole. From here on
// each is a release of its own, with the turn that was taken for it.
func (op *batchRelease) oneByOne(ctx context.Context, now, until time.Time) {
	op.alone = make([]error, len(op.sent))
	for i, r := range op.sent {
		one := &releasing{Services: op.Services, record: r, taken: op.taken, until: until, turn: true, failure: op.failure}
		one.send(ctx, now, until)
		op.alone[i] = one.answer()
	}
	op.reply = script.Reply{}
}

// finish goes on behind the caller until the leases have ended the holds anyway.
func (op *batchRelease) finish() {
	defer op.done()
	if unanswered(op.reply) {
		op.send(context.WithoutCancel(op.Tasks.Context()), time.Now(), op.end)
	}
	for i, err := range op.outcome() {
		if err != nil {
			op.Log.Warn("holdfast: a release behind its caller failed; the lease ends the hold", "name", op.records[i].entry.name, "cause", err)
		}
	}
}

// done gives back the turns and the entries.
func (op *batchRelease) done() {
	for i, r := range op.records {
		if op.alone != nil && slices.Contains(op.sent, r) {
			continue // it has its own end
		}
		if i < op.turns {
			r.entry.giveTurn()
		}
		r.entry.exit()
	}
}

// outcome reads the answers.
func (op *batchRelease) outcome() []error {
	return sameFor(op.records, func(r *record) error {
		switch i := slices.Index(op.sent, r); {
		case i >= 0 && op.alone != nil:
			return op.alone[i]
		case i >= 0:
			return r.told(op.released(r, replyOf(op.reply, i)))
		case op.reply.Err != nil: // no turn, no call
			return r.told(op.released(r, op.reply))
		}
		return r.told(nil)
	})
}
