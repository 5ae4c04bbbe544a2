package rlock

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/hold"
)

// SpinLock is the re-entrant lock without pub/sub: Redisson's getSpinLock, on the
// keys of Lock. Nobody subscribes, and an unlock publishes nothing: a waiter
// sleeps for as long as its Backoff says and asks again, earlier only when the
// holder's lease runs out or the holder was a goroutine of the same client. It
// costs Redis no subscriptions, and a steady trickle of commands per waiting
// client: of the goroutines of one client that want a name one alone asks.
//
// It excludes a Lock of the same name, and the other way round. But a Lock that
// waits hears nothing when a SpinLock is given back: it finds out by the holder's
// time to live or the slow poll (WithPollFallback), as a waiter of Redisson's
// does by the former. Use one kind for a name.
type SpinLock struct {
	ref
	m *hold.Mutex
}

var _ Locker = (*SpinLock)(nil)

// NewSpinLock makes a lock on a client's services. Users call Client.SpinLock.
func NewSpinLock(s *hold.Services, name string, b Backoff, opts ...LockOption) *SpinLock {
	b, err := backoff(b)
	m := hold.NewMutex(s, spin{Backoff: b}, name, configure(opts).nonReentrant)
	if err != nil {
		m.Refuse(err)
	}
	return &SpinLock{ref: m.Ref(), m: m}
}

// Name is the name that the lock was made with.
func (l *SpinLock) Name() string { return l.m.Name() }

// Lock asks until it has the lock or ctx ends, which ends a pause at once: as
// Lock.Lock.
func (l *SpinLock) Lock(ctx context.Context, opts ...Option) (*Hold, error) {
	return l.m.Lock(ctx, opts...)
}

// TryLock asks once, or for as long as Wait(d) says and a last time then: as
// Lock.TryLock.
func (l *SpinLock) TryLock(ctx context.Context, opts ...Option) (*Hold, error) {
	return l.m.TryLock(ctx, opts...)
}

// Unlock gives back the latest hold of ctx's owner: as Lock.Unlock. It publishes
// nothing.
func (l *SpinLock) Unlock(ctx context.Context) error { return l.m.Unlock(ctx) }

// ForceUnlock opens the lock whoever holds it: as Lock.ForceUnlock. It publishes
// nothing.
func (l *SpinLock) ForceUnlock(ctx context.Context) (bool, error) { return l.m.ForceUnlock(ctx) }

// IsLocked reports whether anybody holds the lock: as Lock.IsLocked.
func (l *SpinLock) IsLocked(ctx context.Context) (bool, error) { return l.m.IsLocked(ctx) }

// IsHeld asks Redis whether ctx's owner holds the lock: as Lock.IsHeld.
func (l *SpinLock) IsHeld(ctx context.Context) (bool, error) { return l.m.IsHeld(ctx) }

// HoldCount asks Redis how many holds ctx's owner has: as Lock.HoldCount.
func (l *SpinLock) HoldCount(ctx context.Context) (int, error) { return l.m.HoldCount(ctx) }

// TTL is how long the present hold lasts unless it is renewed: as Lock.TTL.
func (l *SpinLock) TTL(ctx context.Context) (time.Duration, error) { return l.m.TTL(ctx) }

// Do runs fn while holding the lock: as Lock.Do.
func (l *SpinLock) Do(ctx context.Context, fn func(ctx context.Context) error, opts ...Option) error {
	return l.m.Do(ctx, fn, opts...)
}

// spin is the kind of the spin lock: a plain one without a channel.
type spin struct {
	plain
	Backoff
}

var _ hold.Spinner = spin{}

func (spin) ID() string { return "spin" }

// Channel implements hold.Kind: nobody is told.
func (spin) Channel(string) string { return "" }
