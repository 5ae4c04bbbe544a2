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

// FairLock is the re-entrant lock that is first come, first served, over all
// clients: Redisson's RFairLock, on the same keys. Who comes first is decided by
// the order in which Redis hears of the waiters, and times by its clock alone.
//
// A waiter keeps its place as long as it lives. One whose process died is passed
// over within 15 s (or the time of holdfast.WithFairTimeout, if that is shorter),
// however many died together; one of Redisson's when the time that its place was
// kept is over. So is a waiter that was cut off from Redis for as long: it stands
// at the end again when it is back. A call that gives up takes its place along.
// TryLock without Wait doesn't queue, and doesn't pass those who do.
//
// An owner has one place, however many of its calls wait; when one of them gets
// in, the others enter too. A plain lock of the same name excludes, but heeds no
// queue, and its release is noticed by polling only (holdfast.WithPollFallback).
type FairLock struct {
	ref
	m *hold.Mutex
}

var _ Locker = (*FairLock)(nil)

// NewFairLock makes a lock on a client's services. Users call Client.FairLock.
func NewFairLock(s *hold.Services, name string, opts ...LockOption) *FairLock {
	m := hold.NewMutex(s, fair{s.FairTimeout}, name, configure(opts).nonReentrant)
	return &FairLock{ref: m.Ref(), m: m}
}

// Name is the name that the lock was made with.
func (l *FairLock) Name() string { return l.m.Name() }

// Lock waits in the queue until it has the lock or ctx ends; with Wait(d) it is
// TryLock. An owner that holds the lock enters it once more. A context without
// owner gets a fresh one, which Hold.Context hands on.
//
// Errors: as Lock.Lock. After an error neither hold nor place is left: what Redis
// has still to be told of that is sent behind the caller, who stays for the
// answer 50 ms at most when ctx has ended, and 250 ms otherwise.
func (l *FairLock) Lock(ctx context.Context, opts ...Option) (*Hold, error) {
	return l.m.Lock(ctx, opts...)
}

// TryLock asks once, without queueing, or waits in the queue for as long as
// Wait(d) says. Errors: as Lock, and ErrNotAcquired (a *NotAcquiredError) if
// somebody else holds it or is before the caller; its remaining time is that of
// the present hold. ErrUnavailable if Redis gave no answer.
func (l *FairLock) TryLock(ctx context.Context, opts ...Option) (*Hold, error) {
	return l.m.TryLock(ctx, opts...)
}

// Unlock gives back the latest hold of ctx's owner, also if ctx has ended; the
// last one lets the first in the queue in. Errors: as Lock.Unlock.
func (l *FairLock) Unlock(ctx context.Context) error { return l.m.Unlock(ctx) }

// ForceUnlock opens the lock whoever holds it, lets the first in the queue in,
// and reports whether it was held. Errors: as Lock.ForceUnlock.
func (l *FairLock) ForceUnlock(ctx context.Context) (bool, error) { return l.m.ForceUnlock(ctx) }

// IsLocked reports whether anybody holds the lock, by what Redis says at that
// moment. Errors: ErrUnavailable, ErrDenied, ErrInvalid, ErrClosed, the context's.
func (l *FairLock) IsLocked(ctx context.Context) (bool, error) { return l.m.IsLocked(ctx) }

// IsHeld asks Redis whether ctx's owner holds the lock; who waits doesn't.
// ErrNoOwner if ctx carries none; else as IsLocked.
func (l *FairLock) IsHeld(ctx context.Context) (bool, error) { return l.m.IsHeld(ctx) }

// HoldCount asks Redis how many holds ctx's owner has. Errors as IsHeld.
func (l *FairLock) HoldCount(ctx context.Context) (int, error) { return l.m.HoldCount(ctx) }

// TTL is how long the present hold lasts unless it is renewed: 0 if the lock is
// free, negative if it has no expiry. Errors as IsLocked.
func (l *FairLock) TTL(ctx context.Context) (time.Duration, error) { return l.m.TTL(ctx) }

