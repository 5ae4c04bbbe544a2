package hold

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/owner"
	"github.com/holdfast-go/holdfast/internal/script"
	"github.com/holdfast-go/holdfast/internal/wait"
)

const (
	// A grant that arrives when its lease is already over is asked for again,
	// this often, unless the lease is shorter than a slow round trip.
	staleTries   = 3
	shortestTrue = 100 * time.Millisecond
)

// attempt is one call of Lock or TryLock.
type attempt struct {
	*Mutex
	entry   *entry
	owner   *owner.Token
	lease   time.Duration
	renewed bool
	waits   bool
	tried   bool
	left    bool      // the hold is recorded, the turn given and the entry left
	behind  bool      // a try goes on behind the caller
	asked   time.Time // of the grant
	token   int64     // that the grant carries, if the lock is fenced
	failure script.Failure
	queue   queue
}

// attempts are over, and empty: those of callers who were served, and left nothing
// under way behind them. Nothing leads to them any more.
var attempts = sync.Pool{New: func() any { return new(attempt) }}

// granted is what an acquire script was answered.
type granted struct {
	reply  script.Reply
	token  int64
	marker any     // of the request
	spare  *marker // the same, if it may be used again; see usual
	before int     // holds that the owner had when it was asked
}

func (m *Mutex) acquire(ctx context.Context, opts []Option, forever bool) (*Hold, error) {
	if ctx == nil {
		return nil, ErrNilContext("lock", m.name)
	}
	o, err := Collect(opts)
	if err != nil {
		return nil, err
	}
	if m.err != nil {
		return nil, m.err
	}
	h, err := newHold(ctx, !o.LeaseSet)
	if err != nil {
		return nil, err
	}
	began := m.clock()
	e, in := m.enter(h.ctx.token)
	a := attempts.Get().(*attempt)
	*a = attempt{Mutex: m, entry: e, owner: h.ctx.token, lease: m.Lease, renewed: true}
	if o.LeaseSet {
		a.lease, a.renewed = o.Lease, false
	}
	defer func() {
		switch {
		case !a.left: // also after a panic of the caller's Backoff
			e.exit()
		case !a.behind:
			*a = attempt{}
			attempts.Put(a)
		}
	}()
	r, err := a.acquire(ctx, o, forever, in)
	e.tellAsked(began, err)
	if err != nil {
		return nil, err
	}
	h.begin(r)
	return h, nil
}

// acquire asks until it has the lock, and leaves the entry then. in says that the
// owner has it already.
func (a *attempt) acquire(ctx context.Context, o Options, forever, in bool) (*record, error) {
	m, e := a.Mutex, a.entry
	spec := wait.Spec{
		Name:    m.name,
		Line:    m.key,
		Channel: m.channel,
		Forever: forever && !o.WaitSet,
		Wait:    o.Wait,
		Delay:   m.delay,
		Try:     a,
	}
	a.waits = spec.Forever || spec.Wait > 0
	if m.leaver != nil {
		spec.Refresh = m.leaver.Refresh()
	}
	if m.queueKind != nil {
		a.join(&spec)
	}
	if in || m.queues {
		spec.Line = "" // a re-entry must not stand behind those it keeps out
	}
	err := m.Loop.Acquire(ctx, spec)
	if m.queueKind != nil {
		a.quit(ctx, err == nil)
	}
	if err != nil {
		a.leave(ctx, err)
		return nil, err
	}
	r := e.add(grant{a.asked, a.lease, a.renewed, a.token})
	if r == nil {
		a.settleBehind(granted{reply: script.Reply{Err: errs.ErrClosed, MaybeRan: true}})
		return nil, fmt.Errorf("%w: %s", errs.ErrClosed, errs.Quote(m.name))
	}
	a.left = true
	e.leave()
	return r, nil
}

// Try implements wait.Trier: it asks Redis once. After a grant the entry's turn
// stays taken until the hold is recorded.
func (a *attempt) Try(ctx context.Context, until time.Time) (wait.Outcome, error) {
	e := a.entry
	if !e.takeTurn(ctx.Done(), until) {
		return wait.Outcome{}, e.errTurn(ctx, "lock")
	}
	a.tried = true
	place := a.stand()
	if a.nonReentrant && e.count() > 0 {
		e.giveTurn()
		return wait.Outcome{}, fmt.Errorf("%w: %s, and this lock is not re-entrant", errs.ErrReentry, errs.Quote(a.name))
	}
	var g granted
	if ctx.Done() == nil {
		a.ask(ctx, until, place, &g)
	} else {
		q := &question{attempt: a, ctx: ctx, until: until, place: place}
		if !a.Tasks.Call(ctx.Done(), q) {
			a.behind = true
			return wait.Outcome{}, a.Gone(ctx, "lock", a.name, &a.failure)
		}
		g = q.granted
	}
	if g.reply.Err != nil {
		a.settleBehind(g)
		if script.IsWrongType(g.reply.Err) {
			return wait.Outcome{}, a.wrongType(ctx, g.reply.Err)
		}
		return wait.Outcome{}, fmt.Errorf("holdfast: lock %s: %w", errs.Quote(a.name), g.reply.Err)
	}
	a.answered(g.spare, g.reply)
	switch n := g.reply.Int(); n {
	case grantedFirst, grantedAgain:
		if n == grantedFirst && g.before > 0 {
			e.loseAll(fmt.Errorf("%w: %s: the key was gone when the owner entered again", errs.ErrLost, errs.Quote(a.name)))
		}
		e.written = g.before + 1
		if n == grantedFirst {
			e.written = 1
		}
		e.place = Place{} // it went with the grant
		a.asked, a.token = g.reply.Asked, g.token
		return wait.Outcome{Granted: true, TTL: a.lease}, nil
	case foreignHash:
		e.giveTurn()
		return wait.Outcome{}, a.invalidKey(ctx, a.name, a.key, nil)
	case badToken:
		e.giveTurn()
		return wait.Outcome{}, ErrToken(a.name, a.tokenKey.(string))
	default:
		if g.before > 0 {
			e.loseAll(fmt.Errorf("%w: %s: it belonged to another owner when this one entered again", errs.ErrLost, errs.Quote(a.name)))
		}
		e.giveTurn()
		if n == upgrade {
			return wait.Outcome{}, errUpgrade(a.name)
		}
		if n == refusedEver {
			return wait.Outcome{TTL: -1}, nil
		}
		return wait.Outcome{TTL: time.Duration(n-refusedFor) * time.Millisecond}, nil
	}
}

