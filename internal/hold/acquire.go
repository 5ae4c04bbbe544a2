package hold

import (
	"context"
	"errors"
	"fmt"
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
	asked   time.Time // of the grant
	token   int64     // that the grant carries, if the lock is fenced
	failure script.Failure
	queue   queue
}

// granted is what an acquire script was answered.
type granted struct {
	reply  script.Reply
	token  int64
	marker any // of the request
	before int // holds that the owner had when it was asked
}

func (m *Mutex) acquire(ctx context.Context, opts []Option, forever bool) (*Hold, error) {
	if ctx == nil {
		return nil, ErrNilContext("lock", m.name)
	}
	o, err := Collect(opts)
	if err != nil {
		return nil, err
	}
	t, err := m.ownerOrMint(ctx)
	if err != nil {
		return nil, err
	}
	e := m.enter(t)
	defer e.exit()

	began := m.clock()
	a := &attempt{Mutex: m, entry: e, owner: t, lease: m.Lease, renewed: true}
	if o.LeaseSet {
		a.lease, a.renewed = o.Lease, false
	}
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
	a.join(&spec)
	if e.count() > 0 || m.kind.Queues() || e.inOther() {
		spec.Line = "" // a re-entry must not stand behind those it keeps out
	}
	r := &record{entry: e}
	h := newHold(ctx, r, t)
	err = m.Loop.Acquire(ctx, spec)
	a.quit(ctx, err == nil)
	if err != nil {
		a.leave(ctx, err)
		e.tellAsked(began, err)
		return nil, err
	}
	r.token = a.token
	if !e.add(r, a.asked, a.lease, a.renewed) {
		a.settleBehind(granted{reply: script.Reply{Err: errs.ErrClosed, MaybeRan: true}})
		err := fmt.Errorf("%w: %s", errs.ErrClosed, errs.Quote(m.name))
		e.tellAsked(began, err)
		return nil, err
	}
	e.giveTurn()
	e.tellAsked(began, nil)
	return h, nil
}

func (m *Mutex) ownerOrMint(ctx context.Context) (*owner.Token, error) {
	if m.err != nil {
		return nil, m.err
	}
	if t := owner.From(ctx); t != nil {
		return t, t.Check()
	}
	return owner.Mint(), nil
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
		g = a.ask(ctx, until, place)
	} else {
		q := &question{attempt: a, ctx: ctx, until: until, place: place}
		if !a.Tasks.Call(ctx.Done(), q) {
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
func (q *question) Run() { q.granted = q.ask(q.ctx, q.until, q.place) }

// Abandoned implements task.Op.
func (q *question) Abandoned() { q.settle(q.granted) }

// ask sends the acquire script, and again if its grant came too late to trust.
func (a *attempt) ask(ctx context.Context, until time.Time, place Place) granted {
	stale := false
	for i := 1; ; i++ {
		args := a.args()
		g := granted{marker: args.Marker, before: a.entry.count()}
		args.Field, args.Count, args.Lease, args.Waits, args.Place = a.entry.fieldArg, g.before+1, a.lease, a.waits, place
		a.fence(&args)
		g.reply, g.token = readToken(a.Runner.Do(ctx, time.Now(), until, a.kind.Acquire(args).Noting(&a.failure).Replicated(isGrant)))
		if g.reply.Err != nil {
			a.entry.written = unknown
			g.reply.MaybeRan = g.reply.MaybeRan || g.reply.HalfRan || stale // the one before was granted
			if errors.Is(g.reply.Err, errs.ErrNotReplicated) {
				// Redis answers: nothing is left when the caller learns of it.
				g.reply.MaybeRan = a.takeBack(g, a.Patience) != nil
			}
			return g
		}
		stale = g.isGrant() && !time.Now().Before(g.reply.Asked.Add(a.lease-lease.Margin(a.lease)))
		if !stale || i == staleTries || a.lease < shortestTrue || ctx.Err() != nil {
			return g
		}
	}
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
