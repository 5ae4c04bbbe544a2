package hold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/owner"
	"github.com/holdfast-go/holdfast/internal/script"
)

// Quorum is Lockers on independent servers as one: who has a majority of them has
// it. The algorithm is the one called Redlock:
// https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
type Quorum struct {
	name    string
	id      string // see lockOf
	need    int
	members []Member
	err     error // told at the first call
}

var _ Locker = (*Quorum)(nil)

// NewQuorum makes a quorum lock of members as they were given; err refuses it.
func NewQuorum(members []Member, err error) *Quorum {
	q := &Quorum{name: joinNames(members), need: len(members)/2 + 1, members: members, err: err}
	switch {
	case err != nil:
	case len(members) == 0:
		q.err = errs.Invalid("a quorum lock was made of no locks: give it one on each of several servers")
	default:
		q.err = independent(members)
	}
	if q.err == nil {
		q.id = lockOf(majorityOf, members)
	}
	if err == nil && len(members) > 0 && !slices.ContainsFunc(members, func(m Member) bool { return m.Name() != members[0].Name() }) {
		q.name = members[0].Name()
	}
	return q
}

// independent refuses members that would fail together.
func independent(ms []Member) error {
	for i, m := range ms {
		if m.mutex != nil && m.mutex.err != nil {
			return m.mutex.err
		}
		for _, o := range ms[:i] {
			if m.same(o) || m.mutex != nil && o.mutex != nil && (m.mutex.Services == o.mutex.Services || m.machine() == o.machine()) {
				return errs.Invalid("two members of a quorum lock, %s and %s, are on one server: they would fail together; give each a client of its own, on a server of its own", errs.Quote(o.Name()), errs.Quote(m.Name()))
			}
		}
	}
	return nil
}

// Name implements Locker.
func (q *Quorum) Name() string { return q.name }

// Lock implements Locker.
func (q *Quorum) Lock(ctx context.Context, opts ...Option) (*Hold, error) {
	return q.acquire(ctx, opts, true)
}

// TryLock implements Locker.
func (q *Quorum) TryLock(ctx context.Context, opts ...Option) (*Hold, error) {
	return q.acquire(ctx, opts, false)
}

// Bounds of the time that one server is given. A server that is down must not cost
// the others their lease.
const (
	leastPerServer = 50 * time.Millisecond
	mostPerServer  = 500 * time.Millisecond
)

// perServer is the time that one server is given, for a lease of d.
func perServer(d time.Duration) time.Duration {
	return min(max(d/10, leastPerServer), mostPerServer)
}

// leaseOf is the lease that a hold is given: the shortest of the members' clients'.
func (q *Quorum) leaseOf(o Options) time.Duration {
	if o.LeaseSet {
		return o.Lease
	}
	d := lease.Max
	for _, m := range q.members {
		if m.mutex != nil {
			d = min(d, m.mutex.Lease)
		}
	}
	return d
}

func (q *Quorum) check(ctx context.Context, what string) error {
	if q.err != nil {
		return q.err
	}
	if ctx == nil {
		return ErrNilContext(what, q.name)
	}
	return nil
}

// quorumAttempt is one call of Lock or TryLock.
type quorumAttempt struct {
	*Quorum
	caller   context.Context //nolint:containedctx // lives as long as the call
	ctx      context.Context //nolint:containedctx // the same with the owner in it
	token    *owner.Token
	pass     []Option
	lease    time.Duration
	forever  bool
	deadline time.Time // of the wait; zero without one
	last     error     // of the round before
}

// left is the error of a caller whose context has ended: with what came of the last
// round, which is an outage too if it was one, but not "taken".
func (a *quorumAttempt) left() error {
	err := fmt.Errorf("holdfast: lock %s: %w", errs.Quote(a.name), script.ContextError(a.ctx))
	switch {
	case a.last == nil:
		return err
	case errors.Is(a.last, errs.ErrUnavailable):
		return fmt.Errorf("%w (%w)", err, a.last)
	default:
		return fmt.Errorf("%w (%v)", err, a.last) //nolint:errorlint // on purpose, see above
	}
}

func (q *Quorum) acquire(ctx context.Context, opts []Option, forever bool) (*Hold, error) {
	if err := q.check(ctx, "lock"); err != nil {
		return nil, err
	}
	o, err := Collect(opts)
	if err != nil {
		return nil, err
	}
	a := &quorumAttempt{Quorum: q, caller: ctx, lease: q.leaseOf(o), forever: forever && !o.WaitSet}
	if a.ctx, a.token, err = owned(ctx); err != nil {
		return nil, err
	}
	if o.LeaseSet {
		a.pass = []Option{Lease(o.Lease)}
	}
	if !a.forever && o.Wait > 0 {
		a.deadline = time.Now().Add(o.Wait)
	}
	stale := 0
	for round := 0; ; round++ {
		if ctx.Err() != nil {
			return nil, a.left()
		}
		start := time.Now()
		h, final, err := a.round(start)
		if h != nil {
			return h, nil
		}
		if errors.Is(err, errs.ErrLost) {
			stale++
		}
		mayWait := a.forever || !a.deadline.IsZero()
		if final || !mayWait || stale == staleTries {
			return nil, err
		}
		a.last = err
		a.sleep(round, time.Since(start))
		if ctx.Err() == nil && !a.deadline.IsZero() && !time.Now().Before(a.deadline) {
			return nil, err
		}
	}
}

// Bounds of the random time until the next try. It parts those who took each
// other's majority.
const (
	shortRetry = 10 * time.Millisecond
	longRetry  = 200 * time.Millisecond
)

