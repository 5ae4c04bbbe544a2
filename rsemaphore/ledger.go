package rsemaphore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"weak"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/script"
)

// ledger is the permits that one client has, however many objects took them.
type ledger struct {
	*hold.Services

	// mu guards the records too. It is never held over a call to Redis, to the
	// watchdog or to a context. Lock order: watchdog, ledger, lease.
	mu       sync.Mutex
	records  map[permitKey]*record
	draining bool // Shutdown or Close has begun: nothing new is recorded
}

type permitKey struct {
	key string
	id  id
}

var _ hold.Keeper = (*ledger)(nil)

// ledgerOf answers the client's ledger.
func ledgerOf(s *hold.Services) *ledger {
	return s.Keeper("permits", func() hold.Keeper {
		return &ledger{Services: s, records: make(map[permitKey]*record)}
	}).(*ledger)
}

// status of a record.
type status int

const (
	held status = iota
	givenBack
	lost
	closed
)

// record is what the client knows of a permit. Nothing in it leads to the Permit,
// so that one which nobody can give back any more is collected.
type record struct {
	*expirable
	id    id
	lease lease.Lease
	since time.Time

	// Guarded by ledger.mu. end, free and tie are of the permit's context, if
	// somebody has asked for it.
	status status
	cause  error // why it is over
	cancel context.CancelCauseFunc
	free   context.CancelFunc // of the deadline under it; may be nil
	tie    weak.Pointer[tie]
	// fresh leads to the Permit until the first renewal: a weak pointer costs more
	// than a short permit should.
	fresh  *Permit
	permit weak.Pointer[Permit]
}

// add records permits that were granted: a lease of d, asked for at asked. It
// answers false if the client is being shut down: they have to be given back.
func (l *ledger) add(ctx context.Context, e *expirable, ids []id, asked time.Time, d time.Duration, renewed bool) ([]*Permit, bool) {
	permits := make([]*Permit, len(ids))
	l.mu.Lock()
	if l.draining {
		l.mu.Unlock()
		return nil, false
	}
	for n, i := range ids {
		r := &record{expirable: e, id: i, since: asked}
		p := &Permit{record: r}
		p.ctx.Context, p.ctx.record = ctx, r
		r.lease.Subject, r.lease.Field, r.lease.Holder = &e.leased, i.String(), r
		if renewed {
			r.lease.Renew = renewal
		}
		r.lease.Extend(asked, d)
		r.fresh = p
		l.records[r.key()] = r
		permits[n] = p
	}
	l.mu.Unlock()
	for _, p := range permits {
		l.Watchdog.Keep(&p.record.lease)
	}
	return permits, true
}

func (r *record) key() permitKey { return permitKey{r.lease.Key, r.id} }

// find answers the records that there are of ids.
func (l *ledger) find(key string, ids []id) []*record {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []*record
	for _, i := range ids {
		if r := l.records[permitKey{key, i}]; r != nil {
			found = append(found, r)
		}
	}
	return found
}

// findOne is find for one; nil if there is none.
func (l *ledger) findOne(key string, i id) *record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.records[permitKey{key, i}]
}

// LeaseEnded implements lease.Holder.
func (r *record) LeaseEnded(_ *lease.Lease, why error) { r.end(lost, why) }

// Orphaned implements lease.Holder.
func (r *record) Orphaned() bool {
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	if r.fresh != nil {
		r.permit, r.fresh = weak.Make(r.fresh), nil
		return false
	}
	return r.permit.Value() == nil
}

// end ends a permit here, and reports whether it did: only the first call does.
func (r *record) end(to status, why error) bool {
	l := r.ledger
	l.mu.Lock()
	if r.status != held {
		l.mu.Unlock()
		return false
	}
	r.status, r.fresh = to, nil
	delete(l.records, r.key())
	l.mu.Unlock()

	r.finish(why) // first of all: it must not look alive
	r.lease.Close()
	l.Watchdog.Stop(&r.lease)
	if to != givenBack {
		r.tellLost(why)
	}
	if to == lost {
		l.Log.Error("holdfast: permit lost", "name", r.lease.Name, "permit", r.lease.Field, "why", why)
	}
	return true
}

// notHeld is the error of a permit that is over, or nil.
func (r *record) notHeld() error {
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	reason := errs.GivenBack
	switch r.status {
	case held:
		return nil
	case closed:
		return fmt.Errorf("%w: permit %v of %s ended with it", errs.ErrClosed, r.id, errs.Quote(r.lease.Name))
	case lost:
		reason = errs.Lost
	case givenBack:
	}
	return fmt.Errorf("permit %v: %w", r.id, &errs.NotHeldError{Name: r.lease.Name, Reason: reason})
}

// look ends the permit if its deadline has passed.
func (r *record) look() {
	if now := time.Now(); r.lease.Passed(now) {
		why := fmt.Errorf("%w: %s: the lease of permit %v ran out", errs.ErrLost, errs.Quote(r.lease.Name), r.id)
		r.lease.Expire(now, why)
		r.finish(why) // whoever ends the lease may not have come to us yet
	}
}

// take refuses all that are to come and answers the records that there are.
func (l *ledger) take() []*record {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.draining = true
	all := make([]*record, 0, len(l.records))
	for _, r := range l.records {
		all = append(all, r)
	}
	return all
}

// Drain implements hold.Keeper.
func (l *ledger) Drain(ctx context.Context) error {
	type group struct {
		*expirable
		ids     []id
		records []*record
	}
	groups := make(map[string]*group)
	var failed []error
	for _, r := range l.take() {
		if ctx.Err() != nil {
			failed = append(failed, fmt.Errorf("%w: permit %v of %s is left to its lease: %w", errs.ErrUncertain, r.id, errs.Quote(r.lease.Name), script.ContextError(ctx)))
			continue
		}
		if !r.end(givenBack, errs.ErrReleased) {
			continue
		}
		g := groups[r.lease.Key]
		if g == nil {
			g = &group{expirable: r.expirable}
			groups[r.lease.Key] = g
		}
		g.ids, g.records = append(g.ids, r.id), append(g.records, r)
	}
	for _, g := range groups {
		for len(g.ids) > 0 {
			n := min(len(g.ids), maxAtOnce)
			_, err := g.release(ctx, false, g.ids[:n], false)
			if err != nil {
				failed = append(failed, err)
			}
			for _, r := range g.records[:n] {
				r.tellReleased(err)
			}
			g.ids, g.records = g.ids[n:], g.records[n:]
		}
	}
	return errors.Join(failed...)
}

// Abandon implements hold.Keeper.
func (l *ledger) Abandon() {
	for _, r := range l.take() {
		r.end(closed, errs.ErrClosed)
	}
}
