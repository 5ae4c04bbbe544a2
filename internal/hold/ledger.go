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
)

// status of a record.
type status int

const (
	held status = iota
	givenBack
	lost
	closed
)

// record is the inside of a Hold: what the client knows of it.
type record struct {
	entry *entry
	lease *lease.Lease // shared by the holds of an entry that are renewed
	own   lease.Lease  // lease, if it isn't an earlier record's
	since time.Time    // of the grant
	token int64

	// Guarded by ledger.mu.
	status status
	void   bool // see subject.discount
	ending
}

// ledger is what one client holds, by name and owner. There is one however
// many lock objects: a count in Redis is the number of records here.
type ledger struct {
	// mu guards all entries and records. It is never held over a call to
	// Redis, to the watchdog or to a context. Lock order: watchdog, ledger,
	// lease.
	mu       sync.Mutex
	entries  map[entryKey]*entry
	draining bool // Shutdown has begun: nothing new is recorded
	// empty is closed when the last entry goes; nil if nobody waits for that.
	empty chan struct{}
	// endings of owners whose id was chosen, the oldest first in endingOrder.
	endings     map[entryKey]errs.Reason
	endingOrder []entryKey
}

// entryKey is a names.ledgerKey and a field.
type entryKey struct{ key, field string }

// entry is one owner's business with one name. It exists while it has holds or
// callers.
type entry struct {
	*names
	field    string // the owner's
	fieldArg any    // the same, boxed once

	// The rest is guarded by ledger.mu.

	// owner leads to the token of this owner; fresh does too, until the first
	// renewal: a weak pointer costs more than a short hold should. Until then it may
	// lead to a hold, and to its caller's context, see newHold.
	fresh   *owner.Token
	owner   weak.Pointer[owner.Token]
	chosen  bool // the owner's id is known outside: never orphaned
	callers int
	gone    bool      // out of the ledger, for good
	holds   []*record // in order of acquisition
	kept    *lease.Lease
	// busy: a command is under way. One at a time, so that absolute counts
	// can't overtake each other. waiting are those whose turn comes next.
	busy    bool
	waiting []chan struct{}
	// written is the count that Redis confirmed last; unknown after a command
	// without an answer. It belongs to who has the turn.
	written int
	// queuing is how many calls of the owner wait in a queue in Redis; place is
	// its place there, and belongs to who has the turn.
	queuing int
	place   Place
	// entered is closed when the owner gets in: its other callers needn't wait
	// any more. Made when one of them asks.
	entered chan struct{}

	// The first of holds, and a place for it: one allocation with the entry.
	first record
	room  [1]*record
}

const unknown = -1

// in answers a channel that is closed once the owner holds the name.
func (e *entry) in() <-chan struct{} {
	l := &e.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.entered == nil {
		e.entered = make(chan struct{})
		if len(e.holds) > 0 {
			close(e.entered)
		}
	}
	return e.entered
}

// enter answers the entry of a name and owner, and keeps it until exit. in reports
// whether the owner holds the name, in this mode or another.
func (n *names) enter(t *owner.Token) (e *entry, in bool) {
	l := &n.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	k := entryKey{n.ledgerKey, n.field(t)}
	e = l.entries[k]
	if e == nil {
		if l.entries == nil {
			l.entries = make(map[entryKey]*entry)
		}
		e = &entry{names: n, field: k.field, fieldArg: k.field}
		l.entries[k] = e
	}
	if len(e.holds) == 0 {
		e.fresh, e.chosen = t, t.Chosen()
	} else if t.Chosen() {
		e.chosen = true // the id is known outside, wherever it came from
	}
	e.callers++
	return e, e.countLocked() > 0 || e.inOtherLocked()
}

// stay keeps the entry until another exit.
func (e *entry) stay() {
	e.ledger.mu.Lock()
	defer e.ledger.mu.Unlock()
	e.callers++
}

func (e *entry) exit() {
	l := &e.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	e.callers--
	e.forgetLocked()
}

// forgetLocked takes an entry out that has no more business.
func (e *entry) forgetLocked() {
	if e.callers > 0 || len(e.holds) > 0 || e.gone {
		return
	}
	e.gone = true
	l := &e.ledger
	delete(l.entries, entryKey{e.ledgerKey, e.field})
	if len(l.entries) == 0 && l.empty != nil {
		close(l.empty)
		l.empty = nil
	}
}

