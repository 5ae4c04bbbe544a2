package rlock

import (
	"context"
	_ "embed"
	"time"

	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/keys"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/script"
)

// Names shared by all primitives, put where users of this package look.
type (
	// Locker is what every kind of lock can do. Its methods, as documented at Lock:
	//
	//	Name() string
	//	Lock(ctx, opts ...Option) (*Hold, error)      waits until ctx ends. Errors: the context's,
	//	                                              ErrDenied, ErrInvalid, ErrReentry, ErrClosed,
	//	                                              ErrNotReplicated (WithReplicas)
	//	TryLock(ctx, opts ...Option) (*Hold, error)   at once, or within Wait(d). Errors: those, and
	//	                                              ErrNotAcquired, ErrUnavailable
	//	Unlock(ctx) error                             the latest hold of ctx's owner. Errors: ErrNoOwner,
	//	                                              ErrNotHeld (ErrLost), ErrUncertain, ErrDenied, ErrClosed
	//	ForceUnlock(ctx) (bool, error)                whoever holds it; whether it was held. Errors:
	//	                                              ErrInvalid, ErrUncertain, ErrDenied, ErrClosed, the context's
	//	IsLocked(ctx) (bool, error)                   Errors, of the next three as well: ErrUnavailable,
	//	                                              ErrDenied, ErrInvalid, ErrClosed, the context's
	//	IsHeld(ctx) (bool, error)                     by ctx's owner; ErrNoOwner
	//	HoldCount(ctx) (int, error)                   of ctx's owner; ErrNoOwner
	//	TTL(ctx) (time.Duration, error)               0: free; negative: without expiry
	//	Do(ctx, fn func(ctx) error, opts ...Option) error   runs fn while holding it. Errors: those of
	//	                                              Lock, fn's, and of the release: ErrLost
	Locker = hold.Locker
	// Hold is one acquisition; a re-entry is a Hold of its own.
	//
	//	Name() string
	//	Context() context.Context          the caller's, with the owner; ends with cause ErrLost
	//	                                   before the key can pass on, ErrReleased at the unlock,
	//	                                   at Detach, or when a member of several was given back,
	//	                                   ErrClosed at Client.Close
	//	Unlock(ctx) error                  exactly this hold, once, also if ctx has ended. Errors:
	//	                                   ErrNotHeld at a second call, with ErrLost if it was lost;
	//	                                   ErrUncertain without an answer in time, or when ctx ends
	//	                                   meanwhile: it goes on behind; ErrDenied; ErrClosed. Of
	//	                                   several locks all are given back, the errors joined, losses
	//	                                   first; of a quorum an error only if no majority was
	//	Extend(ctx, d time.Duration) error a lease of at least d from now. Errors: ErrInvalid,
	//	                                   ErrNotHeld (ErrLost), ErrUncertain, ErrDenied, ErrClosed,
	//	                                   ErrUnavailable, ErrNotReplicated, the context's
	//	Detach() (handle string, error)    ends it here; Client.Resume takes it up, once. It stays
	//	                                   taken for one lease of this client (WithLease, also for
	//	                                   a hold with a Lease of its own): so long the handle is
	//	                                   good. Errors: ErrInvalid if the owner has entered more
	//	                                   than once, for a quorum, and for members of several
	//	                                   clients; ErrNotHeld, ErrDenied, ErrUnavailable,
	//	                                   ErrUncertain, ErrClosed
	//	Token() int64                      fencing token; 0 if the lock is not fenced
	//	Owner() string                     the holder's field in Redis: <client id>:<owner id>
	//	ExpiresAt() time.Time              until when it is certainly ours; zero once it is over
	//
	// Keep it, or a context that carries its owner, as long as the work goes on: a
	// hold that nobody could give back any more, since no reference to it nor to its
	// owner's context is left, is renewed no more. It is then free when its lease
	// ends, and the log says so. (An owner of WithOwnerID can always be named again:
	// its holds are not dropped.)
	Hold = hold.Hold
	// Option sets how one acquisition waits and how long it lasts.
	Option = hold.Option
)

// Wait bounds how long an acquisition may wait: d, or not at all if d is zero or
// negative. Without it TryLock doesn't wait, and Lock waits until its context
// ends. A wait can be late by a quarter of a second where Redis doesn't answer.
func Wait(d time.Duration) Option { return hold.Wait(d) }