// Do runs fn while holding the lock, with Hold.Context, and gives it back
// afterwards, also if fn panics. Errors: as Lock.Do.
func (l *FairLock) Do(ctx context.Context, fn func(ctx context.Context) error, opts ...Option) error {
	return l.m.Do(ctx, fn, opts...)
}

var (
	//go:embed queue.lua
	queueSrc string
	//go:embed acquire_fair.lua
	acquireFairSrc string
	//go:embed release_fair.lua
	releaseFairSrc string
	//go:embed force_fair.lua
	forceFairSrc string
	//go:embed leave.lua
	leaveSrc string

	acquireFairScript = script.Mutating("acquire_fair.lua", queueSrc+acquireFairSrc)
	releaseFairScript = script.Mutating("release_fair.lua", queueSrc+releaseFairSrc)
	forceFairScript   = script.Mutating("force_fair.lua", queueSrc+forceFairSrc)
	leaveScript       = script.Mutating("leave.lua", queueSrc+leaveSrc)
)

const (
	// beat is after how long without word a waiter counts as dead: as long as a
	// server or a link may stall without costing anybody its place, with some
	// room for the waiter to be heard of again.
	beat = 15 * time.Second
	// maxPlace bounds the time that a place adds to the queue. Waits may be as
	// long as a century, and their sum must stay a number that Lua holds exactly.
	maxPlace = 24 * time.Hour
)

// fair is the kind of the fair lock: the plain one's keys, and a queue.
type fair struct {
	timeout time.Duration // see holdfast.WithFairTimeout
}

var (
	_ hold.Queue = fair{}
	_ hold.Keyed = fair{}
)

func (fair) ID() string { return "fair" }

// Channel is what the waiters' own channels start with.
func (fair) Channel(key string) string { return plain{}.Channel(key) }

// WaiterChannel is the one that Redisson publishes on for a waiter.
func (f fair) WaiterChannel(key, field string) string { return f.Channel(key) + ":" + field }

// Queues answers yes.
func (fair) Queues() bool { return true }

// Keys are queue, timeout and alive in the scripts.
func (fair) Keys(key string) []any {
	return []any{
		keys.Prefixed("redisson_lock_queue", key),
		keys.Prefixed("redisson_lock_timeout", key),
		keys.Suffixed(key, "holdfast:alive"),
	}
}

// Place adds what Redisson adds: the time to wait, or the general one.
func (f fair) Place(forever bool, d time.Duration) hold.Place {
	p := hold.Place{Wait: f.timeout, Beat: min(beat, f.timeout)}
	if !forever {
		p.Wait = min(lease.Round(d), maxPlace)
	}
	return p
}

func (fair) Acquire(a hold.Args) script.Call {
	wait, beat := a.Place.Wait.Milliseconds(), a.Place.Beat.Milliseconds()
	if a.Count == 1 {
		return script.NewMutation(acquireFairScript, a.Keys, firstHold, a.Field, a.Lease.Milliseconds(), a.Channel, wait, beat)
	}
	return script.NewMutation(acquireFairScript, a.Keys, nil, a.Field, a.Lease.Milliseconds(), a.Channel, wait, beat, a.Count)
}

func (fair) Release(a hold.Args) script.Call {
	if a.Count == 0 {
		return script.NewMutation(releaseFairScript, a.Keys, lastHold, a.Field, a.Channel)
	}
	return script.NewMutation(releaseFairScript, a.Keys, nil, a.Field, a.Channel, a.Count, a.Lease.Milliseconds())
}

func (fair) Force(a hold.Args) script.Call {
	return script.NewMutation(forceFairScript, a.Keys, nil, a.Channel)
}

func (fair) Leave(a hold.Args) script.Call {
	return script.NewMutation(leaveScript, a.Keys, nil, a.Field, a.Channel, a.Place.Wait.Milliseconds())
}

// Extend doesn't concern the queue, nor does Transfer.
func (fair) Extend(a hold.Args) script.Call {
	a.More = nil
	return plain{}.Extend(a)
}

func (fair) Transfer(a hold.Args) script.Call {
	a.More = nil
	return plain{}.Transfer(a)
}

func (fair) Renewal() *lease.Renewal { return renewal }