// awaitEmpty waits until nobody has business here, for as long as within at
// most.
func (l *ledger) awaitEmpty(ctx context.Context, within time.Duration) {
	l.mu.Lock()
	if len(l.entries) == 0 {
		l.mu.Unlock()
		return
	}
	if l.empty == nil {
		l.empty = make(chan struct{})
	}
	empty := l.empty
	l.mu.Unlock()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-empty:
	case <-ctx.Done():
	case <-timer.C:
	}
}

// count is the number of holds that are alive.
func (e *entry) count() int {
	e.ledger.mu.Lock()
	defer e.ledger.mu.Unlock()
	return e.countLocked()
}

func (e *entry) countLocked() int {
	n := 0
	for _, r := range e.holds {
		if !r.void {
			n++
		}
	}
	return n
}

// grant is what an acquisition got.
type grant struct {
	asked   time.Time // the lease counts from here
	lease   time.Duration
	renewed bool
	token   int64 // 0 if the lock isn't fenced
}

// add records a hold that was granted. It answers nil if the client is being shut
// down: the hold has to be given back.
func (e *entry) add(g grant) *record {
	l := &e.ledger
	l.mu.Lock()
	r := e.addLocked(g)
	l.mu.Unlock()
	if r != nil {
		e.Watchdog.Keep(r.lease)
	}
	return r
}

func (e *entry) addLocked(g grant) *record {
	if e.ledger.draining {
		return nil
	}
	r := &e.first
	if r.entry != nil {
		r = &record{}
	}
	r.entry, r.since, r.token = e, g.asked, g.token
	switch {
	case !g.renewed:
		r.lease = e.newLease(r, g)
	case e.kept == nil || !e.kept.Extend(g.asked, g.lease): // none, or one that was lost
		e.kept = e.newLease(r, g)
		e.kept.Renew = e.kind.Renewal()
		fallthrough
	default:
		r.lease = e.kept
	}
	if e.holds == nil {
		e.holds = e.room[:0]
	}
	e.holds = append(e.holds, r)
	if e.entered != nil && len(e.holds) == 1 {
		close(e.entered)
	}
	return r
}

func (e *entry) newLease(r *record, g grant) *lease.Lease {
	r.own.Subject, r.own.Field, r.own.Holder = &e.leased, e.field, e
	r.own.Extend(g.asked, g.lease)
	return &r.own
}

// LeaseEnded implements lease.Holder.
func (e *entry) LeaseEnded(l *lease.Lease, why error) { e.lose(l, why) }

// Orphaned implements lease.Holder.
func (e *entry) Orphaned() bool {
	e.ledger.mu.Lock()
	defer e.ledger.mu.Unlock()
	if e.fresh != nil {
		e.owner, e.fresh = weak.Make(e.fresh), nil
		return false
	}
	return !e.chosen && e.owner.Value() == nil
}

// tokenLocked is the owner's token, or nil if it is gone.
func (e *entry) tokenLocked() *owner.Token {
	if e.fresh != nil {
		return e.fresh
	}
	return e.owner.Value()
}

// lose ends every hold on a lease that is lost.
func (e *entry) lose(on *lease.Lease, why error) {
	e.loseIf(why, lost, func(r *record) bool { return r.lease == on })
}

// loseAll ends every hold of the entry. Its caller has the entry's turn, so that
// no hold is added which the loss doesn't concern.
func (e *entry) loseAll(why error) {
	e.loseIf(why, lost, func(*record) bool { return true })
}

func (e *entry) loseIf(why error, to status, match func(*record) bool) {
	l := &e.ledger
	l.mu.Lock()
	var over []*record
	e.holds = slices.DeleteFunc(e.holds, func(r *record) bool {
		if !match(r) {
			return false
		}
		r.status = to
		over = append(over, r)
		return true
	})
	for _, r := range over {
		if r.lease == e.kept {
			e.kept = nil
		}
	}
	if len(over) > 0 {
		e.emptiedLocked()
		if to == lost {
			e.rememberLocked(errs.Lost)
		}
	}
	e.forgetLocked()
	l.mu.Unlock()
	for _, r := range over { // first of all: they must not look alive
		r.finish(why)
	}
	for _, r := range over {
		r.lease.Close()
		e.Watchdog.Stop(r.lease)
		if to == lost {
			e.Log.Error("holdfast: hold lost", "name", e.name, "owner", e.field, "why", why)
		}
		r.tellLost(why)
	}
}