// Lease gives the hold a fixed lease of d instead of one that is renewed: it
// ends after d, whatever its holder does. Fractions of a millisecond count as a
// whole one, more than a century as a century; zero and less is ErrInvalid.
func Lease(d time.Duration) Option { return hold.Lease(d) }

// LockOption sets how a lock object behaves.
type LockOption func(*config)

type config struct{ nonReentrant bool }

func configure(opts []LockOption) (c config) {
	for _, set := range opts {
		if set != nil {
			set(&c)
		}
	}
	return c
}

// NonReentrant makes an acquisition by an owner that holds the lock already
// fail at once with ErrReentry, instead of entering it once more.
func NonReentrant() LockOption { return func(c *config) { c.nonReentrant = true } }

// Lock is the re-entrant lock: Redisson's RLock, on the same keys. Any number of
// objects for one name, in any number of goroutines, are one lock; one that is used
// again keeps what makes its next call cheaper, nothing else.
type Lock struct {
	ref
	m *hold.Mutex
}

// ref lets a multi lock know which Mutex is inside.
type ref = hold.Ref

var _ Locker = (*Lock)(nil)

// NewLock makes a lock on a client's services. Users call Client.Lock.
func NewLock(s *hold.Services, name string, opts ...LockOption) *Lock {
	m := hold.NewMutex(s, plain{}, name, configure(opts).nonReentrant)
	return &Lock{ref: m.Ref(), m: m}
}

// Name is the name that the lock was made with.
func (l *Lock) Name() string { return l.m.Name() }

// Lock waits until it has the lock or ctx ends, also while Redis doesn't answer;
// with Wait(d) it is TryLock. An owner that holds the lock enters it once more.
// A context without owner gets a fresh one, which Hold.Context hands on.
//
// Errors: the context's, with what Redis said last; ErrDenied; ErrInvalid for a
// bad name or option, or if the name holds something else; ErrReentry if the lock
// isn't re-entrant; ErrClosed. After an error nothing is held: what may have been
// granted meanwhile is given back behind the caller, who leaves at once when ctx
// ends.
func (l *Lock) Lock(ctx context.Context, opts ...Option) (*Hold, error) {
	return l.m.Lock(ctx, opts...)
}

// TryLock asks once, or for as long as Wait(d) says. Errors: as Lock, and
// ErrNotAcquired (a *NotAcquiredError with the remaining time) if somebody else
// holds it; ErrUnavailable if Redis gave no answer within the time to wait, or
// within the command timeout without one.
func (l *Lock) TryLock(ctx context.Context, opts ...Option) (*Hold, error) {
	return l.m.TryLock(ctx, opts...)
}

// Unlock gives back the latest hold of ctx's owner, also if ctx has ended.
// Errors: ErrNoOwner; ErrNotHeld (a *NotHeldError with the reason), matching
// ErrLost too if the hold was lost; ErrUncertain if no answer came: the release
// goes on behind the caller; ErrDenied; ErrClosed.
func (l *Lock) Unlock(ctx context.Context) error { return l.m.Unlock(ctx) }

// ForceUnlock opens the lock whoever holds it, and reports whether it was held.
// The holder is told at its next renewal; a holder of this client, as soon as
// Redis has answered. Errors: ErrInvalid, leaving the key untouched, if it is no
// lock; ErrUncertain if no answer came; ErrDenied; ErrClosed; the context's.
func (l *Lock) ForceUnlock(ctx context.Context) (bool, error) { return l.m.ForceUnlock(ctx) }

// IsLocked reports whether anybody holds the lock, by what Redis says at that
// moment. Errors: ErrUnavailable, ErrDenied, ErrInvalid, ErrClosed, the context's.
func (l *Lock) IsLocked(ctx context.Context) (bool, error) { return l.m.IsLocked(ctx) }

// IsHeld asks Redis whether ctx's owner holds the lock. ErrNoOwner if ctx carries
// none; else as IsLocked.
func (l *Lock) IsHeld(ctx context.Context) (bool, error) { return l.m.IsHeld(ctx) }

// HoldCount asks Redis how many holds ctx's owner has. Errors as IsHeld.
func (l *Lock) HoldCount(ctx context.Context) (int, error) { return l.m.HoldCount(ctx) }

