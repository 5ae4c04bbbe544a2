package hold

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/script"
	"github.com/holdfast-go/holdfast/internal/task"
)

// handlePrefix marks and versions a handle.
const handlePrefix = "holdfast1."

// handle is what a detached hold is known by. Its field in Redis belongs to
// nobody but whoever has the handle.
type handle struct {
	Kind  string `json:"k"`
	Name  []byte `json:"n"` // any bytes: JSON strings are UTF-8
	Field string `json:"f,omitempty"`
	Token int64  `json:"t,omitempty"`
	// Members are the handles that a multi lock's is made of.
	Members []string `json:"m,omitempty"`
}

func (h handle) String() string {
	b, _ := json.Marshal(h) // strings and a number always marshal
	return handlePrefix + base64.RawURLEncoding.EncodeToString(b)
}

// ParseHandle answers the kind and name of the lock that a handle stands for.
func ParseHandle(s string) (kind, name string, err error) {
	h, err := parseHandle(s)
	return h.Kind, string(h.Name), err
}

func parseHandle(s string) (handle, error) {
	var h handle
	text, ok := strings.CutPrefix(s, handlePrefix)
	b, err := base64.RawURLEncoding.DecodeString(text)
	if !ok || err != nil || json.Unmarshal(b, &h) != nil || len(h.Members) == 0 && (h.Field == "" || h.Kind == GroupKind) {
		return handle{}, errs.Invalid("this is no handle of a hold: pass the text that Hold.Detach answered")
	}
	return h, nil
}

// detach passes the lock from the owner's field to one that only the handle
// names: to, or a new one. Until Redis has answered the hold is as good as before, but for its
// renewal, which would find the old field gone.
func (s *Services) detach(r *record, to string) (string, error) {
	e := r.entry
	if s.Tasks.Context().Err() != nil {
		return "", fmt.Errorf("%w: detach %s", errs.ErrClosed, errs.Quote(e.name))
	}
	if !e.takeTurn(nil, time.Now().Add(s.Patience)) {
		return "", e.errTurn(context.Background(), "detach")
	}
	keepTurn := false
	defer func() {
		if !keepTurn {
			e.giveTurn()
		}
	}()
	if err := r.alive(); err != nil {
		return "", err
	}
	if err := e.detachable(); err != nil {
		return "", err
	}
	if to == "" {
		to = e.fieldOf(s.ClientID + ":" + uuid.NewString())
	}
	s.Watchdog.Stop(r.lease)
	h := handle{Kind: e.kind.ID(), Name: []byte(e.name), Field: to, Token: r.token}
	args := e.args()
	args.Field, args.To, args.Count, args.Lease = e.fieldArg, h.Field, 1, max(s.Lease, r.lease.Duration())
	reply := s.Send(context.Background(), s.Patience, e.kind.Transfer(args))
	switch {
	case script.IsWrongType(reply.Err), reply.Err == nil && reply.Int() == notThere:
		e.loseAll(fmt.Errorf("%w: %s: the key was gone at a detach", errs.ErrLost, errs.Quote(e.name)))
		return "", r.notHeldAs(errs.Lost)
	case reply.Err == nil && reply.Int() == upgrade:
		s.Watchdog.Keep(r.lease)
		return "", errBoth(e.name)
	case reply.Err != nil && !reply.MaybeRan:
		s.Watchdog.Keep(r.lease)
		return "", fmt.Errorf("holdfast: detach %s: %w", errs.Quote(e.name), reply.Err)
	}
	e.written = 0
	_, err := e.take(r, time.Now(), false)
	if err == nil {
		defer e.exit()
		r.tellReleased(reply.Err)
	}
	if reply.Err != nil {
		e.written = unknown
		keepTurn = s.Tasks.Go(func() {
			defer e.giveTurn()
			e.abandon(args.Marker, h.Field, args.Lease)
		})
		return "", fmt.Errorf("%w: detach %s: %w", errs.ErrUncertain, errs.Quote(e.name), reply.Err)
	}
	return h.String(), nil // the handle is good, whatever became of the hold here
}

// detachable answers why no hold of an entry can be detached, or nil.
func (e *entry) detachable() error {
	if n := e.count(); n > 1 {
		return errs.Invalid("hold of %s can't be detached: its owner has %d of them; give the inner ones back first", errs.Quote(e.name), n)
	}
	return nil
}

