package holdfast

import (
	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/event"
)

// What an observer is told; see WithObserver.
type (
	// Event is one of Acquired, Refused, Released, HoldLost, Renewed and
	// RenewalFailed. About says what it happened to.
	Event = event.Event
	// Subject is what an event is about. Fields, all strings: Name; Kind, such as
	// "lock" or "fenced"; Owner, the holder as it stands in Redis, or the id of a
	// permit, empty where nobody got that far. Each event embeds one.
	Subject = event.Subject

	// Acquired says: a hold or permit was granted. Waited time.Duration is
	// the time from the call to the grant.
	Acquired = event.Acquired
	// Refused says: an acquisition ended without a grant. Waited time.Duration is the
	// time from the call to its end; Err error is what the caller is told.
	Refused = event.Refused
	// Released says: a hold or permit was given back. Held time.Duration is the time
	// from the grant; Err error says why it isn't certain that Redis knows, nil if it
	// does. Detach counts as well.
	Released = event.Released
	// HoldLost says: a hold or permit ended without its holder's doing. Held
	// time.Duration is the time from the grant; Cause error is that of Hold.Context:
	// ErrLost, or ErrClosed where Close left it to expire.
	HoldLost = event.HoldLost
	// Renewed says: a lease was renewed. Until time.Time is when it ends unless it is
	// renewed again.
	Renewed = event.Renewed
	// RenewalFailed says: a renewal got no answer, was refused, or wasn't confirmed by
	// replicas; Err error says which. It is tried again until Until time.Time; then the
	// hold is lost.
	RenewalFailed = event.RenewalFailed
)

// WithObserver has f told what becomes of holds and permits: for metrics and
// traces. Default: nobody is told, at no cost.
//
//	switch e := e.(type) {
//	case holdfast.Acquired:      e.Waited, from the call to the grant
//	case holdfast.Refused:       e.Waited, e.Err; nothing is held
//	case holdfast.Released:      e.Held; e.Err if it isn't certain that Redis knows
//	case holdfast.HoldLost:      e.Held, e.Cause
//	case holdfast.Renewed:       e.Until, when the lease ends
//	case holdfast.RenewalFailed: e.Err, e.Until; it is tried again until then
//	}
//	e.About() // Name, Kind, Owner
//
// Each Acquired is followed by one Released or one HoldLost, at the latest at Close.
// Locks of a MultiLock are told of one by one; of permits, Released is told before
// Redis has answered.
// f is called on the goroutine on which it happened, under no lock of holdfast,
// from several goroutines at once. It must return quickly: a call, or the
// renewal of other holds, waits for it. It must not lock or unlock anything
// through the client. Panics of f are logged and go no further.
func WithObserver(f func(Event)) Option {
	return func(s *settings) error {
		if f == nil {
			return errs.Invalid("WithObserver(nil): leave the option out instead")
		}
		s.observe = f
		return nil
	}
}
