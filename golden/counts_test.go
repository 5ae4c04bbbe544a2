package golden

import (
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/rlimiter"
	"github.com/holdfast-go/holdfast/rsemaphore"
)

func semaphore(s *stage) {
	sem, ctx := s.client.Semaphore("n"), s.Context()
	first, err := sem.TrySetPermits(ctx, 3)
	s.ok(err)
	again, err := sem.TrySetPermits(ctx, 3)
	s.ok(err)
	s.Answer("trySet %v again %v", first, again)
	s.Look("trySetPermits(3)")
	s.ok(sem.Acquire(ctx, 2))
	s.Look("acquire(2)")
	s.ok(sem.Release(ctx, 1))
	s.Look("release")
	s.ok(sem.AddPermits(ctx, 4))
	s.Look("addPermits(4)")
	s.ok(sem.AddPermits(ctx, -20))
	s.Look("addPermits(-20)")
	n, err := sem.Drain(ctx)
	s.ok(err)
	s.Answer("drain %d", n)
	s.Look("drain")
}

func expirable(s *stage) {
	sem, ctx := s.client.ExpirableSemaphore("n"), s.Context()
	set, err := sem.TrySetPermits(ctx, 3)
	s.ok(err)
	s.Answer("trySet %v", set)
	s.Look("trySetPermits(3)")

	first, err := sem.Acquire(ctx)
	s.ok(err)
	s.Answer("permit id length %d", len(first.ID()))
	s.Look("acquire, no lease")
	second, err := sem.Acquire(ctx, rsemaphore.Lease(2*time.Second))
	s.ok(err)
	s.Look("acquire, lease 2 s")
	s.ok(sem.Extend(ctx, second.ID(), 30*time.Second))
	s.Answer("update lease true")
	s.Look("updateLeaseTime 30 s")
	s.ok(sem.Release(ctx, first.ID()))
	s.Look("release")
	s.Answer("release again: %v", strings.ReplaceAll(sem.Release(ctx, first.ID()).Error(), first.ID(), "<id 1>"))

	s.ok(sem.SetPermits(ctx, 5))
	s.Look("setPermits(5)")
	s.ok(sem.Release(ctx, second.ID()))
	s.Look("release")
	free, err := sem.Available(ctx)
	s.ok(err)
	taken, err := sem.Acquired(ctx)
	s.ok(err)
	s.Answer("available %d acquired %d", free, taken)
}

func latch(s *stage) {
	l, ctx := s.client.Latch("n"), s.Context()
	first, err := l.TrySetCount(ctx, 2)
	s.ok(err)
	again, err := l.TrySetCount(ctx, 2)
	s.ok(err)
	s.Answer("trySet %v again %v", first, again)
	s.Look("trySetCount(2)")
	s.ok(l.CountDown(ctx))
	s.Look("countDown")
	s.ok(l.CountDown(ctx))
	s.Look("countDown to 0")
	s.ok(l.CountDown(ctx))
	s.Look("countDown below 0")
	s.yes(l.TrySetCount(ctx, 1))
	s.yes(l.Delete(ctx))
	s.Look("delete")
}

func latchWithBraces(s *stage) {
	l, ctx := s.client.Latch("x{y}z"), s.Context()
	s.yes(l.TrySetCount(ctx, 1))
	s.ok(l.CountDown(ctx))
	s.Look("set 1, countDown")
}

func rateLimiter(s *stage) {
	l, ctx := s.client.RateLimiter("n"), s.Context()
	set, err := l.TrySetRate(ctx, rlimiter.Overall, 5, 10*time.Second)
	s.ok(err)
	s.Answer("trySetRate %v", set)
	s.Look("trySetRate(OVERALL, 5, 10 s)")
	s.ok(l.TryAcquire(ctx, 2))
	s.Answer("tryAcquire(2) true")
	s.Look("tryAcquire(2)")
	s.ok(l.SetRate(ctx, rlimiter.PerClient, 3, 10*time.Second))
	s.Look("setRate(PER_CLIENT)")
	s.ok(l.TryAcquire(ctx, 1))
	s.Answer("tryAcquire(1) true")
	s.Look("tryAcquire(1)")
}
