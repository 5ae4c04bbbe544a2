package hold

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/owner"
	"github.com/holdfast-go/holdfast/internal/script"
)

// Multi is several Lockers as one: all of them or none.
//
// Nobody waits while holding something, so that two of them can't wait for each
// other: who is refused a member gives back what it has, waits for that member
// alone, keeps it, and asks for the others once more without waiting. Two that
// go on taking each other's members this way part at random: who is refused
// again soon after a wait pauses for a random while, longer each time. And all
// ask in the same order, so that of those who begin together the first one of
// the order decides, and one of them gets on.
type Multi struct {
	*Services
	name    string
	id      string   // see lockOf
	members []Member // in the order in which they are asked, no lock twice
	err     error    // told at the first call
}

var _ Locker = (*Multi)(nil)

// NewMulti makes a multi lock of members as they were given; err refuses it.
func NewMulti(s *Services, members []Member, err error) *Multi {
	m := &Multi{Services: s, name: joinNames(members), err: err}
	if m.err == nil && len(members) == 0 {
		m.err = errs.Invalid("a multi lock was made of no locks: give it one or more")
	}
	if m.err == nil {
		m.members, m.err = arrange(members)
	}
	if m.err == nil {
		m.id = lockOf(allOf, m.members)
	}
	return m
}

// Name implements Locker.
func (m *Multi) Name() string { return m.name }

// Lock implements Locker.
func (m *Multi) Lock(ctx context.Context, opts ...Option) (*Hold, error) {
	return m.acquire(ctx, opts, true)
}

// TryLock implements Locker.
func (m *Multi) TryLock(ctx context.Context, opts ...Option) (*Hold, error) {
	return m.acquire(ctx, opts, false)
}

// multiAttempt is one call of Lock or TryLock.
type multiAttempt struct {
	*Multi
	caller   context.Context //nolint:containedctx // lives as long as the call
	ctx      context.Context //nolint:containedctx // the same with the owner in it
	token    *owner.Token
	opts     Options
	pass     []Option // those that members are given
	forever  bool
	deadline time.Time // of the wait; zero without one
	holds    []*Hold   // what is taken so far, by member
}

// refusal is a member that kept us from going on.
type refusal struct {
	at  int // -1: a hold's end
	err error
}

func (m *Multi) acquire(ctx context.Context, opts []Option, forever bool) (*Hold, error) {
	if err := m.check(ctx, "lock"); err != nil {
		return nil, err
	}
	a := &multiAttempt{Multi: m, caller: ctx}
	var err error
	if a.opts, err = Collect(opts); err != nil {
		return nil, err
	}
	if a.ctx, a.token, err = owned(ctx); err != nil {
		return nil, err
	}
	if a.opts.LeaseSet {
		a.pass = []Option{Lease(a.opts.Lease)}
	}
	a.forever = forever && !a.opts.WaitSet
	if !a.forever && a.opts.Wait > 0 {
		a.deadline = time.Now().Add(a.opts.Wait)
	}
	if err := m.Loop.Ended(ctx, m.name); err != nil {
		return nil, err
	}
	return a.run()
}

// owned answers a context with an owner in it: one that is minted if need be.
func owned(ctx context.Context) (context.Context, *owner.Token, error) {
	if t := owner.From(ctx); t != nil {
		return ctx, t, t.Check()
	}
	t := owner.Mint()
	return owner.With(ctx, t), t, nil
}

// check refuses calls that make no sense.
func (m *Multi) check(ctx context.Context, what string) error {
	if m.err != nil {
		return m.err
	}
	if ctx == nil {
		return ErrNilContext(what, m.name)
	}
	return nil
}

func (a *multiAttempt) mayWait() bool { return a.forever || !a.deadline.IsZero() }

func (a *multiAttempt) isOver() bool {
	return !a.deadline.IsZero() && !time.Now().Before(a.deadline)
}

// run goes on until all members are taken, or none.
func (a *multiAttempt) run() (*Hold, error) {
	stale := 0
	first := -1 // the member to wait for
	for round := 0; ; round++ {
		h, no, err := a.round(first)
		switch {
		case err != nil:
			return nil, fmt.Errorf("holdfast: lock %s: %w", errs.Quote(a.name), err)
		case h != nil:
			return h, nil
		}
		if no.at < 0 {
			if stale++; !a.mayWait() || stale == staleTries {
				return nil, no.err
			}
		}
		if !a.mayWait() || a.isOver() {
			return nil, a.late(no)
		}
		if round > 0 {
			if err := a.pause(round); err != nil {
				return nil, err
			}
		}
		first = no.at
	}
}

// round waits for one member, if there is one to wait for, and then tries the
// others. Refused, or after an error, it holds nothing any more, or is about to.
func (a *multiAttempt) round(first int) (*Hold, refusal, error) {
	a.holds = make([]*Hold, len(a.members))
	if first >= 0 {
		if no, err := a.await(first); no.err != nil || err != nil {
			return nil, no, err
		}
	}
	for _, unit := range a.units(first) {
		if no, err := a.take(unit); no.err != nil || err != nil {
			a.giveBack()
			return nil, no, err
		}
	}
	h, err := a.keep()
	if err != nil || h.group.over() != nil {
		a.giveBack()
		return nil, refusal{-1, a.usedUp(h)}, err
	}
	h.group.note(a.id, a.token)
	return h, refusal{}, nil
}

