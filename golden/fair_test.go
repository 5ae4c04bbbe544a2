package golden

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rlock"
)

// prompt is how long what happens at once may take on a busy machine.
const prompt = 20 * time.Second

func fairLock(s *stage) {
	l := s.client.FairLock("n")
	s.lock(l, 1)
	s.Look("lock")

	first := s.waiter(l, 62)
	s.queued(1)
	s.Look("first waiter, no limit")
	second := s.waiter(l, 63, holdfast.Wait(20*time.Second), holdfast.Lease(9*time.Second))
	s.queued(2)
	s.Look("second waiter, tryLock(20 s, lease 9 s)")
	third := s.waiter(l, 64, holdfast.Wait(time.Second))
	s.queued(3)
	s.Look("third waiter, tryLock(1 s)")
	s.Answer("w3 got %v", <-third)
	s.queued(2)
	s.Look("third gave up")

	s.ok(l.Unlock(s.as(1)))
	<-first
	s.Look("unlock: first waiter has it")
	s.ok(l.Unlock(s.as(62)))
	s.Answer("w2 got %v", <-second)
	s.Look("second has it")
	s.ok(l.Unlock(s.as(63)))
	s.Look("all done")
}

// waiter asks for l on a goroutine, and tells whether it got it.
func (s *stage) waiter(l rlock.Locker, thread int, opts ...rlock.Option) <-chan bool {
	got := make(chan bool, 1)
	go func() {
		_, err := l.Lock(s.as(thread), opts...)
		if err != nil && !errors.Is(err, holdfast.ErrNotAcquired) {
			s.Errorf("waiter %d: %v", thread, err)
		}
		got <- err == nil
	}()
	return got
}

// queued waits until so many stand in line.
func (s *stage) queued(n int64) {
	s.Helper()
	redistest.Eventually(s, prompt, func() bool {
		have, err := s.Redis.LLen(s.Context(), "redisson_lock_queue:{n}").Result()
		return err == nil && have == n
	}, "%d stand in line", n)
}
