package holdfast

import "github.com/holdfast-go/holdfast/internal/errs"

// What a caller branches on, with errors.Is. The same values come from every
// package of the module.
var (
	// ErrNotAcquired: somebody else holds it. A *NotAcquiredError says for how
	// long. Never used for a failure of Redis.
	ErrNotAcquired = errs.ErrNotAcquired
	// ErrNotHeld: there is nothing to give back or extend. A *NotHeldError says
	// why: never held, expired or lost, already given back.
	ErrNotHeld = errs.ErrNotHeld
	// ErrLost: the hold ended without its holder's doing. It is the cause with
	// which Hold.Context ends.
	ErrLost = errs.ErrLost
	// ErrReleased is the cause with which Hold.Context ends at an unlock.
	ErrReleased = errs.ErrReleased
	// ErrNoOwner: the call is about the context's owner, and it carries none.
	ErrNoOwner = errs.ErrNoOwner
	// ErrReentry: the owner holds it already, and the lock isn't re-entrant.
	ErrReentry = errs.ErrReentry
	// ErrUpgrade: the owner reads, and asks to write: it would wait for itself.
	ErrUpgrade = errs.ErrUpgrade
	// ErrNotReplicated: too few replicas acknowledged; it was undone. A
	// *NotReplicatedError says how many did. See WithReplicas.
	ErrNotReplicated = errs.ErrNotReplicated
	// ErrClosed: the client was closed.
	ErrClosed = errs.ErrClosed
	// ErrUncertain: it may have been done or not, since no answer came.
	ErrUncertain = errs.ErrUncertain
	// ErrInvalid: the call makes no sense; the text says what to do instead.
	ErrInvalid = errs.ErrInvalid
	// ErrUnavailable: Redis gave no answer, or one that means "later". The
	// cause is wrapped.
	ErrUnavailable = errs.ErrUnavailable
	// ErrDenied: Redis answered, and refused: password, ACL, memory; or one side of
	// a TLS connection doesn't trust the other. The cause is wrapped.
	ErrDenied = errs.ErrDenied
)

// NotAcquiredError matches ErrNotAcquired. Its fields: Name, and Remaining, how
// long the holder's lease still ran when Redis was last asked (negative if it has
// no expiry or isn't known); of permits, Wanted and Free, and Remaining is when enough
// may have expired, or Unset if the semaphore was never set, or is gone.
type NotAcquiredError = errs.NotAcquiredError

// NotReplicatedError matches ErrNotReplicated. Its fields: Acks, how many replicas
// acknowledged; Want, how many should have; Timeout, within which time.
type NotReplicatedError = errs.NotReplicatedError

// NotHeldError matches ErrNotHeld, and ErrLost if Reason is Lost. Its fields:
// Name and Reason.
type NotHeldError = errs.NotHeldError

// Reason says why a name isn't held: NeverHeld, Lost or GivenBack. String is a
// phrase.
type Reason = errs.Reason

// Reasons of a NotHeldError.
const (
	// NeverHeld: this owner never held it, as far as is remembered.
	NeverHeld = errs.NeverHeld
	// Lost: it expired, or was taken away.
	Lost = errs.Lost
	// GivenBack: it was unlocked before.
	GivenBack = errs.GivenBack
)
