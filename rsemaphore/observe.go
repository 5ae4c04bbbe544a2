package rsemaphore

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/event"
)

// subject is what events about a permit are about; those about an acquisition that
// got none have no owner.
func (e *expirable) subject(owner string) event.Subject {
	return event.Subject{Name: e.c.Name(), Kind: HandleKind, Owner: owner}
}

func (e *expirable) tellRefused(began time.Time, err error) {
	if e.c.Observe != nil {
		e.c.Tell(event.Refused{Subject: e.subject(""), Waited: time.Since(began), Err: err})
	}
}

func (e *expirable) tellAcquired(began time.Time, ps []*Permit) {
	if e.c.Observe == nil {
		return
	}
	for _, p := range ps {
		e.c.Tell(event.Acquired{Subject: e.subject(p.ID()), Waited: time.Since(began)})
	}
}

// tellReleased tells that a permit was given back; err says that Redis may not know.
func (r *record) tellReleased(err error) {
	if r.c.Observe != nil {
		r.c.Tell(event.Released{Subject: r.subject(r.lease.Field), Held: time.Since(r.since), Err: err})
	}
}

func (r *record) tellLost(why error) {
	if r.c.Observe != nil {
		r.c.Tell(event.HoldLost{Subject: r.subject(r.lease.Field), Held: time.Since(r.since), Cause: why})
	}
}
