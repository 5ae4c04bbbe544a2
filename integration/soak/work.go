package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/rlimiter"
	"github.com/holdfast-go/holdfast/rlock"
	"github.com/holdfast-go/holdfast/rsemaphore"
)

// shared is the number of names of each kind that all workers want.
const shared = 5

func name(kind string, i int) string { return fmt.Sprintf("%s-%d", kind, i%shared) }

// things are what has to be set up, and removed in the end.
type things struct{}

const permits = 8

func prepare(ctx context.Context, c *holdfast.Client) (things, error) {
	var errs []error
	for i := range shared {
		_, err := c.Semaphore(name("semaphore", i)).TrySetPermits(ctx, permits)
		_, err2 := c.ExpirableSemaphore(name("expirable", i)).TrySetPermits(ctx, permits)
		_, err3 := c.RateLimiter(name("limiter", i)).TrySetRate(ctx, rlimiter.Overall, 50, time.Second)
		errs = append(errs, err, err2, err3)
	}
	return things{}, errors.Join(errs...)
}

// remove takes everything away that doesn't expire, and sees that nothing is held.
func (things) remove(ctx context.Context, c *holdfast.Client) error {
	var errs []error
	collecting, stop := context.WithCancel(ctx)
	defer stop()
	go func() { // what was dropped is renewed until the collector has seen it
		for ; collecting.Err() == nil; rest(collecting, time.Second) {
			runtime.GC()
		}
	}()
	for i := range shared {
		s, e := c.Semaphore(name("semaphore", i)), c.ExpirableSemaphore(name("expirable", i))
		// What a request took whose caller has left is given back behind him.
		until, enough := context.WithTimeout(ctx, settles)
		err := s.Acquire(until, permits)
		if err != nil {
			err = fmt.Errorf("%s hasn't %d permits in the end: %w", s.Name(), permits, err)
		}
		errs = append(errs, err)
		held, err := e.AcquireN(until, permits)
		enough()
		if err != nil {
			info, ierr := c.Inspect(ctx, e.Name())
			err = fmt.Errorf("%s hasn't %d permits in the end: %w; %v %w", e.Name(), permits, err, info, ierr)
		}
		for _, p := range held {
			err = errors.Join(err, p.Release(ctx))
		}
		_, err2 := s.Delete(ctx)
		_, err3 := e.Delete(ctx)
		_, err4 := c.RateLimiter(name("limiter", i)).Delete(ctx)
		err5 := c.FencedLock(name("fenced", i)).Do(ctx, func(context.Context) error { return nil }, rlock.Wait(settles))
		_, err6 := c.FencedLock(name("fenced", i)).DeleteToken(ctx)
		errs = append(errs, err, err2, err3, err4, err5, err6)
	}
	return errors.Join(errs...)
}

// worker makes one call after the other.
type worker struct {
	*rand.Rand
	cfg           *config
	client, other *holdfast.Client
	id, round     uint64
	tally         *tally
	things        things
}

// mine answers a name that nobody has used before, nor will.
func (w *worker) mine(kind string) string {
	w.round++
	return fmt.Sprintf("%s-of-%d-%d", kind, w.id, w.round)
}

// errShort says that no answer came within the few milliseconds of a Wait.
var errShort = errors.New("the wait was too short for an answer")

// late are the errors of calls that may wait only so long.
var late = []error{errShort, holdfast.ErrNotAcquired, context.DeadlineExceeded, context.Canceled}

func (w *worker) work(ctx context.Context) {
	c := w.client
	for ctx.Err() == nil {
		i := w.IntN(shared)
		switch w.IntN(16) {
		case 0:
			w.lock(ctx, "lock", c.Lock(name("lock", i)))
		case 1:
			w.lock(ctx, "lock, own", c.Lock(w.mine("lock")))
		case 2:
			w.lock(ctx, "fair", c.FairLock(name("fair", i)))
		case 3:
			w.lock(ctx, "fenced", c.FencedLock(name("fenced", i)))
		case 4:
			w.lock(ctx, "spin", c.SpinLock(name("spin", i), nil))
		case 5:
			w.lock(ctx, "read", c.RWLock(name("rw", i)).Read())
		case 6:
			w.lock(ctx, "write", c.RWLock(name("rw", i)).Write())
		case 7:
			w.lock(ctx, "multi", c.MultiLock(c.Lock(name("multi", i)), c.FairLock(name("multi-fair", i+1)), c.Lock(w.mine("multi"))))
		case 8:
			w.lock(ctx, "not reentrant", c.Lock(name("strict", i), rlock.NonReentrant()))
		case 9:
			w.lock(ctx, "two clients", c.MultiLock(c.Lock(name("a", i)), w.other.Lock(name("b", i))))
		case 10:
			w.semaphore(ctx, c.Semaphore(name("semaphore", i)))
		case 11:
			w.expirable(ctx, c.ExpirableSemaphore(name("expirable", i)))
		case 12:
			w.latch(ctx, w.mine("latch"))
		case 13:
			l := c.RateLimiter(name("limiter", i))
			w.tally.count("limiter", func() error {
				return tooShort(l.TryAcquire(ctx, 1, rlimiter.Wait(10*time.Millisecond+w.upTo(50*time.Millisecond))))
			}, late...)
		case 14:
			w.passOn(ctx)
		case 15:
			w.look(ctx, i)
		}
		rest(ctx, w.upTo(2*w.cfg.pace))
	}
}

