// Package lease knows when trust in a lease ends.
package lease

import (
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/script"
)

// Max is the longest lease and wait: a century. It stays below 2^53 ms, which
// a Lua number holds exactly.
const Max = 100 * 365 * 24 * time.Hour

// Round makes whole milliseconds of d, as Redis counts them: up, so that a
// positive lease never becomes none, and at most Max.
func Round(d time.Duration) time.Duration {
	if d > Max {
		d = Max
	}
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

// Check refuses a lease that is zero or negative.
func Check(d time.Duration, what string) error {
	if d <= 0 {
		return errs.Invalid("%s %v is not positive: leave the option out for a lease that is renewed", what, d)
	}
	return nil
}

// Margin is how long before the server may let the key go we stop trusting it:
// 1 % of the lease, at least 10 ms or a quarter of it. A timer that is due at
// the very moment of expiry is late in 1 of 100 trials on an idle machine.
func Margin(d time.Duration) time.Duration {
	return max(d/100, min(10*time.Millisecond, d/4))
}

// Lease is trust in one key until a deadline. The deadline has passed when the
// monotonic or the wall clock says so: a machine that is suspended stops the
// first, and only the second shows it.
type Lease struct {
	*Subject
	Field string // the owner's, in the key
	// Renew gives the key a fresh lease; nil for a lease that isn't renewed.
	Renew  *Renewal
	Holder Holder
	// Watch belongs to the watchdog.
	Watch Watch

	mu       sync.Mutex
	duration time.Duration
	deadline time.Time // a margin before what was asked for is over
	ended    bool
}

// Subject is what is leased. Leases of one thing share it.
type Subject struct {
	Name string // the user's
	Key  string
	Kind string // for events
}

// Holder is who has a lease.
type Holder interface {
	// LeaseEnded is called once, when l is lost, with the reason.
	LeaseEnded(l *Lease, why error)
	// Orphaned reports that nobody is left who could give the hold back.
	Orphaned() bool
}

// Watch is the watchdog's notebook on a lease, guarded by its mutex.
type Watch struct {
	Next  time.Time // when to look at it again
	Place int       // in the heap, from 1; below 0: not in it yet; 0: not watched
	// RenewAt is when a renewal is due. Zero: not renewed.
	RenewAt time.Time
	// Parked: due, and waiting for a place in flight. Only the deadline counts.
	Parked bool
	// Sent counts the renewals under way: more than one if an earlier one got
	// no answer in time.
	Sent     int
	Failures int
	LastErr  error
}

// Renewal is a way of renewing. Leases with the same one share script calls.
type Renewal struct {
	// Call makes the request that gives each of keys a lease of d if its field
	// is still there. It answers 1 or 0 for each.
	Call func(keys, fields []string, d time.Duration) script.Call
}

// Verdict is what became of one renewal.
type Verdict int

// The three verdicts.
const (
	Unknown Verdict = iota // no answer, or a refusal
	Renewed
	Gone // the key is gone, or belongs to another owner
)

// Result is the verdict on one lease.
type Result struct {
	Verdict Verdict
	Asked   time.Time // the new lease counts from here
	Err     error     // why it is Unknown
}

// Extend moves the deadline to a lease of d that was asked for at asked. It
// never moves it back. It reports false if the lease is over.
func (l *Lease) Extend(asked time.Time, d time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	if t := asked.Add(d - Margin(d)); t.After(l.deadline) {
		l.deadline, l.duration = t, d
	}
	return true
}

// Deadline is the moment up to which the hold is certainly ours.
func (l *Lease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

// State answers the deadline of the present lease, how long that is after the lease
// was asked for, and whether the lease is over.
func (l *Lease) State() (deadline time.Time, trust time.Duration, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline, l.duration - Margin(l.duration), l.ended
}

// Duration is the lease that was asked for.
func (l *Lease) Duration() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.duration
}

// Present answers when the present lease was asked for, and how long it is.
func (l *Lease) Present() (asked time.Time, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline.Add(Margin(l.duration) - l.duration), l.duration
}

// Passed reports whether now is past the deadline on either clock.
func (l *Lease) Passed(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return passed(l.deadline, now)
}

func passed(deadline, now time.Time) bool {
	return !now.Before(deadline) || now.UnixNano() >= deadline.UnixNano()
}

// Expire ends the lease if its deadline has passed, and reports whether it is
// over. It may be called from anywhere, at any time.
func (l *Lease) Expire(now time.Time, why error) bool {
	l.mu.Lock()
	if !l.ended && !passed(l.deadline, now) {
		l.mu.Unlock()
		return false
	}
	return l.endLocked(why)
}

// RanOutError is ErrLost for a lease that ended by itself.
type RanOutError struct{ Name string }

func (e *RanOutError) Error() string {
	return fmt.Sprintf("%v: %s: its lease ran out", errs.ErrLost, errs.Quote(e.Name))
}

// Unwrap answers ErrLost.
func (e *RanOutError) Unwrap() error { return errs.ErrLost }

// RanOut is the error of who finds the deadline passed.
func (l *Lease) RanOut() error { return &RanOutError{l.Name} }

// Lose ends the lease whatever its deadline.
func (l *Lease) Lose(why error) {
	l.mu.Lock()
	l.endLocked(why)
}

// endLocked needs mu, and lets it go before it calls out.
func (l *Lease) endLocked(why error) bool {
	first := !l.ended
	l.ended = true
	l.mu.Unlock()
	if first {
		l.Holder.LeaseEnded(l, why)
	}
	return true
}

// Close ends the lease without a loss: the hold was given back.
func (l *Lease) Close() {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
}

// Over reports whether the lease has ended.
func (l *Lease) Over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}
