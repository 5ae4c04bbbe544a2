package hold

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/owner"
	"github.com/holdfast-go/holdfast/internal/script"
)

// group is the inside of a Hold that is made of others.
type group struct {
	*groupState
	members []*Hold // not empty
}

// groupState is what the ends of the members lead to. It doesn't lead to the
// owner, since the ledger leads here.
type groupState struct {
	name  string
	need  int // how many of the members have to be held
	parts []subject
	// perMember is the time that one member is given for its answer, if the group
	// can do without it; 0: its own.
	perMember time.Duration

	// mu is a leaf: nothing is called under it.
	mu      sync.Mutex
	freed   bool // Unlock or Detach has begun
	lapsing bool // check is about to finish
	ending
}

// newGroup makes one Hold of members, need of which have to be held for it to
// be. It may be over at once.
func newGroup(ctx context.Context, t *owner.Token, name string, need int, members []*Hold) *Hold {
	s := &groupState{name: name, need: need, parts: make([]subject, len(members))}
	h := &Hold{group: &group{groupState: s, members: members}}
	h.ctx.Context, h.ctx.of, h.ctx.token = ctx, s, t
	for i, m := range members {
		s.parts[i] = m.ctx.of
	}
	for _, p := range s.parts {
		p.watch(s.memberEnded)
	}
	return h
}

// memberEnded takes note that a member is lost or given back.
func (s *groupState) memberEnded(error) { s.check(false) }

// check ends the group if too few members are held. Those whose lease is as good
// as over end before, and if one ran out the rest is void, however much later it was
// asked for: an outer hold must not count them any more. now does without waiting
// for whoever is at it already.
func (s *groupState) check(now bool) {
	if s.ended() != nil {
		return
	}
	alive, ranOut := 0, false
	var why error
	for _, p := range s.parts {
		cause := p.ended()
		if _, ok := errors.AsType[*lease.RanOutError](cause); ok {
			ranOut = true
		}
		switch {
		case cause == nil:
			alive++
		case why == nil, errors.Is(cause, errs.ErrLost) && !errors.Is(why, errs.ErrLost):
			why = cause
		}
	}
	if alive >= s.need {
		return
	}
	s.mu.Lock()
	first := !s.lapsing
	s.lapsing = true
	s.mu.Unlock()
	if !first && !now {
		return
	}
	if ranOut {
		s.discount()
	}
	if errors.Is(why, errs.ErrLost) {
		s.lapse(time.Now())
	}
	switch {
	case !errors.Is(why, errs.ErrLost):
		s.finish(why)
	case s.need == len(s.parts):
		s.finish(fmt.Errorf("%w (a member of %s)", why, errs.Quote(s.name)))
	default:
		s.finish(fmt.Errorf("%w (no majority of %s is left)", why, errs.Quote(s.name)))
	}
}

func (s *groupState) attach(end context.CancelCauseFunc, free context.CancelFunc, t weak.Pointer[tie]) error {
	return s.attachUnder(&s.mu, end, free, t)
}

func (s *groupState) endContext(why error)    { s.endContextUnder(&s.mu, why) }
func (s *groupState) finish(why error)        { s.finishUnder(&s.mu, why) }
func (s *groupState) watch(f func(why error)) { s.watchUnder(&s.mu, f) }
func (s *groupState) ended() error            { return s.endedUnder(&s.mu) }
func (s *groupState) title() string           { return s.name }

func (s *groupState) look() {
	for _, p := range s.parts {
		p.look()
	}
	s.check(true)
}

func (s *groupState) lapse(now time.Time) {
	for _, p := range s.parts {
		p.lapse(now)
	}
}

func (s *groupState) discount() {
	for _, p := range s.parts {
		p.discount()
	}
}

// over looks, and answers why the group is over, or nil.
func (s *groupState) over() error {
	s.look()
	return s.ended()
}

// notHeld is the error of a group that is over because of cause.
func (s *groupState) notHeld(cause error) error {
	reason := errs.GivenBack
	switch {
	case errors.Is(cause, errs.ErrClosed):
		return fmt.Errorf("%w: the hold of %s ended with it", errs.ErrClosed, errs.Quote(s.name))
	case errors.Is(cause, errs.ErrLost):
		reason = errs.Lost
	}
	return &errs.NotHeldError{Name: s.name, Reason: reason}
}