// abandon gives back what a transfer without an answer may have left, under
// whichever of the two fields.
func (e *entry) abandon(voided any, to string, d time.Duration) {
	for _, field := range []any{e.fieldArg, to} {
		args := e.args()
		args.Voided, args.Field = voided, field
		reply := e.Send(context.WithoutCancel(e.Tasks.Context()), max(e.Patience, d), e.kind.Release(args))
		if reply.Err != nil {
			e.Log.Warn("holdfast: a detach without an answer could not be undone; the lease ends the hold", "name", e.name, "cause", reply.Err)
			return
		}
		e.heard(e.key, reply)
	}
}

// alive answers why a hold isn't, or nil.
func (r *record) alive() error {
	r.look()
	r.entry.ledger.mu.Lock()
	defer r.entry.ledger.mu.Unlock()
	if r.status != held {
		return r.notHeld()
	}
	return nil
}

// isThere reports whether an extend or transfer script found the hold.
func isThere(answer any) bool { return answer != int64(notThere) }

// TakeHandle waits until no other call of this client is at a handle, also behind
// a caller who left: meanwhile it looks as if somebody had taken it up for good.
// give ends that, and must be called.
func (s *Services) TakeHandle(ctx context.Context, what, name, text string) (give func(), err error) {
	e := s.enterHandle(name, text)
	defer e.exit()
	switch {
	case e.takeTurn(ctx.Done(), time.Now().Add(s.Patience)):
		return e.giveTurn, nil
	case ctx.Err() == nil && s.Tasks.Context().Err() == nil:
		return nil, fmt.Errorf("%w: %s %s: an earlier call with this handle has no answer yet", errs.ErrUnavailable, what, errs.Quote(name))
	}
	return nil, s.Gone(ctx, what, name, nil)
}

// enterHandle answers the entry of a handle, which has a turn and nothing else. It
// can't be a lock's: no key is empty.
func (s *Services) enterHandle(name, text string) *entry {
	l := &s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	k := entryKey{field: text}
	e := l.entries[k]
	if e == nil {
		if l.entries == nil {
			l.entries = make(map[entryKey]*entry)
		}
		e = &entry{names: &names{Services: s, name: name}, field: text}
		l.entries[k] = e
	}
	e.callers++
	return e
}

// resuming is one call of Resume.
type resuming struct {
	*names
	entry *entry
	h     handle
	args  Args
	// give gives the handle back, which is taken before the owner's turn.
	give func()
}

// over gives back what keeps other calls waiting.
func (q *resuming) over() {
	q.entry.giveTurn()
	q.give()
}

// Resume takes up the hold that a handle stands for, under ctx's owner.
func Resume(ctx context.Context, m *Mutex, text string, opts ...Option) (_ *Hold, err error) {
	if ctx == nil {
		return nil, ErrNilContext("resume", m.name)
	}
	h, err := parseHandle(text)
	if err != nil {
		return nil, err
	}
	o, err := Collect(opts)
	if err != nil {
		return nil, err
	}
	if m.err != nil {
		return nil, m.err
	}
	hold, err := newHold(ctx, !o.LeaseSet)
	if err != nil {
		return nil, err
	}
	if m.Tasks.Context().Err() != nil {
		return nil, fmt.Errorf("%w: resume %s", errs.ErrClosed, errs.Quote(m.name))
	}
	e, _ := m.enter(hold.ctx.token)
	defer e.exit()
	began := m.clock()
	defer func() { e.tellAsked(began, err) }()
	give, err := m.TakeHandle(ctx, "resume", m.name, text)
	if err != nil {
		return nil, err
	}
	if !e.takeTurn(ctx.Done(), time.Now().Add(m.Patience)) {
		give()
		return nil, e.errTurn(ctx, "resume")
	}
	q := &resuming{names: m.names, entry: e, h: h, args: m.args(), give: give}
	q.args.Field, q.args.To, q.args.Count, q.args.Lease = h.Field, e.field, e.count()+1, m.Lease
	if o.LeaseSet {
		q.args.Lease = o.Lease
	}
	reply, ok := task.Leave(m.Tasks, ctx.Done(), func() script.Reply {
		return m.Send(ctx, m.Patience, m.kind.Transfer(q.args).Replicated(isThere))
	}, q.settle)
	if !ok {
		return nil, m.Gone(ctx, "resume", m.name, nil)
	}
	switch {
	case script.IsWrongType(reply.Err), reply.Err == nil && reply.Int() == notThere:
		q.over()
		return nil, &errs.NotHeldError{Name: m.name, Reason: errs.Lost}
	case reply.Err != nil:
		q.settleBehind(reply)
		return nil, fmt.Errorf("holdfast: resume %s: %w", errs.Quote(m.name), reply.Err)
	}
	e.written = q.args.Count
	if reply.Int() != grantedAgain {
		// The field was another's, so what this owner thought to have is lost.
		e.loseAll(fmt.Errorf("%w: %s: a detached hold had it", errs.ErrLost, errs.Quote(m.name)))
		e.written = 1
	}
	r := e.add(grant{asked: reply.Asked, lease: q.args.Lease, renewed: !o.LeaseSet, token: h.Token})
	if r == nil {
		q.settleBehind(reply)
		return nil, fmt.Errorf("%w: resume %s", errs.ErrClosed, errs.Quote(m.name))
	}
	hold.begin(r)
	q.over()
	return hold, nil
}