// Entered implements wait.Trier.
func (a *attempt) Entered() <-chan struct{} { return a.entry.in() }

// question is ask for a caller who may leave.
type question struct {
	*attempt
	ctx   context.Context //nolint:containedctx // lives as long as the call
	until time.Time
	place Place
	granted
}

// Run implements task.Op.
func (q *question) Run() { q.ask(q.ctx, q.until, q.place, &q.granted) }

// Abandoned implements task.Op.
func (q *question) Abandoned() { q.settle(q.granted) }

// ask sends the acquire script, and again if its grant came too late to trust.
func (a *attempt) ask(ctx context.Context, until time.Time, place Place, g *granted) {
	stale := false
	for i := 1; ; i++ {
		*g = granted{before: a.entry.count()}
		c := a.request(g, place)
		g.reply = a.Runner.Do(ctx, time.Now(), until, c.Noting(&a.failure).Replicated(isGrant))
		g.readToken()
		if g.reply.Err != nil {
			a.entry.written = unknown
			g.reply.MaybeRan = g.reply.MaybeRan || g.reply.HalfRan || stale // the one before was granted
			if errors.Is(g.reply.Err, errs.ErrNotReplicated) {
				// Redis answers: nothing is left when the caller learns of it.
				g.reply.MaybeRan = a.takeBack(*g, a.Patience) != nil
			}
			return
		}
		stale = g.isGrant() && time.Since(g.reply.Asked) >= a.lease-lease.Margin(a.lease)
		if !stale || i == staleTries || a.lease < shortestTrue || ctx.Err() != nil {
			return
		}
	}
}

// request is the acquire script's, for one hold more than there are.
func (a *attempt) request(g *granted, place Place) script.Call {
	asUsual := !a.usual.none && g.before == 0 && a.lease == a.Lease
	if asUsual {
		g.spare = a.spareMarker()
		g.marker = g.spare.arg
		if c := a.usual.acquire.Load(); c != nil {
			return c.Again(g.marker, a.entry.fieldArg)
		}
	} else {
		g.marker = a.Runner.NewMarker(a.marker)
	}
	args := a.argsWith(g.marker)
	args.Field, args.Count, args.Lease, args.Waits, args.Place = a.entry.fieldArg, g.before+1, a.lease, a.waits, place
	a.fence(&args)
	c := a.kind.Acquire(args)
	if asUsual {
		return keep(&a.usual.acquire, c).Again(g.marker, a.entry.fieldArg)
	}
	return c
}

func (g granted) isGrant() bool { return g.reply.Err == nil && isGrant(g.reply.Val) }

// isGrant reports whether an acquire script's answer is a grant, fenced or not.
func isGrant(answer any) bool {
	n, _ := answer.(int64)
	return n < 0 || n == grantedFirst || n == grantedAgain
}

// settle ends a request whose caller has left, and gives the turn back.
func (a *attempt) settle(g granted) {
	if g.isGrant() || g.reply.Err != nil && g.reply.MaybeRan {
		a.undo(g)
		return
	}
	a.entry.giveTurn()
}

// settleBehind is settle on a goroutine of its own, if there is something to
// do: the caller has its error already.
func (a *attempt) settleBehind(g granted) {
	if !g.reply.MaybeRan || !a.Tasks.Go(func() { a.settle(g) }) {
		a.entry.giveTurn()
	}
}

// undo takes an acquisition back that nobody waits for, and gives the entry's
// turn back.
func (a *attempt) undo(g granted) {
	defer a.entry.giveTurn()
	if err := a.takeBack(g, max(a.Patience, a.lease)); err != nil && !errors.Is(err, errs.ErrClosed) {
		a.Log.Warn("holdfast: an acquisition that nobody waits for could not be undone; its lease will end it",
			"name", a.name, "owner", a.entry.field, "cause", err)
	}
}

// takeBack undoes an acquisition and voids the copies of it that may still be
// under way.
func (a *attempt) takeBack(g granted, within time.Duration) error {
	e := a.entry
	n, d, each := e.left(time.Now())
	args := a.args()
	args.Voided, args.Field, args.Count, args.Lease, args.Leases = g.marker, e.fieldArg, n, d, each
	reply := a.Send(context.WithoutCancel(a.Tasks.Context()), within, a.kind.Release(args))
	e.written = n
	if reply.Err != nil {
		e.written = unknown
	}
	a.heard(a.key, reply)
	return reply.Err
}

// heard wakes the local line itself where no notification will.
func (s *Services) heard(key string, reply script.Reply) {
	if reply.Err != nil {
		return
	}
	mute := reply.Int() == unheard
	if mute {
		s.Muted(key)
	}
	s.Loop.Released(key, !mute && reply.Int() != untold)
}

// Muted notes that a script's PUBLISH was refused.
func (s *Services) Muted(key string) {
	s.mutePubSub.Do(func() {
		s.Log.Warn("holdfast: PUBLISH is refused: waiters learn of a release by polling only; grant this user the lock's channels", "key", key)
	})
}
