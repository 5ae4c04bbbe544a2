package rrwlock

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/hold"
)

// Names shared by all primitives, put where users of this package look.
type (
	// Locker is what every kind of lock can do: it is rlock.Locker.
	Locker = hold.Locker
	// Hold is one acquisition; a re-entry is a Hold of its own. It is rlock.Hold.
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
