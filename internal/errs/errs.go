// Package errs holds the errors that every package of the module returns. The
// root aliases them, so a caller needs to import nothing else.
package errs

import (
	"errors"
	"fmt"
	"time"
)

// Sentinels: what a caller branches on with errors.Is.
var (
	ErrNotAcquired   = errors.New("holdfast: not acquired")
	ErrNotHeld       = errors.New("holdfast: not held")
	ErrLost          = errors.New("holdfast: hold lost")
	ErrReleased      = errors.New("holdfast: hold given back")
	ErrNoOwner       = errors.New("holdfast: context carries no owner")
	ErrReentry       = errors.New("holdfast: owner holds it already")
	ErrUpgrade       = errors.New("holdfast: a reader can't become the writer")
	ErrNotReplicated = errors.New("holdfast: too few replicas acknowledged")
	ErrClosed        = errors.New("holdfast: client closed")
	ErrUncertain     = errors.New("holdfast: outcome unknown")
	ErrInvalid       = errors.New("holdfast: invalid argument")
	ErrUnavailable   = errors.New("holdfast: no answer from Redis")
	ErrDenied        = errors.New("holdfast: refused by Redis")
)

// NotAcquiredError says that somebody else holds the name. It matches
// ErrNotAcquired.
type NotAcquiredError struct {
	Name string
	// Remaining is how long the present holder's lease still ran when Redis
	// was last asked; negative if it has no expiry or isn't known.
	Remaining time.Duration
	// Wanted is how many permits were asked for, and Free how many there were
	// when Redis was last asked. Both are 0 for a lock.
	Wanted, Free int64
	// Unset says that the semaphore had no number when Redis was last asked: it was
	// never set, or is gone.
	Unset bool
}

func (e *NotAcquiredError) Error() string {
	switch {
	case e.Unset:
		return fmt.Sprintf("%v: %s: wanted %d, and its number was never set, or is gone: set it (TrySetPermits)", ErrNotAcquired, Quote(e.Name), e.Wanted)
	case e.Wanted > 0 && e.Remaining < 0:
		return fmt.Sprintf("%v: %s: wanted %d, free %d", ErrNotAcquired, Quote(e.Name), e.Wanted, e.Free)
	case e.Wanted > 0:
		return fmt.Sprintf("%v: %s: wanted %d, free %d; enough may be free in %v", ErrNotAcquired, Quote(e.Name), e.Wanted, e.Free, e.Remaining)
	}
	if e.Remaining < 0 {
		return fmt.Sprintf("%v: %s is taken", ErrNotAcquired, Quote(e.Name))
	}
	return fmt.Sprintf("%v: %s is taken for another %v at most, unless its lease is renewed", ErrNotAcquired, Quote(e.Name), e.Remaining)
}

// Is reports whether target is ErrNotAcquired.
func (e *NotAcquiredError) Is(target error) bool { return target == ErrNotAcquired }

// Reason says why a name isn't held.
type Reason int

// The three ways of not holding a name.
const (
	NeverHeld Reason = iota
	Lost
	GivenBack
)

func (r Reason) String() string {
	switch r {
	case Lost:
		return "expired or lost"
	case GivenBack:
		return "already given back"
	default:
		return "never held by this owner"
	}
}

// NotHeldError says that the caller doesn't hold the name, and why. It matches
// ErrNotHeld, and ErrLost too if Reason is Lost.
type NotHeldError struct {
	Name   string
	Reason Reason
}

func (e *NotHeldError) Error() string {
	return fmt.Sprintf("%v: %s: %v", ErrNotHeld, Quote(e.Name), e.Reason)
}

// Is reports whether target is ErrNotHeld, or ErrLost for a lost hold.
func (e *NotHeldError) Is(target error) bool {
	return target == ErrNotHeld || target == ErrLost && e.Reason == Lost
}

// NotReplicatedError says how many replicas acknowledged in time, and how many
// should have. It matches ErrNotReplicated.
type NotReplicatedError struct {
	Acks, Want int
	// Timeout is how long they had at most.
	Timeout time.Duration
}

func (e *NotReplicatedError) Error() string {
	return fmt.Sprintf("%v: %d of %d within %v", ErrNotReplicated, e.Acks, e.Want, e.Timeout)
}

// Is reports whether target is ErrNotReplicated.
func (e *NotReplicatedError) Is(target error) bool { return target == ErrNotReplicated }

// Invalid makes an ErrInvalid whose text says what is wrong and how to mend it.
func Invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// maxQuoted keeps a 64 KiB name from filling a log line.
const maxQuoted = 80

// Quote renders a name for an error text: quoted, and cut if it is long.
func Quote(name string) string {
	if len(name) <= maxQuoted {
		return fmt.Sprintf("%q", name)
	}
	return fmt.Sprintf("%q… (%d bytes)", name[:maxQuoted], len(name))
}
