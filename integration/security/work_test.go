package security

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rlimiter"
	"github.com/holdfast-go/holdfast/rlock"
)

// handOver has b wait for what a holds for longer than its lease, and then lets it
// in. It answers b's error.
func (p *pair) handOver(ctx context.Context, take func(context.Context) error, give func() error) error {
	done := make(chan error, 1)
	go func() { done <- take(ctx) }()
	rest := time.NewTimer(lease * 5 / 4)
	defer rest.Stop()
	select {
	case <-rest.C:
	case err := <-done:
		if err == nil {
			err = errors.New("it got in beside the holder")
		}
		return err
	}
	return errors.Join(give(), <-done)
}

// lock does with a lock what a Locker can do.
func (p *pair) lock(ctx context.Context, of func(*holdfast.Client) rlock.Locker) error {
	l, other := of(p.a), of(p.b)
	h, err := l.Lock(ctx)
	if err != nil {
		return step("lock", err)
	}
	_, err1 := l.IsLocked(ctx)
	_, err2 := l.IsHeld(h.Context())
	_, err3 := l.HoldCount(h.Context())
	_, err4 := l.TTL(ctx)
	inner, err := l.TryLock(h.Context())
	if err = errors.Join(err1, err2, err3, err4, err); err != nil {
		return errors.Join(step("look, and enter again", err), h.Unlock(ctx))
	}
	if err := inner.Unlock(ctx); err != nil {
		return step("unlock once", err)
	}
	if _, err := other.TryLock(ctx); !errors.Is(err, holdfast.ErrNotAcquired) {
		return step("try", err)
	}
	err = locktest.Answered(func() error {
		_, err := other.TryLock(ctx, rlock.Wait(20*time.Millisecond))
		return err
	})
	if !errors.Is(err, holdfast.ErrNotAcquired) {
		return step("try for a while", err)
	}
	var there *rlock.Hold
	err = p.handOver(ctx, func(ctx context.Context) (err error) { there, err = other.Lock(ctx); return err }, func() error {
		if err := context.Cause(h.Context()); err != nil {
			return err
		}
		return h.Unlock(ctx)
	})
	if err != nil {
		return step("wait", err)
	}
	if err := there.Unlock(ctx); err != nil {
		return step("unlock", err)
	}

	h, err = l.Lock(ctx, rlock.Lease(time.Minute))
	if err != nil {
		return step("lock with a lease", err)
	}
	if err := h.Extend(ctx, 2*time.Minute); err != nil {
		return step("extend", err)
	}
	handle, err := h.Detach()
	if err == nil {
		h, err = p.b.Resume(ctx, handle, rlock.Lease(time.Minute))
	}
	if err != nil {
		return step("pass on", err)
	}
	if _, err := l.ForceUnlock(ctx); err != nil {
		return step("force", err)
	}
	if err := h.Unlock(ctx); !errors.Is(err, holdfast.ErrNotHeld) {
		return step("unlock after a force", err)
	}
	return p.cohort(ctx, l, other)
}

// cohort hands a lock within a client, and to those outside, with one who leaves.
func (p *pair) cohort(ctx context.Context, l, other rlock.Locker) error {
	h, err := l.Lock(ctx)
	if err != nil {
		return step("lock", err)
	}
	n := 0
	results := make(chan error)
	for _, l := range []rlock.Locker{l, l, other, other} {
		n++
		go func() { results <- l.Do(holdfast.WithOwner(ctx), func(context.Context) error { return nil }) }()
	}
	leaves, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := other.Lock(leaves); !errors.Is(err, context.DeadlineExceeded) {
		return step("wait for a moment", err)
	}
	err = h.Unlock(ctx)
	for range n {
		err = errors.Join(err, <-results)
	}
	return step("one after the other", err)
}

func (p *pair) fenced(ctx context.Context) error {
	if err := p.lock(ctx, func(c *holdfast.Client) rlock.Locker { return c.FencedLock("n") }); err != nil {
		return err
	}
	l := p.a.FencedLock("n")
	_, err := l.CurrentToken(ctx)
	if err == nil {
		err = l.RaiseToken(ctx, 1000)
	}
	if err == nil {
		_, err = l.DeleteToken(ctx)
	}
	return step("tokens", err)
}

