// Package event is what the observer of a client is told.
package event

import "time"

// Event is one of Acquired, Refused, Released, HoldLost, Renewed and RenewalFailed.
type Event interface {
	// About says what it happened to.
	About() Subject
}

// Subject is what an event is about.
type Subject struct {
	// Name is the name as the caller knows it.
	Name string
	// Kind is the kind of primitive: "lock", "fenced", ….
	Kind string
	// Owner is the holder as it stands in Redis: <client id>:<owner id>, or the id
	// of a permit. Empty where nobody got that far.
	Owner string
}

// About implements Event.
func (s Subject) About() Subject { return s }

// Acquired says: a hold or permit was granted. Each is followed by one Released or one
// HoldLost.
type Acquired struct {
	Subject
	// Waited is the time from the call to the grant.
	Waited time.Duration
}

// Refused says: an acquisition ended without a grant.
type Refused struct {
	Subject
	// Waited is the time from the call to its end.
	Waited time.Duration
	// Err is what the caller is told: ErrNotAcquired, the context's, ….
	Err error
}

// Released says: a hold or permit was given back by its holder.
type Released struct {
	Subject
	// Held is the time from the grant to now.
	Held time.Duration
	// Err says why it isn't certain that Redis knows; nil if it does. The lease
	// bounds it then.
	Err error
}

// HoldLost says: a hold or permit ended without its holder's doing.
type HoldLost struct {
	Subject
	// Held is the time from the grant to now.
	Held time.Duration
	// Cause is that of Hold.Context: ErrLost, or ErrClosed where Close left it to
	// expire.
	Cause error
}

// Renewed says: a lease was renewed.
type Renewed struct {
	Subject
	// Until is when it ends unless it is renewed again, as far as it can be
	// trusted.
	Until time.Time
}

// RenewalFailed says: a renewal got no answer, was refused, or wasn't confirmed by
// replicas. It is tried again until Until; then the hold is lost.
type RenewalFailed struct {
	Subject
	Err   error
	Until time.Time
}