// await waits for one member alone.
func (a *multiAttempt) await(i int) (refusal, error) {
	m := a.members[i]
	var h *Hold
	var err error
	if a.forever {
		h, err = m.Lock(a.ctx, a.pass...)
	} else {
		left := max(time.Until(a.deadline), 0)
		h, err = m.TryLock(a.ctx, append(a.pass[:len(a.pass):len(a.pass)], Wait(left))...)
	}
	if err == nil && h == nil {
		err = errNoHold(m)
	}
	if err != nil {
		return a.sort(i, err)
	}
	a.holds[i] = h
	return refusal{}, nil
}

// asked is when a hold's lease was asked for.
func (h *Hold) asked() time.Time {
	if h.group == nil {
		asked, _ := h.record.lease.Present()
		return asked
	}
	first := time.Now()
	for _, m := range h.group.members {
		if t := m.asked(); t.Before(first) {
			first = t
		}
	}
	return first
}

// take takes the members of a unit, without waiting.
func (a *multiAttempt) take(unit []int) (refusal, error) {
	if len(unit) == 1 {
		i := unit[0]
		h, err := a.members[i].TryLock(a.ctx, a.pass...)
		if err == nil && h == nil {
			err = errNoHold(a.members[i])
		}
		if err != nil {
			return a.sort(i, err)
		}
		a.holds[i] = h
		return refusal{}, nil
	}
	locks := make([]*Mutex, len(unit))
	for j, i := range unit {
		locks[j] = a.members[i].mutex
	}
	holds, at, err := takeAll(a.ctx, a.token, a.name, locks, a.opts)
	if err != nil {
		return a.sort(unit[at], err)
	}
	for j, i := range unit {
		a.holds[i] = holds[j]
	}
	return refusal{}, nil
}

// sort tells what to wait for from what ends the call.
func (a *multiAttempt) sort(i int, err error) (refusal, error) {
	if !errors.Is(err, errs.ErrNotAcquired) && !script.Temporary(err) {
		return refusal{}, err
	}
	if a.mayWait() {
		if ended := a.Loop.Ended(a.ctx, a.name); ended != nil {
			return refusal{}, ended
		}
	}
	return refusal{i, err}, nil
}

// late is the error of a call that was refused and may wait no longer.
func (a *multiAttempt) late(no refusal) error {
	var taken *errs.NotAcquiredError
	switch {
	case errors.As(no.err, &taken):
		err := &errs.NotAcquiredError{Name: a.name, Remaining: taken.Remaining}
		if len(a.members) == 1 {
			return err
		}
		return fmt.Errorf("%w, by its member %s", err, errs.Quote(taken.Name))
	case errors.Is(no.err, errs.ErrNotAcquired): // a Locker of the user's own
		return fmt.Errorf("%w: %w", &errs.NotAcquiredError{Name: a.name, Remaining: -1}, no.err)
	}
	return fmt.Errorf("holdfast: lock %s: %w", errs.Quote(a.name), no.err)
}

// keep makes one hold of all. A fixed lease counts from here: members that were
// taken a while ago get it anew.
func (a *multiAttempt) keep() (*Hold, error) {
	// The caller's context as it was: what a cancellable one knows of ours would
	// keep an owner alive that we minted.
	h := newGroup(a.caller, a.token, a.name, len(a.holds), a.holds)
	if !a.opts.LeaseSet || h.group.over() != nil {
		return h, nil
	}
	var last time.Time
	for _, m := range a.holds {
		if t := m.asked(); t.After(last) {
			last = t
		}
	}
	var older []*Hold
	for _, m := range a.holds {
		if last.Sub(m.asked()) > lease.Margin(a.opts.Lease) {
			older = append(older, m)
		}
	}
	if err := errors.Join(extendAll(a.ctx, older, a.opts.Lease)...); err != nil && !errors.Is(err, errs.ErrLost) {
		return h, err
	}
	return h, nil
}

// usedUp is the error of an acquisition whose first member was over before the
// last one was taken.
func (a *multiAttempt) usedUp(h *Hold) error {
	cause := h.group.over()
	if a.opts.LeaseSet && errors.Is(cause, errs.ErrLost) {
		return fmt.Errorf("%w; the lease of %v was used up, or its key gone, before all members were taken: all were given back, choose a longer one", cause, a.opts.Lease)
	}
	return cause
}

// giveBack gives back what is taken. If the caller's context has ended, or ends
// meanwhile, this goes on behind the caller.
func (a *multiAttempt) giveBack() {
	var holds []*Hold
	for _, h := range a.holds {
		if h != nil {
			holds = append(holds, h)
		}
	}
	if len(holds) == 0 {
		return
	}
	ctx := a.ctx
	free := func() {
		for _, err := range unlockAll(ctx, holds) {
			if err != nil && !errors.Is(err, errs.ErrNotHeld) && !errors.Is(err, errs.ErrClosed) && !errors.Is(err, errs.ErrUncertain) {
				a.Log.Warn("holdfast: a member of a multi lock could not be given back; its lease ends the hold", "name", a.name, "cause", err)
			}
		}
	}
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
		if a.Tasks.Go(free) {
			return
		}
	}
	free()
}

// pauses of who was refused again right after a wait.
const (
	shortPause = 2 * time.Millisecond
	longPause  = 64 * time.Millisecond
)

// pause parts those who take each other's members.
func (a *multiAttempt) pause(round int) error {
	d := rand.N(min(shortPause<<min(round, 10), longPause))
	if !a.deadline.IsZero() {
		d = min(d, max(time.Until(a.deadline), 0))
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-a.ctx.Done():
	case <-a.Loop.Closed:
	}
	return a.Loop.Ended(a.ctx, a.name)
}
