package rrwlock

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/hold"
)

// Names shared by all primitives, put where users of this package look.
type (
	// Locker is what every kind of lock can do. It is rlock.Locker; ErrUpgrade comes
	// from Lock and TryLock of a writer whose owner reads.
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
	// Hold is one acquisition; a re-entry is a Hold of its own. It is rlock.Hold.
	//
	//	Name() string
	//	Context() context.Context          the caller's, with the owner; ends with cause ErrLost
	//	                                   before the key can pass on, ErrReleased at the unlock,
	//	                                   ErrClosed at Client.Close
	//	Unlock(ctx) error                  exactly this hold, once, also if ctx has ended. Errors:
	//	                                   ErrNotHeld at a second call, with ErrLost if it was lost;
	//	                                   ErrUncertain; ErrDenied; ErrClosed
	//	Extend(ctx, d time.Duration) error a lease of at least d from now. Errors: ErrInvalid,
	//	                                   ErrNotHeld (ErrLost), ErrUncertain, ErrDenied, ErrClosed,
	//	                                   ErrUnavailable, ErrNotReplicated, the context's
	//	Detach() (handle string, error)    ends it here; Client.Resume takes it up, once. Errors:
	//	                                   ErrInvalid, ErrNotHeld, ErrDenied, ErrUnavailable,
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
// negative. It is rlock.Wait.
func Wait(d time.Duration) Option { return hold.Wait(d) }

// Lease gives the hold a fixed lease of d instead of one that is renewed. It is
// rlock.Lease.
func Lease(d time.Duration) Option { return hold.Lease(d) }

// RWLock is the read-write lock: Redisson's RReadWriteLock, on the same keys. It has
// no state of its own: any number of objects for one name, in any number of
// goroutines, are one lock.
type RWLock struct{ read, write *hold.Mutex }

// New makes a read-write lock on a client's services. Users call Client.RWLock.
func New(s *hold.Services, name string) *RWLock {
	return &RWLock{hold.NewMutex(s, reader{}, name, false), hold.NewMutex(s, writer{}, name, false)}
}

// Name is the name that the lock was made with.
func (l *RWLock) Name() string { return l.read.Name() }

// Read is the lock's reading side: many owners may hold it at once, unless
// somebody else writes. An owner that holds nothing yet waits, too, while a writer
// waits: TryLock is ErrNotAcquired then. IsLocked reports whether it is held for
// reading only; ForceUnlock throws all readers out, TTL is that of the whole lock.
// Errors: those of Locker.
func (l *RWLock) Read() Locker { return l.read }

// Write is the lock's writing side: one owner may hold it, while nobody else reads.
// To an owner that reads, and doesn't write yet, Lock and TryLock answer
// ErrUpgrade at once. The writer may read as well; when it gives its last write
// hold back, it goes on reading, and others may. (Such a read hold is taken with the
// owner's context: with Hold.Context of the write hold, its own would end with
// that.) IsLocked reports whether somebody
// writes; ForceUnlock throws the writer out, with its read holds; TTL is that of
// the whole lock. Errors: those of Locker, and ErrUpgrade.
func (l *RWLock) Write() Locker { return l.write }

// Resumes reports whether holds of a kind are taken up by Resume.
func Resumes(kind string) bool { return kind == readKind || kind == writeKind }

// Resume takes up a detached hold of either side. Users call Client.Resume.
func Resume(ctx context.Context, s *hold.Services, kind, name, handle string, opts ...Option) (*Hold, error) {
	l := New(s, name)
	m := l.write
	if kind == readKind {
		m = l.read
	}
	return hold.Resume(ctx, m, handle, opts...)
}