// settle makes the handle good again if nobody has the hold, and lets other calls
// go on.
func (q *resuming) settle(reply script.Reply) {
	defer q.over()
	if reply.Err == nil && reply.Int() == notThere || reply.Err != nil && !reply.MaybeRan {
		return
	}
	again := q.names.args()
	again.Voided, again.Field, again.To, again.Count, again.Lease = q.args.Marker, q.entry.fieldArg, q.h.Field, 1, q.args.Lease
	_, _, again.Leases = q.entry.left(time.Now())
	back := q.Send(context.WithoutCancel(q.Tasks.Context()), max(q.Patience, q.args.Lease), q.kind.Transfer(again))
	q.entry.written = unknown
	if back.Err != nil {
		q.Log.Warn("holdfast: a hold that was to be resumed is left to its lease", "name", q.name, "cause", back.Err)
	}
}

// settleBehind is settle behind the caller's back.
func (q *resuming) settleBehind(reply script.Reply) {
	if !q.Tasks.Go(func() { q.settle(reply) }) {
		q.over()
	}
}

// extend gives a hold a lease of at least d.
func (s *Services) extend(ctx context.Context, r *record, d time.Duration) error {
	e := r.entry
	if s.Tasks.Context().Err() != nil {
		return fmt.Errorf("%w: extend %s", errs.ErrClosed, errs.Quote(e.name))
	}
	if !e.takeTurn(ctx.Done(), time.Now().Add(s.Patience)) {
		return e.errTurn(ctx, "extend")
	}
	if err := r.alive(); err != nil {
		e.giveTurn()
		return err
	}
	args := e.args()
	args.Field, args.Lease = e.fieldArg, d
	call := e.kind.Extend(args).Replicated(isThere)
	// settle sees to it that no copy comes late, after this hold.
	settle := func(reply script.Reply) {
		defer e.giveTurn()
		if reply.Err != nil && reply.MaybeRan {
			s.Send(context.WithoutCancel(s.Tasks.Context()), max(s.Patience, s.Lease), call.Resent())
		}
	}
	reply, ok := task.Leave(s.Tasks, ctx.Done(), func() script.Reply { return s.Send(ctx, s.Patience, call) }, settle)
	switch {
	case !ok:
		return fmt.Errorf("%w: extend %s: %w", errs.ErrUncertain, errs.Quote(e.name), s.Gone(ctx, "extend", e.name, nil))
	case reply.Err != nil && reply.MaybeRan:
		if !s.Tasks.Go(func() { settle(reply) }) {
			e.giveTurn()
		}
		return fmt.Errorf("%w: extend %s: %w", errs.ErrUncertain, errs.Quote(e.name), reply.Err)
	}
	defer e.giveTurn()
	switch {
	case script.IsWrongType(reply.Err), reply.Err == nil && reply.Int() == notThere:
		e.loseAll(fmt.Errorf("%w: %s: the key is gone or belongs to another owner", errs.ErrLost, errs.Quote(e.name)))
		return r.notHeldAs(errs.Lost)
	case reply.Err != nil:
		return fmt.Errorf("holdfast: extend %s: %w", errs.Quote(e.name), reply.Err)
	case !r.lease.Extend(reply.Asked, d):
		return r.alive()
	}
	s.Watchdog.Reschedule(r.lease)
	return nil
}
