package history

import (
	"fmt"
	"time"
)

// Kind is what a name is: a name belongs to one kind.
type Kind string

// Kinds. Those of locks that share their layout, and so may contend for one name
// (re-entrant, not re-entrant, spin, multi), are all Lock: see Op.Flavor.
const (
	Lock      Kind = "lock"
	Fair      Kind = "fair"
	Fenced    Kind = "fenced"
	RW        Kind = "rw"
	Semaphore Kind = "semaphore"
	Expirable Kind = "expirable"
	Latch     Kind = "latch"
	Limiter   Kind = "limiter"
	Register  Kind = "register" // what a fenced lock guards
)

// Call is what is asked.
type Call string

// Calls.
const (
	Acquire   Call = "acquire"    // a lock, to write; permits; grants of a limiter
	Release   Call = "release"    // of what Acquire took
	Read      Call = "read"       // a read lock
	ReadEnd   Call = "read end"   // of what Read took
	Extend    Call = "extend"     // a hold or permits
	Set       Call = "set"        // permits, count, rate
	CountDown Call = "count down" //
	Await     Call = "await"      //
	IsLocked  Call = "is locked"  // answers 0 or 1
	HoldCount Call = "hold count" // of the owner, as far as it was told
	ReadCount Call = "read count" // likewise, of read holds
	Available Call = "available"  // permits, a latch's count
	Write     Call = "write"      // to the register, with the token
)

// NonReentrant is the flavor of locks that an owner gets once.
const NonReentrant = "nonreentrant"

// Outcome is how a call ended.
type Outcome string

// Outcomes.
const (
	Done    Outcome = "done"
	Refused Outcome = "refused"
	Lost    Outcome = "lost"
	Unknown Outcome = "unknown"
	// Failed is an error that no fault explains.
	Failed Outcome = "failed"
	// Open is a call whose end was not recorded.
	Open Outcome = ""
)

// Op is one call.
type Op struct {
	Process int   `json:"process"` // from 1 on
	ID      int64 `json:"id"`      // unique in its process
	Worker  int   `json:"worker"`

	Kind   Kind     `json:"kind"`
	Flavor string   `json:"flavor,omitempty"` // plain, spin, multi, …: for people
	Name   string   `json:"name,omitempty"`
	Names  []string `json:"names,omitempty"` // of a multi lock, instead of Name
	Call   Call     `json:"call"`
	Owner  string   `json:"owner,omitempty"`

	N     int64         `json:"n,omitempty"`     // permits, count
	Hold  int64         `json:"hold,omitempty"`  // ID of the acquisition that this call is about
	Lease time.Duration `json:"lease,omitempty"` // of what is acquired or extended; of a rate: its interval
	Fixed bool          `json:"fixed,omitempty"` // the lease isn't renewed
	Of    []string      `json:"of,omitempty"`    // ids of permits that the call is about
	Token int64         `json:"token,omitempty"` // that a Write carries

	// Bound is how long the call may take where nothing is broken; 0: as long as
	// others hold what it waits for.
	Bound time.Duration `json:"bound,omitempty"`

	Start int64 `json:"start"`
	Result

	// Seen is the last moment at which what the call acquired was certainly held;
	// 0 if none is known. Told is the first moment at which its holder knew of its
	// loss; 0 if it was not lost, as far as known.
	Seen  int64  `json:"-"`
	Queue int64  `json:"-"` // when it was seen in the queue of a fair lock
	Told  int64  `json:"-"`
	Cause string `json:"-"` // of the loss
}

// String is a call in words.
func (op Op) String() string {
	text := fmt.Sprintf("process %d worker %d call %d: %s %s %s", op.Process, op.Worker, op.ID, op.Flavor, op.Kind, op.Call)
	if op.Owner != "" {
		text += " by " + op.Owner
	}
	if op.Granted != 0 {
		text += fmt.Sprintf(" token %d", op.Granted)
	}
	return fmt.Sprintf("%s, from %d to %d: %s", text, op.Start, op.End, op.Outcome)
}

// Result is the end of a call.
type Result struct {
	End     int64    `json:"end,omitempty"`
	Outcome Outcome  `json:"outcome,omitempty"`
	Granted int64    `json:"granted,omitempty"` // fencing token
	IDs     []string `json:"ids,omitempty"`     // of permits that were granted
	Value   int64    `json:"value,omitempty"`   // that was read
	Error   string   `json:"error,omitempty"`

	// Left says that the caller's context had ended, or that it had a time to
	// wait: the last question has a quarter of a second for its answer, which is little
	// on a busy machine.
	Left bool `json:"left,omitempty"`
}

// Stall is an Event, a Harmless one: a process, or a server, got no time from its
// machine. Nothing may be late or wrong for it, but an answer may be missing: to its
// process, or to all without one.
const Stall = "stall"

// Event is something that was done to servers, links or clients, from Begin to
// End; End is 0 if it lasts.
type Event struct {
	ID   int64  `json:"id"`
	What string `json:"what"` // for people

	// Loses says that keys of Scope may vanish, or fall back to what they were,
	// at any moment of the event: a server that is killed, until it is back empty;
	// a failover, from the death (or isolation) of the old master until the new one
	// serves and the old one serves no more; keys deleted; memory that is too small.
	Loses bool  `json:"loses,omitempty"`
	Scope Scope `json:"scope,omitzero"`

	// Process is the client process that is stopped (from before SIGSTOP until
	// after SIGCONT) or, with Killed, dead from the moment of the event on; nil for
	// what concerns servers or links.
	Process *int `json:"process,omitempty"`
	Killed  bool `json:"killed,omitempty"`

	// Harmless says that calls are neither slower nor fail for it: a note.
	Harmless bool `json:"harmless,omitempty"`

	Begin int64 `json:"begin,omitempty"`
	End   int64 `json:"end,omitempty"`
}

// Scope is what an event concerns: all names, or these, or those of these ranges
// of hash slots.
type Scope struct {
	Names []string `json:"names,omitempty"`
	Slots [][2]int `json:"slots,omitempty"` // first and last
}

// Judge is the process that looks at what is left when all others have ended.
const Judge = 0

// Report is the last word of a process that ended by itself.
type Report struct {
	Process int            `json:"process"`
	At      int64          `json:"at"`
	Calls   map[string]int `json:"calls"`           // by outcome
	Leaks   string         `json:"leaks,omitempty"` // goroutines or connections that were left, in words
	Error   string         `json:"error,omitempty"` // what should not happen, in words
}