// free has the first caller give the members back. The others get an error.
func (s *groupState) free() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.freed {
		return s.notHeld(s.cause)
	}
	s.freed = true
	return nil
}

// expiresAt is when fewer than the needed members are left.
func (g *group) expiresAt() time.Time {
	if g.over() != nil {
		return time.Time{}
	}
	ends := make([]time.Time, len(g.members))
	for i, m := range g.members {
		ends[i] = m.ExpiresAt()
	}
	slices.SortFunc(ends, func(a, b time.Time) int { return b.Compare(a) })
	return ends[g.need-1]
}

func (g *group) unlock(ctx context.Context) error {
	if err := g.free(); err != nil {
		return err
	}
	return g.giveBack(ctx)
}

// giveBack is unlock for whom free has let in.
func (g *group) giveBack(ctx context.Context) error {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, done := beyondHold(ctx, g.services().Patience)
	defer done()
	g.finish(errs.ErrReleased)
	if g.perMember > 0 {
		if ctx.Err() != nil { // giving back takes its own time
			ctx = context.WithoutCancel(ctx)
		}
		bound, cancel := context.WithTimeoutCause(ctx, g.perMember, script.ErrPatience)
		defer cancel()
		ctx = bound
	}
	return g.verdict(unlockAll(ctx, g.members))
}

// services are those of its first member.
func (g *group) services() *Services {
	for g.members[0].group != nil {
		g = g.members[0].group
	}
	return g.members[0].record.entry.Services
}

// verdict is the outcome of something that was done to each member: a success
// if it was for as many as needed.
func (g *group) verdict(each []error) error {
	done := 0
	for _, err := range each {
		if err == nil {
			done++
		}
	}
	if done >= g.need {
		return nil
	}
	return lossFirst(each)
}

// lossFirst joins errors, those of losses before others: then the first NotHeldError
// that errors.As finds says Lost wherever errors.Is finds ErrLost.
func lossFirst(each []error) error {
	var losses, others []error
	for _, err := range each {
		if errors.Is(err, errs.ErrLost) {
			losses = append(losses, err)
		} else {
			others = append(others, err)
		}
	}
	return errors.Join(append(losses, others...)...)
}

func (g *group) extend(ctx context.Context, d time.Duration) error {
	if cause := g.over(); cause != nil {
		return g.notHeld(cause)
	}
	if g.perMember > 0 {
		bound, cancel := context.WithTimeoutCause(ctx, g.perMember, script.ErrPatience)
		defer cancel()
		ctx = bound
	}
	return g.verdict(extendAll(ctx, g.members, d))
}

// extendAll extends each hold, all at once.
func extendAll(ctx context.Context, holds []*Hold, d time.Duration) []error {
	return forEach(len(holds), func(i int) error { return holds[i].Extend(ctx, d) })
}

// forEach runs f for 0 to n-1, beside each other, and answers the errors when
// the last one has returned.
func forEach(n int, f func(i int) error) []error {
	each := make([]error, n)
	if n == 1 {
		each[0] = f(0)
		return each
	}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { each[i] = f(i) })
	}
	wg.Wait()
	return each
}

// detach detaches the members, under one handle.
func (g *group) detach() (string, error) {
	if _, err := (&Hold{group: g}).detachable(); err != nil {
		return "", err
	}
	if err := g.free(); err != nil {
		return "", err
	}
	g.finish(errs.ErrReleased)
	out := handle{Kind: GroupKind, Name: []byte(g.name)}
	for i, m := range g.members {
		one, err := m.Detach()
		if err != nil {
			// This one may be held as before, and those behind it are.
			failed := forEach(len(out.Members), func(j int) error { return g.members[j].freeDetached(out.Members[j]) })
			for _, ferr := range append(failed, unlockAll(context.Background(), g.members[i:])...) {
				if ferr != nil && !errors.Is(ferr, errs.ErrNotHeld) {
					err = errors.Join(err, ferr)
				}
			}
			return "", fmt.Errorf("holdfast: detach %s: the hold is over: %w", errs.Quote(g.name), err)
		}
		out.Members = append(out.Members, one)
	}
	return out.String(), nil
}

