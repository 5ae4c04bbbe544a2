package rsemaphore

import (
	"context"
	_ "embed"
	"time"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/object"
	"github.com/holdfast-go/holdfast/internal/script"
	"github.com/holdfast-go/holdfast/internal/wait"
)

// Option sets how one acquisition waits and how long it lasts.
type Option = hold.Option

// Wait bounds how long an acquisition may wait: d, or not at all if d is zero or
// negative. Without it the Try calls don't wait, and the others wait until their
// context ends.
func Wait(d time.Duration) Option { return hold.Wait(d) }

// Lease gives a permit of an Expirable a fixed lease of d instead of one that is
// renewed. Fractions of a millisecond count as a whole one, more than a century
// as a century; zero and less is ErrInvalid.
func Lease(d time.Duration) Option { return hold.Lease(d) }

var (
	//go:embed acquire.lua
	acquireSrc string
	//go:embed undo.lua
	undoSrc string
	//go:embed drain.lua
	drainSrc string

	acquireScript = counting("acquire.lua", acquireSrc)
	undoScript    = counting("undo.lua", undoSrc)
	drainScript   = counting("drain.lua", drainSrc)
)

// Answers of acquire.lua.
const (
	granted   = 1
	unset     = 2  // refused: there is no number
	freeAbove = 10 // 10 + m: m are free
)

// Semaphore is a number of permits, shared by name: Redisson's RSemaphore, on the
// same key. It has no state of its own: any number of objects for one name, in any
// number of processes, are one semaphore. A permit has no holder: anybody may give
// back what somebody took, and what a process that was killed had taken is gone
// (Expirable takes it back).
//
// A semaphore that was never set has no permits; Acquire on it waits. Numbers up
// to 2^53 fit (Java clients read 32 bits). All methods may be called from any
// goroutine. The package comment says who is served when several wait.
type Semaphore struct{ c *counter }

// NewSemaphore makes a semaphore on a client's services. Users call
// Client.Semaphore.
func NewSemaphore(s *hold.Services, name string) *Semaphore {
	return &Semaphore{newCounter(s, name)}
}

// Name is the name that the semaphore was made with.
func (s *Semaphore) Name() string { return s.c.Name() }

// TrySetPermits sets the number of permits, 0 or more, if it was never set, and
// reports whether it did; 0 counts as set, so that a semaphore all of whose
// permits are taken keeps its number. Errors: ErrInvalid for a bad number or
// name, or if the name holds something else, which stays untouched; ErrUncertain
// if it may have been done but no answer came; ErrUnavailable; ErrDenied;
// ErrClosed; the context's, who leaves at once when it ends. Redisson:
// trySetPermits(int).
func (s *Semaphore) TrySetPermits(ctx context.Context, n int64) (bool, error) {
	return s.c.trySet(ctx, n, 0)
}

// TrySetPermitsFor is TrySetPermits for a semaphore that goes after ttl, a
// positive time in whole milliseconds, rounded up. Redisson: trySetPermits(int,
// Duration).
func (s *Semaphore) TrySetPermitsFor(ctx context.Context, n int64, ttl time.Duration) (bool, error) {
	ms, err := s.c.ttl("set the permits of", ttl)
	if err != nil {
		return false, err
	}
	return s.c.trySet(ctx, n, ms)
}

// Acquire takes n permits at once, and waits until there are so many or ctx
// ends, also while Redis doesn't answer. Errors: ErrInvalid for a number below 1,
// a bad name, or a name that holds something else; ErrDenied; ErrClosed; the
// context's, with what Redis said last. After an error nothing is taken: what may
// have been granted meanwhile is given back behind the caller, who leaves at once
// when ctx ends. Redisson: acquire(int), which takes 0 for nothing to do.
func (s *Semaphore) Acquire(ctx context.Context, n int64) error {
	return s.acquire(ctx, n, nil, true)
}

// TryAcquire takes n permits if there are so many now, or within Wait(d). Errors:
// as Acquire, and ErrNotAcquired (a *NotAcquiredError with the numbers wanted and
// free, or Unset if the semaphore was never set) if there weren't; ErrUnavailable if Redis gave no answer within the time
// to wait, or within the command timeout without one. Lease is ErrInvalid: see
// Expirable. Redisson: tryAcquire.
func (s *Semaphore) TryAcquire(ctx context.Context, n int64, opts ...Option) error {
	return s.acquire(ctx, n, opts, false)
}