// queue has waiters of a fair lock die, and others pass them over.
func (p *pair) queue(ctx context.Context) error {
	key := p.prefix + "q"
	rdb := server.Client(p.t)
	h, err := p.a.FairLock("q").Lock(ctx, rlock.Lease(time.Minute))
	if err != nil {
		return step("lock", err)
	}
	for i, who := range []string{"dead:1", "dead:2"} {
		score := float64(time.Now().Add(-time.Minute).UnixMilli() + int64(i))
		err := errors.Join(
			rdb.RPush(ctx, "redisson_lock_queue:{"+key+"}", who).Err(),
			rdb.Do(ctx, "zadd", "redisson_lock_timeout:{"+key+"}", score, who).Err(),
		)
		if err != nil {
			return err
		}
	}
	err = p.handOver(ctx, func(ctx context.Context) error {
		return p.b.FairLock("q").Do(ctx, func(context.Context) error { return nil })
	}, func() error { return h.Unlock(ctx) })
	return step("pass over the dead", err)
}

// readers has several read, one of them twice, and one of them die.
func (p *pair) readers(ctx context.Context) error {
	read := func(c *holdfast.Client) rlock.Locker { return c.RWLock("r").Read() }
	if err := p.readAndWrite(ctx); err != nil {
		return err
	}
	l, w := read(p.a), p.a.RWLock("r").Write()
	first, err := l.Lock(ctx, rlock.Lease(time.Minute))
	if err != nil {
		return step("read", err)
	}
	second, err := l.Lock(first.Context(), rlock.Lease(2*time.Minute))
	if err != nil {
		return step("read twice", err)
	}
	brief, err := read(p.b).Lock(ctx, rlock.Lease(time.Millisecond))
	if err != nil {
		return step("read for a moment", err)
	}
	<-brief.Context().Done()
	err = errors.Join(first.Extend(ctx, 3*time.Minute), first.Unlock(ctx))
	if err != nil {
		return step("out of order", err)
	}
	handle, err := second.Detach()
	if err == nil {
		second, err = p.b.Resume(ctx, handle)
	}
	if err != nil {
		return step("pass a reader on", err)
	}
	if _, err := w.TryLock(second.Context()); !errors.Is(err, holdfast.ErrUpgrade) && !errors.Is(err, holdfast.ErrNotAcquired) {
		return step("upgrade", err)
	}
	_, err1 := l.IsLocked(ctx)
	_, err2 := l.HoldCount(second.Context())
	_, err3 := l.TTL(ctx)
	_, err4 := l.ForceUnlock(ctx)
	return step("look and force", errors.Join(err1, err2, err3, err4))
}

// readAndWrite has readers wait for a writer that goes on as a reader, and the
// other way round.
func (p *pair) readAndWrite(ctx context.Context) error {
	rw, other := p.a.RWLock("r"), p.b.RWLock("r")
	h, err := rw.Write().Lock(ctx)
	if err != nil {
		return step("write", err)
	}
	own, err := rw.Read().Lock(h.Context())
	if err != nil {
		return step("read as the writer", err)
	}
	var reads *rlock.Hold
	err = p.handOver(ctx, func(ctx context.Context) (err error) { reads, err = other.Read().Lock(ctx); return err },
		func() error { return h.Unlock(ctx) })
	if err != nil {
		return step("wait to read", err)
	}
	err = p.handOver(ctx, func(ctx context.Context) error {
		return other.Write().Do(ctx, func(ctx context.Context) error {
			// Others come while it writes: their turn is next.
			go func() { _, _ = rw.Read().TryLock(holdfast.WithOwner(ctx), rlock.Wait(lease)) }()
			return nil
		})
	}, func() error {
		if _, err := rw.Read().TryLock(holdfast.WithOwner(ctx)); !errors.Is(err, holdfast.ErrNotAcquired) {
			return step("read past a waiting writer", err)
		}
		return errors.Join(own.Unlock(ctx), reads.Unlock(ctx))
	})
	if err != nil {
		return step("wait to write", err)
	}
	h, err = rw.Write().Lock(ctx)
	if err != nil {
		return step("write again", err)
	}
	leaves, cancel := context.WithTimeout(ctx, lease/4)
	defer cancel()
	if _, err := other.Write().Lock(leaves); !errors.Is(err, context.DeadlineExceeded) {
		return step("wait to write for a moment", err)
	}
	leaves, cancel = context.WithTimeout(ctx, lease/4)
	defer cancel()
	if _, err := other.Read().Lock(leaves); !errors.Is(err, context.DeadlineExceeded) {
		return step("wait to read for a moment", err)
	}
	return step("done with writing", h.Unlock(ctx))
}

