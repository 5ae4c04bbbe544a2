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
	Name  string `json:"n"`
	Field string `json:"f"`
	Token int64  `json:"t,omitempty"`
}

func (h handle) String() string {
	b, _ := json.Marshal(h) // strings and a number always marshal
	return handlePrefix + base64.RawURLEncoding.EncodeToString(b)
}

// ParseHandle answers the kind and name of the lock that a handle stands for.
func ParseHandle(s string) (kind, name string, err error) {
	h, err := parseHandle(s)
	return h.Kind, h.Name, err
}

func parseHandle(s string) (handle, error) {
	var h handle
	text, ok := strings.CutPrefix(s, handlePrefix)
	b, err := base64.RawURLEncoding.DecodeString(text)
	if !ok || err != nil || json.Unmarshal(b, &h) != nil || h.Field == "" {
		return handle{}, errs.Invalid("this is no handle of a hold: pass the text that Hold.Detach answered")
	}
	return h, nil
}

func (s *Services) detach(r *record) (string, error) {
	e := r.entry
	if s.Tasks.Context().Err() != nil {
		return "", fmt.Errorf("%w: detach %s", errs.ErrClosed, errs.Quote(e.name))
	}
	if !e.lock(nil, time.Now().Add(s.Patience)) {
		return "", e.errTurn(context.Background(), "detach")
	}
	defer e.unlock()
	if n := e.count(); n > 1 {
		return "", errs.Invalid("hold of %s can't be detached: its owner has %d of them; give the inner ones back first", errs.Quote(e.name), n)
	}
	if err := e.take(r, time.Now()); err != nil {
		return "", err
	}
	defer e.exit()
	h := handle{Kind: e.kind.ID(), Name: e.name, Field: s.ClientID + ":" + uuid.NewString(), Token: r.token}
	args := e.args()
	args.Field, args.To, args.Lease = e.fieldArg, h.Field, max(s.Lease, r.lease.Duration())
	reply := s.do(context.Background(), s.Patience, e.kind.Transfer(args))
	switch {
	case reply.Err != nil:
		return "", fmt.Errorf("%w: detach %s: %w", errs.ErrUncertain, errs.Quote(e.name), reply.Err)
	case reply.Int() == notThere:
		return "", (&releasing{Services: s, record: r}).lost()
	}
	return h.String(), nil
}

// Resume takes up the hold that a handle stands for, under ctx's owner.
func (m *Mutex) Resume(ctx context.Context, text string, opts ...Option) (*Hold, error) {
	h, err := parseHandle(text)
	if err != nil {
		return nil, err
	}
	o, err := collect(opts)
	if err != nil {
		return nil, err
	}
	t, err := m.ownerOrMint(ctx)
	if err != nil {
		return nil, err
	}
	if m.Tasks.Context().Err() != nil {
		return nil, fmt.Errorf("%w: resume %s", errs.ErrClosed, errs.Quote(m.name))
	}
	e := m.enter(m.names, t)
	defer e.exit()
	d := m.Lease
	if o.leaseSet {
		d = o.lease
	}
	if !e.lock(ctx.Done(), time.Now().Add(m.Patience)) {
		return nil, e.errTurn(ctx, "resume")
	}
	there := m.args()
	there.Field, there.To, there.Lease = h.Field, e.field, d
	// back makes the handle good again: nobody has the hold.
	back := func(script.Reply) {
		defer e.unlock()
		again := m.args()
		again.Voided, again.Field, again.To, again.Lease = there.Marker, e.fieldArg, h.Field, d
		reply := m.do(context.WithoutCancel(m.Tasks.Context()), m.cleanup(), m.kind.Transfer(again))
		if reply.Err != nil {
			m.Log.Warn("holdfast: a hold that was to be resumed is left to its lease", "name", m.name, "cause", reply.Err)
		}
	}
	r := &record{entry: e, token: h.Token}
	hold := newHold(ctx, r, t)
	reply, ok := task.Leave(m.Tasks, ctx.Done(), func() script.Reply {
		return m.do(ctx, m.Patience, m.kind.Transfer(there))
	}, func(r script.Reply) {
		if r.Err == nil && r.Int() == notThere || r.Err != nil && !r.MaybeRan {
			e.unlock()
			return
		}
		back(r)
	})
	if !ok {
		r.untie()
		return nil, m.gone(ctx, "resume", m.name)
	}
	switch {
	case reply.Err != nil:
		r.untie()
		if !reply.MaybeRan || !m.Tasks.Go(func() { back(reply) }) {
			e.unlock()
		}
		return nil, fmt.Errorf("holdfast: resume %s: %w", errs.Quote(m.name), reply.Err)
	case reply.Int() == notThere:
		r.untie()
		e.unlock()
		return nil, &errs.NotHeldError{Name: m.name, Reason: errs.Lost}
	case !e.add(r, reply.Asked, d, !o.leaseSet):
		r.untie()
		back(reply)
		return nil, fmt.Errorf("%w: resume %s", errs.ErrClosed, errs.Quote(m.name))
	}
	e.unlock()
	return hold, nil
}

// extend gives a hold a lease of at least d.
func (s *Services) extend(ctx context.Context, r *record, d time.Duration) error {
	e := r.entry
	if s.Tasks.Context().Err() != nil {
		return fmt.Errorf("%w: extend %s", errs.ErrClosed, errs.Quote(e.name))
	}
	r.look()
	s.ledger.mu.Lock()
	var err error
	if r.status != held {
		err = r.notHeld()
	}
	s.ledger.mu.Unlock()
	if err != nil {
		return err
	}
	reply, ok := task.Leave(s.Tasks, ctx.Done(), func() script.Reply {
		return s.do(ctx, s.Patience, e.kind.Renewal().Call([]string{e.key}, []string{e.field}, d))
	}, nil)
	switch {
	case !ok:
		return fmt.Errorf("%w: extend %s: %w", errs.ErrUncertain, errs.Quote(e.name), s.gone(ctx, "extend", e.name))
	case reply.Err != nil && reply.MaybeRan:
		return fmt.Errorf("%w: extend %s: %w", errs.ErrUncertain, errs.Quote(e.name), reply.Err)
	case reply.Err != nil:
		return fmt.Errorf("holdfast: extend %s: %w", errs.Quote(e.name), reply.Err)
	}
	if there, _ := reply.Val.([]any); len(there) != 1 || there[0] != int64(1) {
		why := fmt.Errorf("%w: %s: the key is gone or belongs to another owner", errs.ErrLost, errs.Quote(e.name))
		r.lease.Lose(why) // and with it all holds that share it
		return r.notHeldAs(errs.Lost)
	}
	if !r.lease.Extend(reply.Asked, d) {
		s.ledger.mu.Lock()
		defer s.ledger.mu.Unlock()
		return r.notHeld()
	}
	s.Watchdog.Reschedule(r.lease)
	return nil
}
