package rlock

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/hold"
)

// MultiLock is several locks as one, all or nothing: Redisson's RedissonMultiLock.
// Its members may be of any kind, of several clients and servers, and of the
// user's own making. It has no keys of its own in Redis: it is the sum of its
// members, and whoever wants one of them alone contends with it.
//
// All members are held by one owner: the context's, or a fresh one. A lock that is
// given twice is taken once. Nobody waits for a member while holding others: who is
// refused one gives all back, waits for that one alone, and begins again with it, so
// that multi locks over the same names in another order can't block each other.
// There is no promise of fairness: one that wants many contended names may see many
// that want one of them go by.
//
// Locks made by Client.Lock of one client, and on a cluster of one slot, are taken
// in one script call, and given back in one, up to 100 in a call. Others are asked
// one after the other.
//
// The lease of a hold counts from the end of the acquisition, and a fixed one ends
// for all members as soon as it does for one. Its context ends as soon as one member
// is lost or given back; Unlock gives all back. Its fencing token is 0: fence each
// member with a FencedLock, and look at its own holds.
//
// An Unlock of a member by its own Locker ends the hold's context (ErrReleased). The
// other members stay held, and renewed, until the hold's Unlock, which gives them back
// and says ErrNotHeld of this one; if it was taken again by itself meanwhile, that is
// left alone. A hold is given back without the members' own Unlock, which a type
// around a lock may have.
type MultiLock struct{ m *hold.Multi }

var _ Locker = (*MultiLock)(nil)

// NewMultiLock makes a multi lock on a client's services. Users call
// Client.MultiLock.
func NewMultiLock(s *hold.Services, locks ...Locker) *MultiLock {
	members, err := hold.NewMembers(locks, isLock)
	return &MultiLock{hold.NewMulti(s, members, err)}
}

// isLock knows a Lock itself from a type around one, which may do more.
func isLock(l Locker) bool {
	_, ok := l.(*Lock)
	return ok
}

// Name is the members' names, joined by commas.
func (l *MultiLock) Name() string { return l.m.Name() }

// Lock waits until it has all members or ctx ends, also while Redis doesn't answer;
// with Wait(d) it is TryLock. An owner that holds them enters each once more.
//
// Errors: the context's, with what Redis said last; ErrLost if a fixed lease was
// used up, three times, before the last member was taken: choose a longer one;
// ErrInvalid for no members, a nil one, a bad name or option, or a key that holds
// something else; ErrDenied; ErrReentry; ErrClosed; those of a Locker of the user's
// own. After an error nothing is held: what may have been granted meanwhile is given
// back behind the caller, who leaves at once when ctx ends.
func (l *MultiLock) Lock(ctx context.Context, opts ...Option) (*Hold, error) {
	return l.m.Lock(ctx, opts...)
}

// TryLock asks every member once, or for as long as Wait(d) says, and once all the
// way through however short that is: without an answer from Redis that may last the
// command timeout (WithCommandTimeout). Errors: as Lock, and ErrNotAcquired (a
// *NotAcquiredError with the remaining time of the member that refused, which the
// text names); ErrUnavailable if Redis gave no answer.
func (l *MultiLock) TryLock(ctx context.Context, opts ...Option) (*Hold, error) {
	return l.m.TryLock(ctx, opts...)
}

// Unlock gives back the latest hold of all members that ctx's owner has, by this lock
// or another one of the same members, as Hold.Unlock does: exactly that one, also if
// ctx has ended, and of two calls at once each another one. An owner that has none,
// but took members by their own Lockers, gives back its latest hold of each. Errors:
// those of the members, joined; ErrNotHeld names the members that it doesn't have, and
// the others are given back all the same; ErrNoOwner.
func (l *MultiLock) Unlock(ctx context.Context) error { return l.m.Unlock(ctx) }

// ForceUnlock opens every member whoever holds it, and reports whether one of them
// was held. Errors: those of the members, joined.
func (l *MultiLock) ForceUnlock(ctx context.Context) (bool, error) { return l.m.ForceUnlock(ctx) }

// IsLocked reports whether anybody holds any of the members.
func (l *MultiLock) IsLocked(ctx context.Context) (bool, error) { return l.m.IsLocked(ctx) }

// IsHeld asks whether ctx's owner holds all of them. ErrNoOwner if ctx carries none.
func (l *MultiLock) IsHeld(ctx context.Context) (bool, error) { return l.m.IsHeld(ctx) }

// HoldCount is the smallest of the members', for ctx's owner. Errors as IsHeld.
func (l *MultiLock) HoldCount(ctx context.Context) (int, error) { return l.m.HoldCount(ctx) }

// TTL is the shortest of the members': 0 if one of them is free, negative if none
// has an expiry.
func (l *MultiLock) TTL(ctx context.Context) (time.Duration, error) { return l.m.TTL(ctx) }

// Do runs fn while holding all members, with Hold.Context, and gives them back
// afterwards, also if fn panics. Errors: those of Lock, with fn not called; else
// fn's, joined with that of the release if there is one.
func (l *MultiLock) Do(ctx context.Context, fn func(ctx context.Context) error, opts ...Option) error {
	return l.m.Do(ctx, fn, opts...)
}