func (p *pair) semaphore(ctx context.Context) error {
	s, other := p.a.Semaphore("s"), p.b.Semaphore("s")
	_, err1 := s.TrySetPermitsFor(ctx, 3, time.Hour)
	_, err2 := s.Expire(ctx, 2*time.Hour)
	if err := errors.Join(err1, err2, s.AddPermits(ctx, -1), s.Acquire(ctx, 2)); err != nil {
		return step("set and take", err)
	}
	if err := other.TryAcquire(ctx, 1); !errors.Is(err, holdfast.ErrNotAcquired) {
		return step("try", err)
	}
	err := p.handOver(ctx, func(ctx context.Context) error { return other.Acquire(ctx, 1) }, func() error { return s.Release(ctx, 1) })
	if err != nil {
		return step("wait", err)
	}
	leaves, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
	defer cancel()
	if err := other.Acquire(leaves, 1); !errors.Is(err, context.DeadlineExceeded) {
		return step("wait for a moment", err)
	}
	_, err1 = s.ReleaseIfExists(ctx, 1)
	_, err2 = s.Available(ctx)
	_, err3 := s.Drain(ctx)
	_, err4 := s.Exists(ctx)
	_, err5 := s.Delete(ctx)
	return step("look and remove", errors.Join(err1, err2, err3, err4, err5))
}

func (p *pair) expirable(ctx context.Context) error {
	e, other := p.a.ExpirableSemaphore("e"), p.b.ExpirableSemaphore("e")
	_, err1 := e.TrySetPermits(ctx, 1)
	if err := errors.Join(err1, e.AddPermits(ctx, 1)); err != nil {
		return step("set", err)
	}
	if _, err := e.Expire(ctx, time.Hour); err != nil {
		return step("expire", err)
	}
	brief, err := other.Acquire(ctx, rlock.Lease(20*time.Millisecond))
	if err != nil {
		return step("take for a moment", err)
	}
	<-brief.Context().Done()
	var mine []string
	permits, err := e.AcquireN(ctx, 2) // when the other has come back
	if err != nil {
		return step("take two", err)
	}
	for _, q := range permits {
		mine = append(mine, q.ID())
	}
	err = p.handOver(ctx, func(ctx context.Context) error {
		q, err := other.Acquire(ctx)
		if err == nil {
			err = q.Release(ctx)
		}
		return err
	}, func() error {
		return errors.Join(context.Cause(permits[0].Context()), e.Extend(ctx, mine[0], time.Minute), e.Release(ctx, mine[0]))
	})
	if err != nil {
		return step("wait", err)
	}
	_, err1 = e.LeaseOf(ctx, mine[1])
	handle, err2 := permits[1].Detach()
	if err := errors.Join(err1, err2); err != nil {
		return step("look at a lease", err)
	}
	again, err := other.Resume(ctx, handle)
	if err != nil {
		return step("pass on", err)
	}
	_, err1 = e.TryRelease(ctx, again.ID())
	_, err2 = e.Available(ctx)
	_, err3 := e.Permits(ctx)
	_, err4 := e.Acquired(ctx)
	err5 := e.SetPermits(ctx, 5)
	_, err6 := e.Exists(ctx)
	_, err7 := e.Delete(ctx)
	return step("look and remove", errors.Join(err1, err2, err3, err4, err5, err6, err7))
}

func (p *pair) latch(ctx context.Context) error {
	l, other := p.a.Latch("l"), p.b.Latch("l")
	_, err := l.TrySetCount(ctx, 2)
	if err = errors.Join(err, l.CountDown(ctx)); err != nil {
		return step("set and count", err)
	}
	if err := p.handOver(ctx, other.Await, func() error { return l.CountDown(ctx) }); err != nil {
		return step("wait", err)
	}
	_, err1 := l.TrySetCount(ctx, 1)
	_, err2 := l.Count(ctx)
	if err := errors.Join(err1, err2); err != nil {
		return step("set again", err)
	}
	return step("delete", p.handOver(ctx, other.Await, func() error { _, err := l.Delete(ctx); return err }))
}

