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
	// Locker is what every kind of lock can do.
	Locker = hold.Locker
	// Hold is one acquisition.
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

// NonReentrant makes an acquisition by an owner that holds the lock already
// fail at once with ErrReentry, instead of entering it once more.
func NonReentrant() LockOption { return func(c *config) { c.nonReentrant = true } }

// Lock is the re-entrant lock: Redisson's RLock, on the same keys. Its methods
// are those of Locker. It has no state of its own: any number of objects for
// one name, in any number of goroutines, are one lock.
type Lock struct{ locker }

// locker keeps the client's insides out of the methods of a lock.
type locker = hold.Locker

var _ Locker = (*Lock)(nil)

// NewLock makes a lock on a client's services. Users call Client.Lock.
func NewLock(s *hold.Services, name string, opts ...LockOption) *Lock {
	var c config
	for _, set := range opts {
		if set != nil {
			set(&c)
		}
	}
	return &Lock{hold.NewMutex(s, plain{}, name, c.nonReentrant)}
}

// Resume takes up a detached hold of a Lock. Users call Client.Resume.
func Resume(ctx context.Context, s *hold.Services, name, handle string, opts ...Option) (*Hold, error) {
	return hold.Resume(ctx, hold.NewMutex(s, plain{}, name, false), handle, opts...)
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
