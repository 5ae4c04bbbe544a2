package rsemaphore

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/event"
)

// permitKind is what events call a permit.
const permitKind = "permit"

// clock is the time, for an event; not looked at where there is no observer.
func (c *counter) clock() (now time.Time) {
	if c.Observe != nil {
		now = time.Now()
	}
	return now
}

func (r *record) subject() event.Subject {
	return event.Subject{Name: r.lease.Name, Kind: permitKind, Owner: r.lease.Field}
}

// tellAcquired tells of permits that were asked for at began.
func tellAcquired(began time.Time, permits []*Permit) {
	for _, p := range permits {
		if r := p.record; r.ledger.Observe != nil {
			r.ledger.Tell(event.Acquired{Subject: r.subject(), Waited: time.Since(began)})
		}
	}
}

func (e *expirable) tellRefused(began time.Time, err error) {
	if l := e.ledger; l.Observe != nil {
		l.Tell(event.Refused{Subject: event.Subject{Name: e.c.Name(), Kind: permitKind}, Waited: time.Since(began), Err: err})
	}
}

// tellEnd tells that a permit is over here.
func (r *record) tellEnd(how status, why error) {
	l := r.ledger
	switch {
	case l.Observe == nil:
	case how == givenBack:
		l.Tell(event.Released{Subject: r.subject(), Held: time.Since(r.since)})
	default:
		l.Tell(event.HoldLost{Subject: r.subject(), Held: time.Since(r.since), Cause: why})
	}
}
