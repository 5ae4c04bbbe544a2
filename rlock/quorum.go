package rlock

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/hold"
)

// QuorumLock is a lock on several independent servers, taken by whoever has a
// majority of them: it works on while a minority is down. It is the algorithm that
// Redis calls Redlock (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/),
// and the part of Redisson's RedissonRedLock. Make it of one lock on each server, by
// a client each, mostly of the same name; three or five are usual.
//
// All members are asked at once, each within a tenth of the lease (50 to 500 ms). It
// is held if a majority was granted, and what is left of the lease then, less 1 % of
// it and 2 ms for the drift of clocks, is positive. Otherwise all is given back, and,
// where there is time to wait, everything tried again after a random pause of up to
// 200 ms: waiters aren't told of a release. There is no order among waiters.
//
// Members are renewed each by itself. The hold is lost, and its context ends, as soon
// as fewer than a majority of all members are held. A member that was lost, or never
// taken, isn't taken again meanwhile.
//
// How safe this is has been disputed. Martin Kleppmann (“How to do distributed
// locking”, https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html)
// shows that it rests on bounded delays and pauses and on clocks that don't jump, and
// that no fencing token comes out of it; Salvatore Sanfilippo answers (“Is Redlock
// safe?”, http://antirez.com/news/101) that the pauses it can't bear are those that
// no lease bears. Both agree on the remedy where a mistake corrupts data: let the
// resource refuse what comes late, with the token of a FencedLock on one server, not
// with a quorum. A quorum saves from the loss of servers, not from a late holder. A
// server that restarts without its data must stay away for a whole lease, else two
// majorities can share it. See docs/quorum.md.
//
// An Unlock of a member by its own Locker takes it out of the quorum's hold; if it is
// taken again by itself, that is left alone. A hold is given back without the members'
// own Unlock, which a type around a lock may have.
//
// Hold.Detach is ErrInvalid, since its members belong to several clients, and the
// fencing token is 0.
type QuorumLock struct{ q *hold.Quorum }

var _ Locker = (*QuorumLock)(nil)

// Quorum makes a lock of locks, a majority of which has to be held. Each belongs to
// a client of its own, on a server of its own: two of one client, or on what is known
// to be one server, are ErrInvalid from the first call, as are none, a nil one, and
// one with a bad name. It sends nothing.
func Quorum(locks ...Locker) *QuorumLock {
	members, err := hold.NewMembers(locks, isLock)
	return &QuorumLock{hold.NewQuorum(members, err)}
}

// Name is the name of the members if they share one, else their names, joined by
// commas.
func (l *QuorumLock) Name() string { return l.q.Name() }

// Lock tries until it has a majority or ctx ends; with Wait(d) it is TryLock. An
// owner that holds it enters once more.
//
// Errors: the context's; ErrLost if the lease was used up, three times, before a
// majority was taken: choose a longer one; ErrInvalid, ErrDenied, ErrReentry,
// ErrClosed and those of a Locker of the user's own, if so many members answer them
// that no majority is left. After an error nothing is held: what may have been granted
// is given back, behind the caller where a server doesn't answer.
func (l *QuorumLock) Lock(ctx context.Context, opts ...Option) (*Hold, error) {
	return l.q.Lock(ctx, opts...)
}

// TryLock asks every member once, or for as long as Wait(d) says. Errors: as Lock,
// and ErrNotAcquired (a *NotAcquiredError) if a majority answered and it is taken;
// ErrUnavailable if no majority answered.
func (l *QuorumLock) TryLock(ctx context.Context, opts ...Option) (*Hold, error) {
	return l.q.TryLock(ctx, opts...)
}

// Unlock gives back the latest hold of a majority that ctx's owner has, by this lock
// or another one of the same members, as Hold.Unlock does: exactly that one, also if
// ctx has ended, and of two calls at once each another one. An owner that has none,
// but took members by their own Lockers, gives back its latest hold of each. It is a
// success if a majority did; what has no answer within the time of a member goes on
// behind the caller. Errors: those of the members, joined; ErrNotHeld; ErrNoOwner.
func (l *QuorumLock) Unlock(ctx context.Context) error { return l.q.Unlock(ctx) }

// ForceUnlock opens all members, and reports whether one of them was held. Errors: as
// IsLocked.
func (l *QuorumLock) ForceUnlock(ctx context.Context) (bool, error) { return l.q.ForceUnlock(ctx) }

// IsLocked reports whether a majority of the members is held, by whomever.
// ErrUnavailable if no majority answered; else the errors of the members.
func (l *QuorumLock) IsLocked(ctx context.Context) (bool, error) { return l.q.IsLocked(ctx) }

// IsHeld asks whether ctx's owner holds a majority. ErrNoOwner if ctx carries none;
// else as IsLocked.
func (l *QuorumLock) IsHeld(ctx context.Context) (bool, error) { return l.q.IsHeld(ctx) }

// HoldCount is the number of holds that ctx's owner has on a majority. Errors as
// IsHeld.
func (l *QuorumLock) HoldCount(ctx context.Context) (int, error) { return l.q.HoldCount(ctx) }

// TTL is for how long a majority is held unless it is renewed: 0 if it is free.
// Errors as IsLocked.
func (l *QuorumLock) TTL(ctx context.Context) (time.Duration, error) { return l.q.TTL(ctx) }

// Do runs fn while holding the lock, with Hold.Context, and gives it back
// afterwards, also if fn panics. Errors: those of Lock, with fn not called; else
// fn's, joined with that of the release if there is one.
func (l *QuorumLock) Do(ctx context.Context, fn func(ctx context.Context) error, opts ...Option) error {
	return l.q.Do(ctx, fn, opts...)
}