func (p *pair) limiter(ctx context.Context) error {
	for _, kind := range []rlimiter.Kind{rlimiter.Overall, rlimiter.PerClient} {
		l := p.a.RateLimiter(fmt.Sprint("r", kind))
		_, err := l.TrySetRate(ctx, kind, 2, lease/2, rlimiter.KeepAlive(time.Hour))
		if err != nil {
			return step("set", err)
		}
		for range 3 { // the third waits for the first to leave the window
			if err := l.Acquire(ctx, 1); err != nil {
				return step("take", err)
			}
		}
		if err := l.SetRate(ctx, kind, 5, time.Hour); err != nil {
			return step("set anew", err)
		}
		err = errors.Join(l.Acquire(ctx, 3), l.Release(ctx, 2), l.UpdateRate(ctx, kind, 4, time.Hour))
		value := "{" + p.prefix + l.Name() + "}:value"
		if kind == rlimiter.PerClient {
			value += ":" + p.a.ID()
		}
		err = errors.Join(err, server.Client(p.t).Set(ctx, value, 1000, 0).Err()) // as Redisson may leave it
		_, err1 := l.Config(ctx)
		_, err2 := l.Available(ctx)
		_, err3 := l.Exists(ctx)
		_, err4 := l.Expire(ctx, time.Hour)
		_, err5 := l.Delete(ctx)
		if err := errors.Join(err, err1, err2, err3, err4, err5); err != nil {
			return step("give back, look and remove", err)
		}
	}
	l := p.a.RateLimiter("left")
	if err := l.SetRate(ctx, rlimiter.Overall, 1000, time.Hour); err != nil {
		return step("set", err)
	}
	for i := range 200 { // some of them leave between the grant and its answer
		leaves, cancel := context.WithTimeout(ctx, time.Duration(i)*5*time.Microsecond)
		_ = l.Acquire(leaves, 1) // granted or not
		cancel()
	}
	_, err := l.Delete(ctx)
	return step("delete", err)
}

// inspect looks at all that the server's own user has set up.
func (p *pair) inspect(ctx context.Context) error {
	all, err := holdfast.Open(server.URL(), holdfast.WithPrefix(p.prefix))
	if err != nil {
		return err
	}
	defer all.Close()
	for _, l := range []rlock.Locker{all.Lock("lock"), all.FairLock("fair"), all.FencedLock("fenced"), all.RWLock("read").Read(), all.RWLock("write").Write()} {
		if _, err := l.Lock(ctx); err != nil {
			return err
		}
	}
	waiting, stop := context.WithCancel(ctx)
	ended := make(chan struct{}, 3)
	for _, l := range []rlock.Locker{all.FairLock("fair"), all.RWLock("read").Write(), all.RWLock("write").Read()} {
		go func() {
			_, _ = l.Lock(holdfast.WithOwner(waiting)) // its end is that of the exercise
			ended <- struct{}{}
		}()
	}
	defer func() {
		stop()
		for range 3 {
			<-ended
		}
	}()
	_, err1 := all.Semaphore("semaphore").TrySetPermits(ctx, 1)
	_, err2 := all.ExpirableSemaphore("expirable").TrySetPermits(ctx, 1)
	_, err3 := all.ExpirableSemaphore("expirable").Acquire(ctx)
	_, err4 := all.Latch("latch").TrySetCount(ctx, 1)
	_, err5 := all.RateLimiter("limiter").TrySetRate(ctx, rlimiter.Overall, 1, time.Hour)
	if err := errors.Join(err1, err2, err3, err4, err5, all.RateLimiter("limiter").Acquire(ctx, 1)); err != nil {
		return err
	}
	rdb := server.Client(p.t)
	redistest.Eventually(p.t, prompt, func() bool {
		n, err := rdb.Exists(ctx, "redisson_lock_queue:{"+p.prefix+"fair}", "{"+p.prefix+"read}:holdfast:writers", "{"+p.prefix+"write}:holdfast:readers").Result()
		return err == nil && n == 3
	}, "the waiters stand in line")

	seen := 0
	for info, err := range p.a.Locks(ctx, "*") {
		if err != nil {
			return step("list", err)
		}
		if _, err := p.a.Inspect(ctx, info.Name); err != nil {
			return step("inspect", err)
		}
		seen++
	}
	if seen != 9 {
		return fmt.Errorf("saw %d names of 9", seen)
	}
	return nil
}
