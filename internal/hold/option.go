package hold

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// Options are the settings of one acquisition.
type Options struct {
	Wait     time.Duration
	WaitSet  bool
	Lease    time.Duration
	LeaseSet bool
}

// Option sets one of them.
type Option func(*Options)

// Wait bounds how long an acquisition may wait: d, or not at all if d is zero
// or negative. The default of TryLock is not to wait, that of Lock to wait
// until its context ends. At most a century.
func Wait(d time.Duration) Option {
	return func(o *Options) { o.Wait, o.WaitSet = min(d, lease.Max), true }
}

// Lease gives the hold a fixed lease of d instead of one that is renewed: it
// ends after d, whatever its holder does. Fractions of a millisecond count as a
// whole one, more than a century as a century; zero and less is ErrInvalid.
func Lease(d time.Duration) Option {
	return func(o *Options) { o.Lease, o.LeaseSet = d, true }
}

// Collect applies opts and checks what they say.
func Collect(opts []Option) (Options, error) {
	if len(opts) == 0 {
		return Options{}, nil
	}
	var o Options
	for _, set := range opts {
		if set != nil {
			set(&o)
		}
	}
	if o.LeaseSet {
		if err := lease.Check(o.Lease, "lease"); err != nil {
			return o, err
		}
		o.Lease = lease.Round(o.Lease)
	}
	return o, nil
}

// Locker is what every kind of lock can do. The owner of a hold is the owner
// that its context carries (see holdfast.WithOwner), never a goroutine.
type Locker interface {
	// Name is the name that the lock was made with.
	Name() string

	// Lock waits until it has the lock or ctx ends, also while Redis doesn't
	// answer; with Wait(d) it is TryLock. An owner that holds the lock enters
	// it once more, and gives each hold back by itself. A context without
	// owner gets a fresh one, which Hold.Context hands on.
	//
	// Errors: the context's, with what Redis said last; ErrDenied; ErrInvalid
	// for a bad name or option, or if the name holds something else; ErrReentry
	// from a lock that isn't re-entrant; ErrClosed. After an error nothing is
	// held: what may have been granted meanwhile is given back behind the
	// caller, who leaves at once when ctx ends.
	Lock(ctx context.Context, opts ...Option) (*Hold, error)

	// TryLock asks once, or for as long as Wait(d) says. Errors: as Lock, and
	// ErrNotAcquired (a *NotAcquiredError with the remaining time) if somebody
	// else holds it; ErrUnavailable if Redis gave no answer within the time to
	// wait, or within the command timeout without one.
	TryLock(ctx context.Context, opts ...Option) (*Hold, error)

	// Unlock gives back the latest hold of ctx's owner. It does so even if ctx
	// has ended. Errors: ErrNoOwner; ErrNotHeld (a *NotHeldError with the
	// reason), matching ErrLost too if the hold was lost; ErrUncertain if no
	// answer came: the release goes on behind the caller, and the lease bounds
	// it, since renewal has ended; ErrDenied if Redis refused; ErrClosed.
	Unlock(ctx context.Context) error

	// ForceUnlock opens the lock whoever holds it, and reports whether it was
	// held. The holder is told at its next renewal; a holder of this client, as
	// soon as Redis has answered. Errors: ErrInvalid, leaving the key untouched,
	// if it is no lock; ErrUncertain if no answer came; ErrDenied; ErrClosed; the
	// context's.
	ForceUnlock(ctx context.Context) (bool, error)

	// IsLocked reports whether anybody holds the lock. It and the three below
	// read what Redis says at that moment; where the go-redis client sends reads
	// to replicas, what a replica says. Errors: ErrUnavailable, ErrDenied,
	// ErrInvalid, ErrClosed, the context's.
	IsLocked(ctx context.Context) (bool, error)

	// IsHeld asks Redis whether ctx's owner holds the lock. ErrNoOwner if ctx
	// carries none; else as IsLocked.
	IsHeld(ctx context.Context) (bool, error)

	// HoldCount asks Redis how many holds ctx's owner has. Errors as IsHeld.
	HoldCount(ctx context.Context) (int, error)

	// TTL is how long the present hold lasts unless it is renewed: 0 if the
	// lock is free, negative if it has no expiry. Errors as IsLocked.
	TTL(ctx context.Context) (time.Duration, error)

	// Do runs fn while holding the lock, with Hold.Context, and gives it back
	// afterwards, also if fn panics. Errors: those of Lock, with fn not called;
	// else fn's, joined with that of the release if there is one: ErrLost if the
	// hold didn't last as long as fn ran.
	Do(ctx context.Context, fn func(ctx context.Context) error, opts ...Option) error
}