func (s *Semaphore) acquire(ctx context.Context, n int64, opts []Option, forever bool) error {
	c := s.c
	if err := c.count("acquire of", n, 1); err != nil {
		return err
	}
	o, err := hold.Collect(opts)
	if err != nil {
		return err
	}
	if o.LeaseSet {
		return errs.Invalid("acquire of %s: a plain permit has no lease: leave the option out, or use ExpirableSemaphore", errs.Quote(c.Name()))
	}
	spec := wait.Spec{
		Line: c.line, Wanted: n, Channel: c.channel,
		Forever: forever && !o.WaitSet, Wait: o.Wait,
	}
	return c.Object.Acquire(ctx, spec, object.Request{
		What: "acquire of",
		Make: func(k script.Keys) script.Call {
			return script.NewMutation(acquireScript, k, nil, n)
		},
		Undo: func(k script.Keys) script.Call {
			return script.NewMutation(undoScript, k, nil, n, c.channelArg)
		},
		Undone: func(r script.Reply) { c.heard(r.Int() == unheard) },
		Read:   readAcquire,
	})
}

// readAcquire reads the answer of acquire.lua.
func readAcquire(r script.Reply) (wait.Outcome, error) {
	switch n := r.Int(); {
	case n == granted:
		return wait.Outcome{Granted: true, TTL: -1}, nil
	case n == unset:
		return wait.Outcome{TTL: -1, Unset: true}, nil
	case n >= freeAbove:
		return wait.Outcome{TTL: -1, Free: n - freeAbove}, nil
	default:
		return wait.Outcome{TTL: -1, Free: n}, nil
	}
}

// Release gives n permits back, or adds new ones: nobody knows whose they are. It
// does so even if ctx has ended. Errors: ErrInvalid as Acquire, and if the number
// would leave 53 bits; ErrUncertain if no answer came, or ctx ended meanwhile:
// the release goes on behind the caller for up to a minute, and counts once;
// ErrUnavailable if nothing could be sent, likewise; ErrDenied; ErrClosed.
// Redisson: release(int).
func (s *Semaphore) Release(ctx context.Context, n int64) error {
	if err := s.c.count("release of", n, 1); err != nil {
		return err
	}
	_, err := s.c.add(ctx, "release of", object.Eventually, n, false)
	return err
}

// ReleaseIfExists is Release for a semaphore that may have been deleted: it
// reports whether it was there, and doesn't bring it into being. Redisson:
// releaseIfExists(int).
func (s *Semaphore) ReleaseIfExists(ctx context.Context, n int64) (bool, error) {
	if err := s.c.count("release of", n, 1); err != nil {
		return false, err
	}
	return s.c.add(ctx, "release of", object.Eventually, n, true)
}

// AddPermits raises the number of permits by n, or lowers it if n is negative;
// the number of free ones may fall below 0 then, and as many releases serve
// nobody. Errors: as TrySetPermits. Redisson: addPermits(int).
func (s *Semaphore) AddPermits(ctx context.Context, n int64) error {
	if err := s.c.count("add permits to", n, -maxPermits-1); err != nil {
		return err
	}
	_, err := s.c.add(ctx, "add permits to", object.AtMostNow, n, false)
	return err
}

// Available is the number of free permits at that moment: 0 if the semaphore was
// never set, negative after permits in use were taken away. Errors:
// ErrUnavailable, ErrDenied, ErrInvalid, ErrClosed, the context's. Redisson:
// availablePermits.
func (s *Semaphore) Available(ctx context.Context) (int64, error) { return s.c.free(ctx) }

// Drain takes all free permits and answers how many there were; a negative number
// is what was missing, and is forgiven: afterwards there are 0. Errors: as
// TrySetPermits; after ErrUncertain they may have been taken. Redisson:
// drainPermits.
func (s *Semaphore) Drain(ctx context.Context) (int64, error) {
	return s.c.change(ctx, "drain", object.AtMostNow, drainScript)
}

// Exists reports whether the name is there: whether the permits were set. Errors:
// as Available.
func (s *Semaphore) Exists(ctx context.Context) (bool, error) { return s.c.exists(ctx) }

// Expire has the semaphore go after d, a positive time in whole milliseconds,
// rounded up, and reports whether it was there. Errors: as TrySetPermits.
func (s *Semaphore) Expire(ctx context.Context, d time.Duration) (bool, error) {
	return s.c.expire(ctx, d)
}

// Delete removes the semaphore and reports whether it was there. Who waits goes
// on waiting, until permits are set anew. Permits given back after that, also those
// of a call that was cancelled, come on top of the new ones: delete a semaphore
// when nobody uses it. Errors: as TrySetPermits.
func (s *Semaphore) Delete(ctx context.Context) (bool, error) { return s.c.remove(ctx) }
