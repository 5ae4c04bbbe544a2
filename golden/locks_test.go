package golden

import (
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/rlock"
)

// lock takes l for a thread.
func (s *stage) lock(l rlock.Locker, thread int, opts ...rlock.Option) *rlock.Hold {
	s.Helper()
	h, err := l.Lock(s.as(thread), opts...)
	s.ok(err)
	return h
}

func reentrantLock(s *stage) {
	l := s.client.Lock("n")
	s.lock(l, 1)
	s.Look("lock")
	s.lock(l, 1)
	s.Look("lock again")
	s.ok(l.Unlock(s.as(1)))
	s.Look("unlock (1 left)")
	s.ok(l.Unlock(s.as(1)))
	s.Look("unlock (0 left)")
	s.lock(l, 1, holdfast.Lease(7*time.Second))
	s.Look("lock with lease 7s")
	s.yes(l.ForceUnlock(s.as(1)))
	s.Look("force unlock")
	s.Answer("unlock when not held: %v", l.Unlock(s.as(1)))
}

func namedWithBraces(s *stage) {
	l := s.client.Lock("x{y}z")
	s.lock(l, 1)
	s.Look("lock")
	s.ok(l.Unlock(s.as(1)))
	s.Look("unlock")
}

func spinLock(s *stage) {
	l := s.client.SpinLock("n", nil)
	s.lock(l, 1)
	s.Look("spin lock")
	s.ok(l.Unlock(s.as(1)))
	s.Look("spin unlock")
}

func onceOnly(s *stage)     { enteredOnce(s, s.client.Lock("n", rlock.NonReentrant())) }
func onceOnlyFair(s *stage) { enteredOnce(s, s.client.FairLock("n", rlock.NonReentrant())) }

func enteredOnce(s *stage, l rlock.Locker) {
	s.lock(l, 1)
	s.Look("lock")
	_, err := l.TryLock(s.as(1))
	s.Answer("its holder tries again: %v", err)
	s.Look("tryLock of the holder")
	s.ok(l.Unlock(s.as(1)))
	s.Look("unlock")
}

func fencedLock(s *stage) {
	l := s.client.FencedLock("n")
	h := s.lock(l, 1)
	s.Answer("token %d", h.Token())
	s.Look("lock")
	h = s.lock(l, 1)
	last, err := l.CurrentToken(s.as(1))
	s.ok(err)
	s.Answer("token at re-entry %d, getToken %d", h.Token(), last)
	s.Look("lock again")
	s.ok(l.Unlock(s.as(1)))
	s.ok(l.Unlock(s.as(1)))
	s.Look("unlock twice")
}

func multiLock(s *stage) {
	l := s.client.MultiLock(s.client.Lock("m1"), s.client.Lock("m2"))
	s.lock(l, 1)
	s.Look("lock")
	s.ok(l.Unlock(s.as(1)))
	s.Look("unlock")
}
