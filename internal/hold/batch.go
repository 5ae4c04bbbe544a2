package hold

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/keys"
	"github.com/holdfast-go/holdfast/internal/owner"
	"github.com/holdfast-go/holdfast/internal/script"
)

// Batched is a kind several locks of which can be taken, and given back, in one
// script call.
type Batched interface {
	Kind
	// AcquireAll answers as multi_acquire.lua does, ReleaseAll as
	// multi_release.lua. The first of each has the keys of all.
	AcquireAll(each []Args) script.Call
	ReleaseAll(each []Args) script.Call
	// Batches is the ID of the kind that these are made for. One that embeds it
	// and does something else has another.
	Batches() string
}

// maxBatch bounds a script call, which keeps the server from everybody else.
const maxBatch = 100

// batched answers the kind of n if its locks can be taken together, or nil.
func (n *names) batched() Batched {
	if b, ok := n.kind.(Batched); ok && b.Batches() == b.ID() {
		return b
	}
	return nil
}

// beside reports whether two names may stand in one script call.
func (n *names) beside(o *names) bool {
	return n.Services == o.Services && n.kind.ID() == o.kind.ID() && (!n.Runner.Cluster() || keys.Slot(n.key) == keys.Slot(o.key))
}

// argsOf are the arguments of a request on several entries of one owner.
func argsOf(es []*entry) []Args {
	each := make([]Args, len(es))
	for i, e := range es {
		each[i] = Args{Keys: script.Keys{Key: e.keyArg}, Channel: e.channelArg, Field: e.fieldArg}
	}
	first := &each[0].Keys
	first.Marker = es[0].Runner.NewMarker(es[0].marker)
	for _, e := range es[1:] {
		first.More = append(first.More, e.keyArg)
	}
	return each
}

// batch is one try to take several locks in one script call.
type batch struct {
	*Services
	name    string // of them all, for errors
	kind    Batched
	entries []*entry // in the order of their keys: so that turns can't deadlock
	lease   time.Duration
	renewed bool
	began   time.Time // for events
	failure script.Failure
}

// answer is what multi_acquire.lua said.
type answer struct {
	script.Reply
	marker any // of the request
	before []int
	at     int // the lock that refused
	what   int64
}

func (a answer) granted() bool { return a.Err == nil && a.what == grantedFirst }

// isGrantOfAll reports whether multi_acquire.lua's answer is a grant.
func isGrantOfAll(answer any) bool { return answer == int64(grantedFirst) }

// Answers of multi_acquire.lua about one lock, beside those of acquire.lua.
const (
	gone      = 7 // the owner isn't in it, although it should be
	otherType = 6
)

// takeAll asks once for all of locks, which are beside each other, in the order
// of their keys. Refused, it answers which one did.
func takeAll(ctx context.Context, t *owner.Token, name string, locks []*Mutex, o Options) (holds []*Hold, at int, err error) {
	s := locks[0].Services
	b := &batch{Services: s, name: name, kind: locks[0].batched(), lease: s.Lease, renewed: true, began: s.clock()}
	if o.LeaseSet {
		b.lease, b.renewed = o.Lease, false
	}
	if err := s.Loop.Ended(ctx, name); err != nil {
		return nil, 0, err
	}
	for _, m := range locks {
		e, _ := m.enter(t)
		defer e.exit()
		b.entries = append(b.entries, e)
	}
	defer func() {
		if err != nil { // of the one that refused; the others weren't asked
			b.entries[at].tellAsked(b.began, err)
		}
	}()
	until := time.Now().Add(s.Patience)
	for i, e := range b.entries {
		if !e.takeTurn(ctx.Done(), until) {
			giveTurns(b.entries[:i])
			return nil, i, e.errTurn(ctx, "lock")
		}
		if locks[i].nonReentrant && e.count() > 0 {
			giveTurns(b.entries[:i+1])
			return nil, i, fmt.Errorf("%w: %s, and this lock is not re-entrant", errs.ErrReentry, errs.Quote(e.name))
		}
	}
	q := &batchQuestion{batch: b, ctx: ctx, until: until}
	if ctx.Done() == nil {
		q.Run()
	} else if !s.Tasks.Call(ctx.Done(), q) {
		return nil, 0, s.Gone(ctx, "lock", name, &b.failure)
	}
	if a := q.answer; !a.granted() {
		b.settleBehind(a)
		return nil, a.at, b.refusal(ctx, a)
	}
	return b.record(ctx, t, q.answer)
}

func giveTurns(es []*entry) {
	for _, e := range es {
		e.giveTurn()
	}
}

// batchQuestion asks for a caller who may leave.
type batchQuestion struct {
	*batch
	ctx   context.Context //nolint:containedctx // lives as long as the call
	until time.Time
	answer
}

// Run implements task.Op.
func (q *batchQuestion) Run() { q.answer = q.ask(q.ctx, q.until) }

// Abandoned implements task.Op.
func (q *batchQuestion) Abandoned() { q.settle(q.answer) }

