package golden

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/rlock"
)

func readWriteLock(s *stage) {
	l := s.client.RWLock("n")
	s.lock(l.Read(), 1)
	s.Look("read lock")
	s.lock(l.Read(), 1)
	s.Look("read lock again")
	s.lock(l.Read(), 65, holdfast.Lease(12*time.Second))
	s.Look("second reader, lease 12 s")
	s.Answer("reader tries write: %v", s.try(l.Write(), 1))
	s.ok(l.Read().Unlock(s.as(65)))
	s.Look("second reader gone")
	s.ok(l.Read().Unlock(s.as(1)))
	s.Look("read unlock (1 left)")
	s.ok(l.Read().Unlock(s.as(1)))
	s.Look("read unlock (0 left)")

	s.lock(l.Write(), 1)
	s.Look("write lock")
	s.lock(l.Write(), 1)
	s.Look("write lock again")
	s.ok(l.Write().Unlock(s.as(1)))
	s.Look("write unlock (1 left)")
	s.lock(l.Read(), 1)
	s.Look("writer reads")
	s.ok(l.Write().Unlock(s.as(1)))
	s.Look("downgraded")
	s.ok(l.Read().Unlock(s.as(1)))
	s.Look("read unlock")
}

func manyReaders(s *stage) {
	l := s.client.RWLock("n").Read()
	for _, thread := range []int{101, 102, 103} {
		s.Answer("reader %d tryLock: %v", thread, s.try(l, thread))
	}
	s.Look("three readers")
	for _, thread := range []int{101, 102, 103} {
		s.ok(l.Unlock(s.as(thread)))
		s.Answer("unlock %d: null", thread)
	}
	s.Look("three unlocks")
}

// try asks for l once, and tells whether the thread got it.
func (s *stage) try(l rlock.Locker, thread int) bool {
	s.Helper()
	_, err := l.TryLock(s.as(thread))
	if !errors.Is(err, holdfast.ErrNotAcquired) && !errors.Is(err, holdfast.ErrUpgrade) {
		s.ok(err)
	}
	return err == nil
}