func (a *quorumAttempt) sleep(round int, took time.Duration) {
	d := rand.N(min(max(shortRetry, 2*took)<<min(round, 5), longRetry))
	if !a.deadline.IsZero() {
		d = min(d, max(time.Until(a.deadline), 0))
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-a.ctx.Done():
	}
}

// round asks all members at once. It answers the hold, or why there is none, and
// whether that is so for good.
func (a *quorumAttempt) round(start time.Time) (h *Hold, final bool, err error) {
	holds, failed := a.askAll(start)
	if len(holds) >= a.need {
		h := newGroup(a.caller, a.token, a.name, a.need, holds)
		h.group.perMember = perServer(a.lease)
		// What is left of the lease, less the clocks' drift, must be something.
		if time.Since(start) < a.lease-a.lease/100-2*time.Millisecond && h.group.over() == nil {
			h.group.note(a.id, a.token)
			return h, false, nil
		}
		a.undo(holds)
		return nil, false, fmt.Errorf("%w: %s: its lease of %v was used up before a majority of its members was taken: choose a longer one", errs.ErrLost, errs.Quote(a.name), a.lease)
	}
	a.undo(holds)
	final, err = a.verdict(len(holds), failed)
	return nil, final, err
}

// askAll asks all members at once, each within the time that one is given. Once
// there is a majority the others get as much time again as that took.
func (a *quorumAttempt) askAll(start time.Time) (holds []*Hold, failed []error) {
	ctx, cancel := context.WithTimeoutCause(a.ctx, perServer(a.lease), script.ErrPatience)
	defer cancel()
	type answer struct {
		hold *Hold
		err  error
	}
	answers := make(chan answer, len(a.members))
	for _, m := range a.members {
		go func() { // ends with its answer, which is waited for
			h, err := m.TryLock(ctx, a.pass...)
			if err == nil && h == nil {
				err = errNoHold(m)
			}
			answers <- answer{h, err}
		}()
	}
	var grace <-chan time.Time
	for range a.members {
		var got answer
		select {
		case got = <-answers:
		case <-grace:
			cancel()
			got = <-answers
		}
		if got.err != nil {
			failed = append(failed, a.explain(got.err))
			continue
		}
		holds = append(holds, got.hold)
		if len(holds) == a.need && len(holds)+len(failed) < len(a.members) {
			timer := time.NewTimer(max(time.Since(start), shortRetry))
			defer timer.Stop()
			grace = timer.C
		}
	}
	return holds, failed
}

// explain has a member that ran out of its time say so.
func (a *quorumAttempt) explain(err error) error {
	if a.ctx.Err() == nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) && !errors.Is(err, errs.ErrUnavailable) {
		return fmt.Errorf("%w: %w", errs.ErrUnavailable, err)
	}
	return err
}

// verdict is why there is no majority: because others have it, because too few
// servers answer, or because of something that another try won't change.
func (a *quorumAttempt) verdict(granted int, failed []error) (final bool, err error) {
	if a.ctx.Err() != nil {
		return true, a.left()
	}
	var silent, broken []error
	var remaining []time.Duration
	for _, err := range failed {
		var taken *errs.NotAcquiredError
		switch {
		case errors.As(err, &taken):
			remaining = append(remaining, taken.Remaining)
		case errors.Is(err, errs.ErrNotAcquired):
			remaining = append(remaining, -1)
		case script.Temporary(err):
			silent = append(silent, err)
		default:
			broken = append(broken, err)
		}
	}
	switch {
	case len(broken) > len(a.members)-a.need:
		return true, fmt.Errorf("holdfast: lock %s: %w", errs.Quote(a.name), errors.Join(broken...))
	case granted+len(remaining) >= a.need:
		return false, &errs.NotAcquiredError{Name: a.name, Remaining: remainingOf(remaining, a.need-granted)}
	}
	return false, fmt.Errorf("%w: lock %s: %d of its %d members answered: %w", errs.ErrUnavailable, errs.Quote(a.name), granted+len(remaining), len(a.members),
		errors.Join(append(silent, broken...)...))
}

// remainingOf is when n of them may be free; negative if that isn't known.
func remainingOf(ds []time.Duration, n int) time.Duration {
	slices.SortFunc(ds, func(a, b time.Duration) int { return cmp.Compare(uint64(a), uint64(b)) }) // negative ones last
	return ds[n-1]
}

// undo gives back what is no majority: behind the caller if that has to go.
func (a *quorumAttempt) undo(holds []*Hold) {
	if len(holds) == 0 {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(a.ctx), perServer(a.lease), script.ErrPatience)
	free := func() {
		defer cancel()
		// Who gets no answer goes on by itself; the lease bounds what fails.
		for _, err := range unlockAll(ctx, holds) {
			if err != nil && !script.Temporary(err) && !errors.Is(err, errs.ErrUncertain) && !errors.Is(err, errs.ErrNotHeld) && !errors.Is(err, errs.ErrClosed) {
				a.warn(err)
			}
		}
	}
	if a.ctx.Err() != nil {
		if s := a.services(); s != nil && s.Tasks.Go(free) {
			return
		}
	}
	free()
}

// services are those of the first member that has any.
func (q *Quorum) services() *Services {
	for _, m := range q.members {
		if m.mutex != nil {
			return m.mutex.Services
		}
	}
	return nil
}

func (q *Quorum) warn(err error) {
	if s := q.services(); s != nil {
		s.Log.Warn("holdfast: a member of a quorum lock could not be given back; its lease ends the hold", "name", q.name, "cause", err)
	}
}