// ask sends the script, and again each time that it finds a hold of the owner's
// gone which the ledger still counted on.
func (b *batch) ask(ctx context.Context, until time.Time) answer {
	resent := false
	for {
		each := argsOf(b.entries)
		a := answer{marker: each[0].Marker, before: make([]int, len(each))}
		for i, e := range b.entries {
			a.before[i] = e.count()
			each[i].Count, each[i].Lease = a.before[i]+1, b.lease
		}
		a.Reply = b.Runner.Do(ctx, time.Now(), until, b.kind.AcquireAll(each).Noting(&b.failure).Replicated(isGrantOfAll))
		a.MaybeRan = a.MaybeRan || a.HalfRan || resent && a.Err != nil
		a.Resent = a.Resent || resent
		resent = a.Resent
		if a.Err != nil {
			for _, e := range b.entries {
				e.written = unknown
			}
			if errors.Is(a.Err, errs.ErrNotReplicated) && b.takeBack(a, b.Patience) == nil {
				// Redis answers: nothing is left when the caller learns of it.
				a.MaybeRan, a.Resent = false, false
			}
			return a
		}
		if a.what, a.at = a.Int(), 0; a.what == grantedFirst {
			return a
		}
		a.at, a.what = readPlace(a.Val, len(b.entries))
		switch {
		case a.what == 0:
			a.Err = fmt.Errorf("%w: multi_acquire.lua answered %v", errs.ErrUnavailable, a.Val)
			a.MaybeRan = true
			return a
		case a.before[a.at] == 0 || a.what == foreignHash || a.what == otherType:
			return a
		}
		// The owner is not in it, whoever else is.
		e := b.entries[a.at]
		if a.what != gone {
			e.loseAll(fmt.Errorf("%w: %s: it belonged to another owner when this one entered again", errs.ErrLost, errs.Quote(e.name)))
			return a
		}
		e.loseAll(fmt.Errorf("%w: %s: the key was gone when the owner entered again", errs.ErrLost, errs.Quote(e.name)))
	}
}

// readPlace reads '<lock, from 1>:<answer>'.
func readPlace(val any, n int) (at int, what int64) {
	text, _ := val.(string)
	where, told, _ := strings.Cut(text, ":")
	at, err1 := strconv.Atoi(where)
	what, err2 := strconv.ParseInt(told, 10, 64)
	if err1 != nil || err2 != nil || at < 1 || at > n {
		return 0, 0
	}
	return at - 1, what
}

// refusal is the error of a request that was not granted.
func (b *batch) refusal(ctx context.Context, a answer) error {
	e := b.entries[a.at]
	switch {
	case a.Err != nil:
		return fmt.Errorf("holdfast: lock %s: %w", errs.Quote(b.name), a.Err)
	case a.what == foreignHash:
		return b.InvalidKey(ctx, e.name, e.key, otherHash)
	case a.what == otherType:
		return b.InvalidKey(ctx, e.name, e.key, "")
	case a.what == refusedEver:
		return &errs.NotAcquiredError{Name: e.name, Remaining: -1}
	}
	return &errs.NotAcquiredError{Name: e.name, Remaining: time.Duration(a.what-refusedFor) * time.Millisecond}
}

// record enters a grant into the ledger.
func (b *batch) record(ctx context.Context, t *owner.Token, a answer) ([]*Hold, int, error) {
	holds := make([]*Hold, len(b.entries))
	for i, e := range b.entries {
		holds[i] = holdOf(ctx, t)
		e.written = a.before[i] + 1
		if r := e.add(grant{asked: a.Asked, lease: b.lease, renewed: b.renewed}); r != nil {
			holds[i].begin(r)
			continue
		}
		for _, h := range holds[:i] {
			if _, err := h.record.entry.take(h.record, time.Now(), false); err == nil {
				h.record.entry.exit()
			}
		}
		b.settleBehind(a)
		return nil, i, fmt.Errorf("%w: %s", errs.ErrClosed, errs.Quote(b.name))
	}
	giveTurns(b.entries)
	for _, e := range b.entries {
		e.tellAsked(b.began, nil)
	}
	return holds, 0, nil
}

// settle ends a request that nobody waits for, and gives the turns back.
func (b *batch) settle(a answer) {
	defer giveTurns(b.entries)
	// An earlier copy may have been granted what the last one was refused.
	if !a.granted() && !a.MaybeRan && !a.Resent {
		return
	}
	if err := b.takeBack(a, max(b.Patience, b.lease)); err != nil && !errors.Is(err, errs.ErrClosed) {
		b.Log.Warn("holdfast: an acquisition that nobody waits for could not be undone; its lease will end it",
			"name", b.name, "owner", b.entries[0].field, "cause", err)
	}
}

// takeBack undoes a request and voids the copies of it that may still be under
// way.
func (b *batch) takeBack(a answer, within time.Duration) error {
	each := argsOf(b.entries)
	each[0].Voided = a.marker
	for i, e := range b.entries {
		each[i].Count, each[i].Lease, _ = e.left(time.Now())
	}
	reply := b.Send(context.WithoutCancel(b.Tasks.Context()), within, b.kind.ReleaseAll(each))
	for i, e := range b.entries {
		e.written = each[i].Count
		if reply.Err != nil {
			e.written = unknown
		}
		b.heard(e.key, replyOf(reply, i))
	}
	return reply.Err
}

// settleBehind is settle on a goroutine of its own, if there is something to do.
func (b *batch) settleBehind(a answer) {
	needless := !a.granted() && !a.MaybeRan && !a.Resent
	if needless || !b.Tasks.Go(func() { b.settle(a) }) {
		giveTurns(b.entries)
	}
}

// replyOf is what an answer of multi_release.lua says of its i-th lock, as
// release.lua would.
func replyOf(reply script.Reply, i int) script.Reply {
	if reply.Err != nil {
		return reply
	}
	told, _ := reply.Val.(string)
	reply.Val = int64(notThere)
	switch {
	case i >= len(told):
		reply.Err = fmt.Errorf("%w: multi_release.lua answered %v", errs.ErrUnavailable, told)
	case told[i] == 'y':
		reply.Val = int64(1)
	case told[i] == 'u':
		reply.Val = int64(unheard)
	case told[i] == 's':
		reply.Val = int64(untold)
	}
	return reply
}
