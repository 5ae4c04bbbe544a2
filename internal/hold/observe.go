package hold

import (
	"runtime/debug"
	"time"

	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// Tell hands an event to the observer. Make one only if Observe isn't nil. A
// panic of the observer's is logged and ends here: it would otherwise take down,
// from whichever goroutine, a process that holds locks.
func (s *Services) Tell(e event.Event) {
	if s.Observe == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			s.Log.Error("holdfast: the observer panicked", "event", e, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	s.Observe(e)
}

// TellRenewal tells what became of a renewal that was answered or not. A lease
// that is gone is told as a loss.
func (s *Services) TellRenewal(l *lease.Lease, r lease.Result) {
	subject := event.Subject{Name: l.Name, Kind: l.Kind, Owner: l.Field}
	switch r.Verdict {
	case lease.Renewed:
		s.Tell(event.Renewed{Subject: subject, Until: l.Deadline()})
	case lease.Unknown:
		s.Tell(event.RenewalFailed{Subject: subject, Err: r.Err, Until: l.Deadline()})
	case lease.Gone:
	}
}

// clock is the time, for an event; not looked at where there is no observer.
func (s *Services) clock() (now time.Time) {
	if s.Observe != nil {
		now = time.Now()
	}
	return now
}

func (e *entry) subject() event.Subject {
	return event.Subject{Name: e.name, Kind: e.kind.ID(), Owner: e.field}
}

// tellAsked tells the end of an acquisition that began at began.
func (e *entry) tellAsked(began time.Time, err error) {
	switch {
	case e.Observe == nil:
	case err != nil:
		e.Tell(event.Refused{Subject: e.subject(), Waited: time.Since(began), Err: err})
	default:
		e.Tell(event.Acquired{Subject: e.subject(), Waited: time.Since(began)})
	}
}

// tellReleased tells that a hold was given back; err says that Redis may not know.
func (r *record) tellReleased(err error) {
	if e := r.entry; e.Observe != nil {
		e.Tell(event.Released{Subject: e.subject(), Held: time.Since(r.since), Err: err})
	}
}

func (r *record) tellLost(why error) {
	if e := r.entry; e.Observe != nil {
		e.Tell(event.HoldLost{Subject: e.subject(), Held: time.Since(r.since), Cause: why})
	}
}