// detachable answers whose hold it is, or why it can't be detached.
func (h *Hold) detachable() (*Services, error) {
	if h.group == nil {
		r := h.record
		if err := r.alive(); err != nil {
			return nil, err
		}
		return r.entry.Services, r.entry.detachable()
	}
	if cause := h.group.over(); cause != nil {
		return nil, h.group.notHeld(cause)
	}
	var of *Services
	for _, m := range h.group.members {
		s, err := m.detachable()
		switch {
		case err != nil:
			return nil, err
		case of != nil && s != of:
			return nil, errs.Invalid("hold of %s can't be detached: its members belong to several clients, and a handle is resumed by one", errs.Quote(h.group.name))
		}
		of = s
	}
	return of, nil
}

// GroupKind is the kind of the handles of multi locks.
const GroupKind = "multi"

// freeDetached gives back what was detached a moment ago.
func (h *Hold) freeDetached(text string) error {
	d, err := parseHandle(text)
	if err != nil {
		return err
	}
	if h.group != nil {
		return lossFirst(forEach(len(d.Members), func(i int) error { return h.group.members[i].freeDetached(d.Members[i]) }))
	}
	e := h.record.entry
	args := e.args()
	args.Field = d.Field
	reply := e.Send(context.Background(), e.Patience, e.kind.Release(args))
	e.heard(e.key, reply)
	return reply.Err
}

// ResumeGroup takes up the hold of a multi lock, one by one, under one owner:
// resume does it for a member.
func ResumeGroup(ctx context.Context, s *Services, text string, resume func(ctx context.Context, handle string) (*Hold, error)) (*Hold, error) {
	h, err := parseHandle(text)
	if err != nil {
		return nil, err
	}
	name := string(h.Name)
	caller := ctx
	ctx, t, err := owned(ctx)
	if err != nil {
		return nil, err
	}
	give, err := s.TakeHandle(ctx, "resume", name, text)
	if err != nil {
		return nil, err
	}
	var holds []*Hold
	var handles []string // of holds
	var lost error
	for _, one := range h.Members {
		m, err := resume(ctx, one)
		switch {
		case err == nil:
			holds, handles = append(holds, m), append(handles, one)
		case errors.Is(err, errs.ErrNotHeld):
			lost = err // the others are of no use to anybody now
		default:
			back := func() {
				defer give()
				if lost == nil {
					s.putBack(holds, handles)
				} else if err := errors.Join(unlockAll(context.Background(), holds)...); err != nil {
					s.Log.Warn("holdfast: members of a hold that is lost are left to their leases", "name", name, "cause", err)
				}
			}
			if !s.Tasks.Go(back) {
				back()
			}
			return nil, errors.Join(err, lost)
		}
	}
	defer give()
	if lost != nil {
		return nil, errors.Join(append([]error{fmt.Errorf("holdfast: resume %s: %w", errs.Quote(name), lost)}, unlockAll(ctx, holds)...)...)
	}
	all := newGroup(caller, t, name, len(holds), holds)
	if lock := lockOfHolds(holds); lock != "" {
		all.group.note(lock, t)
	}
	return all, nil
}

// putBack makes the handles of holds that were just resumed good again. A hold for
// which that fails is given back: nobody else would.
func (s *Services) putBack(holds []*Hold, handles []string) {
	for i, m := range holds {
		h, err := parseHandle(handles[i])
		switch {
		case err != nil:
		case m.group != nil:
			s.putBack(m.group.members, h.Members)
		default:
			_, err = m.record.entry.detach(m.record, h.Field)
		}
		if err != nil {
			s.Log.Warn("holdfast: a hold that was to be resumed can't be any more", "name", m.Name(), "cause", err)
			if err := m.Unlock(context.Background()); err != nil && !errors.Is(err, errs.ErrNotHeld) {
				s.Log.Warn("holdfast: a hold that was to be resumed is left to its lease", "name", m.Name(), "cause", err)
			}
		}
	}
}