// TTL is how long the present hold lasts unless it is renewed: 0 if the lock is
// free, negative if it has no expiry. Errors as IsLocked.
func (l *Lock) TTL(ctx context.Context) (time.Duration, error) { return l.m.TTL(ctx) }

// Do runs fn while holding the lock, with Hold.Context, and gives it back
// afterwards, also if fn panics. Errors: those of Lock, with fn not called; else
// fn's, joined with that of the release if there is one: ErrLost if the hold
// didn't last as long as fn ran.
func (l *Lock) Do(ctx context.Context, fn func(ctx context.Context) error, opts ...Option) error {
	return l.m.Do(ctx, fn, opts...)
}

// kinds are the kinds of locks whose holds can be detached, by what their handles
// call them.
var kinds = map[string]hold.Kind{
	plain{}.ID():  plain{},
	fenced{}.ID(): fenced{},
	spin{}.ID():   spin{Backoff: ExponentialBackoff{}},
	fair{}.ID():   fair{},
}

// Resumes reports whether Resume knows handles of this kind.
func Resumes(kind string) bool { return kinds[kind] != nil }

// Resume takes up a detached hold of a kind. Users call Client.Resume.
func Resume(ctx context.Context, s *hold.Services, kind, name, handle string, opts ...Option) (*Hold, error) {
	return hold.Resume(ctx, hold.NewMutex(s, kinds[kind], name, false), handle, opts...)
}

var (
	//go:embed acquire.lua
	acquireSrc string
	//go:embed release.lua
	releaseSrc string
	//go:embed extend.lua
	extendSrc string
	//go:embed force.lua
	forceSrc string
	//go:embed transfer.lua
	transferSrc string
	//go:embed renew.lua
	renewSrc string

	acquireScript  = script.Mutating("acquire.lua", acquireSrc)
	releaseScript  = script.Mutating("release.lua", releaseSrc)
	extendScript   = script.Mutating("extend.lua", extendSrc)
	forceScript    = script.Mutating("force.lua", forceSrc)
	transferScript = script.Mutating("transfer.lua", transferSrc)
	renewScript    = script.New("renew.lua", renewSrc)
)

// renewal is shared by all locks whose key is a hash of owners.
var renewal = &lease.Renewal{Call: func(ks, owners []string, d time.Duration) script.Call {
	argv := make([]any, 0, 1+len(owners))
	argv = append(argv, d.Milliseconds())
	for _, o := range owners {
		argv = append(argv, o)
	}
	return script.NewCall(renewScript, ks, argv...)
}}

// Arguments that the usual call leaves out; see acquire.lua and release.lua.
var (
	firstHold = []any{1}    // count
	lastHold  = []any{0, 0} // left, lease
)

// plain is the kind of the re-entrant lock.
type plain struct{}

var _ hold.Kind = plain{}

func (plain) ID() string { return "lock" }

func (plain) Queues() bool { return false }

// Channel is the one that Redisson publishes on.
func (plain) Channel(key string) string { return keys.Prefixed("redisson_lock__channel", key) }

func (plain) Acquire(a hold.Args) script.Call {
	if a.Count == 1 {
		return script.NewMutation(acquireScript, a.Keys, firstHold, a.Field, a.Lease.Milliseconds())
	}
	return script.NewMutation(acquireScript, a.Keys, nil, a.Field, a.Lease.Milliseconds(), a.Count)
}

func (plain) Release(a hold.Args) script.Call {
	if a.Count == 0 {
		return script.NewMutation(releaseScript, a.Keys, lastHold, a.Field, a.Channel)
	}
	return script.NewMutation(releaseScript, a.Keys, nil, a.Field, a.Channel, a.Count, a.Lease.Milliseconds())
}

func (plain) Extend(a hold.Args) script.Call {
	return script.NewMutation(extendScript, a.Keys, nil, a.Field, a.Lease.Milliseconds())
}

func (plain) Force(a hold.Args) script.Call {
	return script.NewMutation(forceScript, a.Keys, nil, a.Channel)
}

func (plain) Transfer(a hold.Args) script.Call {
	return script.NewMutation(transferScript, a.Keys, nil, a.Field, a.To, a.Lease.Milliseconds())
}

func (plain) Renewal() *lease.Renewal { return renewal }