// emptiedLocked takes note that holds are gone.
func (e *entry) emptiedLocked() {
	if len(e.holds) == 0 {
		e.entered = nil
	}
}

// take takes a record out because it is being given back: from now on it is
// over here, whatever Redis will answer. The second caller gets the error. The
// first has to call exit. If it wants the turn too, and that is free, it gets it.
func (e *entry) take(r *record, now time.Time, want bool) (turn bool, err error) {
	l := &e.ledger
	l.mu.Lock()
	last, err := e.takeLocked(r, now)
	if err != nil {
		l.mu.Unlock()
		return false, err
	}
	turn = want && e.takeTurnLocked()
	alone := r.finishLocked(errs.ErrReleased)
	l.mu.Unlock()
	if last {
		r.lease.Close()
		e.Watchdog.Stop(r.lease)
	}
	if !alone {
		r.finish(errs.ErrReleased)
	}
	return turn, nil
}

// takeLocked answers whether the record's lease had no other. It may let mu go for a
// moment.
func (e *entry) takeLocked(r *record, now time.Time) (last bool, err error) {
	l := &e.ledger
	if r.status == held && r.lease.Passed(now) {
		l.mu.Unlock()
		r.expire(now) // tells all holds on this lease
		l.mu.Lock()
	}
	if r.status != held {
		err := r.notHeld()
		switch r.status {
		case closed:
			err = fmt.Errorf("%w: the hold of %s ended with it", errs.ErrClosed, errs.Quote(e.name))
		case givenBack:
			err = &takenError{err}
		}
		return false, err
	}
	r.status = givenBack
	e.holds = slices.DeleteFunc(e.holds, func(o *record) bool { return o == r })
	last = !slices.ContainsFunc(e.holds, func(o *record) bool { return o.lease == r.lease })
	if last && r.lease == e.kept {
		e.kept = nil
	}
	e.emptiedLocked()
	e.rememberLocked(errs.GivenBack)
	e.callers++ // until release has sent it
	return last, nil
}

// expire ends the holds whose fixed lease has run out, before others are given back:
// one that is part of a multi lock makes its siblings void, which left must not count.
func (e *entry) expire(now time.Time) {
	l := &e.ledger
	var over []*record
	l.mu.Lock()
	for _, r := range e.holds {
		if r.lease.Renew == nil && r.lease.Passed(now) {
			over = append(over, r)
		}
	}
	l.mu.Unlock()
	for _, r := range over {
		r.expire(now)
	}
}

// left is what stays in Redis after a release: the holds that are alive, and a
// lease for them; for a Mode, a lease for each, too.
func (e *entry) left(now time.Time) (n int, d time.Duration, each []time.Duration) {
	l := &e.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range e.holds {
		if r.void || r.lease.Passed(now) {
			continue // about to be told
		}
		n++
		if r.lease.Renew != nil {
			d = max(d, e.Lease)
		} else {
			d = max(d, r.lease.Duration())
		}
	}
	if e.mode != nil {
		each = e.leasesLocked(now)
	}
	return n, d, each
}

// latest is the owner's latest hold of a name, one that counts if there is one, or
// nil.
func (s *Services) latest(key, field string) *record {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	return s.ledger.latestLocked(key, field)
}

func (l *ledger) latestLocked(key, field string) *record {
	e := l.entries[entryKey{key, field}]
	if e == nil || len(e.holds) == 0 {
		return nil
	}
	for _, r := range slices.Backward(e.holds) {
		if !r.void {
			return r
		}
	}
	return e.holds[len(e.holds)-1]
}

// holders are the entries with holds.
func (s *Services) holders() []*entry {
	l := &s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	var es []*entry
	for _, e := range l.entries {
		if len(e.holds) > 0 {
			es = append(es, e)
		}
	}
	return es
}

// holdsOf are this client's holds of a key.
func (s *Services) holdsOf(key string) []*record {
	l := &s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	var rs []*record
	for _, e := range l.entries {
		if e.key == key {
			rs = append(rs, e.holds...)
		}
	}
	return rs
}

// takenError is ErrNotHeld for a hold that is being given back by somebody else.
type takenError struct{ error }

var errTaken = errors.New("given back by another call")

func (e *takenError) Unwrap() error        { return e.error }
func (e *takenError) Is(target error) bool { return target == errTaken }