// tooShort is the error of a call that had a few milliseconds: no answer is then no
// failure.
func tooShort(err error) error {
	if errors.Is(err, holdfast.ErrUnavailable) && !errors.Is(err, holdfast.ErrUncertain) {
		return fmt.Errorf("%w (%w)", errShort, err)
	}
	return err
}

func (w *worker) upTo(d time.Duration) time.Duration { return time.Duration(w.Int64N(int64(d)) + 1) }

// lock takes a lock as its users do: with a bound, an impatient context, a fixed
// lease, twice, for longer than its lease, or without giving it back.
func (w *worker) lock(ctx context.Context, what string, l rlock.Locker) {
	w.tally.count(what, func() error {
		var opts []rlock.Option
		trying, stop := context.WithCancel(ctx)
		switch w.IntN(3) {
		case 0:
			opts = append(opts, rlock.Wait(10*time.Millisecond+w.upTo(300*time.Millisecond)))
		case 1:
			stop()
			trying, stop = context.WithTimeout(ctx, w.upTo(100*time.Millisecond))
		}
		defer stop()
		way := w.IntN(100)
		if way < 20 {
			opts = append(opts, rlock.Lease(w.cfg.lease))
		}
		h, err := l.Lock(trying, opts...)
		if err != nil {
			return tooShort(err)
		}
		after := context.WithoutCancel(ctx)
		switch {
		case way < 2: // it isn't given back: its lease ends
			return nil
		case way < 10:
			err = h.Extend(after, 2*w.cfg.lease)
		case way < 30:
			inner, ierr := l.TryLock(holdfast.WithOwnerID(after, "")) // a bad owner
			if !errors.Is(ierr, holdfast.ErrInvalid) {
				err = fmt.Errorf("an empty owner: %v, %w", inner, ierr)
			}
		case way < 50:
			// The hold's context may have ended with the caller's.
			inner, ierr := l.Lock(context.WithoutCancel(h.Context()), rlock.Wait(10*time.Second))
			switch {
			case ierr == nil:
				err = inner.Unlock(after)
			case what != "not reentrant" || !errors.Is(ierr, holdfast.ErrReentry):
				err = ierr
			}
		case way > 97 && what == "lock, own": // renewed a few times
			rest(ctx, 3*w.cfg.lease)
			if cause := context.Cause(h.Context()); errors.Is(cause, holdfast.ErrLost) {
				err = fmt.Errorf("lost while it was renewed: %w", cause)
			}
		default:
			rest(ctx, w.upTo(3*time.Millisecond))
		}
		return errors.Join(err, h.Unlock(after))
	}, late...)
}

func (w *worker) semaphore(ctx context.Context, s *rsemaphore.Semaphore) {
	n := w.Int64N(3) + 1
	w.tally.count("semaphore", func() error {
		trying, stop := context.WithTimeout(ctx, w.upTo(100*time.Millisecond))
		defer stop()
		if err := s.Acquire(trying, n); err != nil {
			return err
		}
		rest(ctx, w.upTo(3*time.Millisecond))
		return s.Release(context.WithoutCancel(ctx), n)
	}, late...)
}

func (w *worker) expirable(ctx context.Context, e *rsemaphore.Expirable) {
	w.tally.count("expirable", func() error {
		trying, stop := context.WithTimeout(ctx, w.upTo(100*time.Millisecond))
		defer stop()
		p, err := e.Acquire(trying)
		if err != nil {
			return err
		}
		rest(ctx, w.upTo(3*time.Millisecond))
		if w.IntN(50) == 0 {
			return nil // dropped: its lease ends
		}
		return p.Release(context.WithoutCancel(ctx))
	}, late...)
}

// latch has one wait for two.
func (w *worker) latch(ctx context.Context, name string) {
	w.tally.count("latch", func() error {
		after := context.WithoutCancel(ctx)
		l := w.client.Latch(name)
		if _, err := l.TrySetCount(after, 2); err != nil {
			return err
		}
		opened := make(chan error, 1)
		go func() { opened <- w.other.Latch(name).TryAwait(after, holdfast.Wait(30*time.Second)) }()
		err := errors.Join(l.CountDown(after), l.CountDown(after))
		return errors.Join(err, <-opened)
	})
}

// passOn hands a hold to another client.
func (w *worker) passOn(ctx context.Context) {
	w.tally.count("pass on", func() error {
		h, err := w.client.Lock(w.mine("passed")).Lock(ctx)
		if err != nil {
			return err
		}
		handle, err := h.Detach()
		if err != nil {
			return err
		}
		after := context.WithoutCancel(ctx)
		there, err := w.other.Resume(after, handle)
		if err != nil {
			return err
		}
		return there.Unlock(after)
	}, late...)
}

func (w *worker) look(ctx context.Context, i int) {
	w.tally.count("inspect", func() error {
		for _, kind := range []string{"lock", "fair", "rw", "semaphore", "expirable", "limiter"} {
			if _, err := w.client.Inspect(ctx, name(kind, i)); err != nil {
				return err
			}
		}
		return nil
	}, late...)
}
