package rlimiter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/keys"
	"github.com/holdfast-go/holdfast/internal/object"
	"github.com/holdfast-go/holdfast/internal/script"
	"github.com/holdfast-go/holdfast/internal/wait"
)

// Option sets how one TryAcquire waits: Wait.
type Option = hold.Option

// Wait bounds how long TryAcquire may wait: d, or not at all if d is zero or
// negative.
func Wait(d time.Duration) Option { return hold.Wait(d) }

// Limiter is a rate limiter: Redisson's RRateLimiter, on the same keys. It has no
// state of its own: any number of objects for one name, in any number of goroutines
// and processes, are one limiter.
type Limiter struct {
	o      *object.Object
	window []any // keys of the windows, see window.lua
}

// NewLimiter makes a limiter on a client's services. Users call
// Client.RateLimiter.
func NewLimiter(s *hold.Services, name string) *Limiter {
	o := object.New(s, name)
	l := &Limiter{o: o}
	for _, suffix := range []string{"", ":" + s.ClientID} {
		for _, label := range []string{"value", "permits"} {
			l.window = append(l.window, keys.Suffixed(o.RedisKey(), label+suffix))
		}
	}
	return l
}

// Name is the name that the limiter was made with.
func (l *Limiter) Name() string { return l.o.Name() }

// maxPermits is how many permits one grant can be of: 32 bits in Redis.
const maxPermits = math.MaxUint32

func (l *Limiter) checkPermits(what string, n int64) error {
	if n < 1 || n > maxPermits {
		return errs.Invalid("%s %s: %d is not between 1 and 2^32-1", what, errs.Quote(l.Name()), n)
	}
	return nil
}

func (l *Limiter) noRate(what string) error {
	return errs.Invalid("%s %s: it has no rate: set a rate first, with TrySetRate", what, errs.Quote(l.Name()))
}

const acquiring = "acquire permits of limiter"

// Acquire takes n permits, all at once, and waits until it has them or ctx ends,
// also while Redis doesn't answer. It is one command, and one more after each wait.
// Errors: the context's, with what Redis said last; ErrInvalid for n below 1, more
// than the rate or above 2^32-1, if no rate is set, for a bad name, or if the name
// holds something else; ErrDenied; ErrClosed. After an error nothing is taken: what
// may have been granted meanwhile is given back behind the caller.
func (l *Limiter) Acquire(ctx context.Context, n int64) error {
	return l.acquire(ctx, n, wait.Spec{Forever: true})
}

// TryAcquire asks once for n permits, or for as long as Wait(d) says. If they can't
// be had within that time it doesn't wait: ErrNotAcquired (a *NotAcquiredError)
// comes at once, with the time after which there will be enough unless others are
// granted before. (Behind others of this client, who wait too, it comes after d. With
// no wait it asks past them.) Errors: further as Acquire; ErrUnavailable if Redis gave
// no answer within the time to wait, or within the command timeout without one;
// ErrInvalid for other options than Wait.
func (l *Limiter) TryAcquire(ctx context.Context, n int64, opts ...Option) error {
	set, err := hold.Collect(opts)
	if err != nil {
		return err
	}
	if set.LeaseSet {
		return errs.Invalid("%s %s: permits of a rate have no lease: leave the option Lease out", acquiring, errs.Quote(l.Name()))
	}
	return l.acquire(ctx, n, wait.Spec{Wait: set.Wait})
}

// Answers of acquire.lua and release.lua.
const (
	granted   = 1
	unset     = 2  // no rate
	beyond    = 3  // more wanted than the rate
	grantedIn = 10 // refused: granted in so many ms less this
)

func (l *Limiter) acquire(ctx context.Context, n int64, spec wait.Spec) error {
	if err := l.checkPermits(acquiring, n); err != nil {
		return err
	}
	var deadline time.Time
	if spec.Wait > 0 {
		deadline = time.Now().Add(spec.Wait)
	}
	// One line, whatever the number: who wants many is not overtaken by those who
	// want one. There is nothing to hear: the answer to a try says when the next
	// one is due.
	spec.Line, spec.Wanted = l.o.RedisKey(), 1
	spec.Delay = func(int) time.Duration { return l.o.Loop.Poll }
	err := l.o.Acquire(ctx, spec, object.Request{
		What: acquiring,
		Make: func(k script.Keys) script.Call { return l.take(k, n) },
		Undo: func(k script.Keys) script.Call { return l.untake(k, n) },
		Read: func(reply script.Reply) (wait.Outcome, error) {
			switch a := reply.Int(); a {
			case granted:
				return wait.Outcome{Granted: true}, nil
			case unset:
				return wait.Outcome{}, l.noRate(acquiring)
			case beyond:
				return wait.Outcome{}, errs.Invalid("%s %s: %d are more than the rate, so they can never be had at once: ask for fewer at a time", acquiring, errs.Quote(l.Name()), n)
			default:
				due := time.Duration(a-grantedIn) * time.Millisecond
				if !deadline.IsZero() && time.Until(deadline) < due {
					return wait.Outcome{}, l.refusal(n, due)
				}
				return wait.Outcome{TTL: due}, nil
			}
		},
		Undone: func(script.Reply) { l.changed() },
	})
	var refused *errs.NotAcquiredError
	if errors.As(err, &refused) {
		return l.refusal(n, refused.Remaining)
	}
	return err
}

// changed lets those of this client who wait ask again.
func (l *Limiter) changed() { l.o.Loop.Freed(l.o.RedisKey()) }

// refusal is a NotAcquiredError with a text of its own.
type refusal struct{ cause *errs.NotAcquiredError }

func (l *Limiter) refusal(n int64, due time.Duration) error {
	return refusal{&errs.NotAcquiredError{Name: l.Name(), Remaining: due, Wanted: n}}
}

func (r refusal) Error() string {
	c := r.cause
	if c.Remaining < 0 {
		return fmt.Sprintf("%v: limiter %s: %d permits", errs.ErrNotAcquired, errs.Quote(c.Name), c.Wanted)
	}
	return fmt.Sprintf("%v: limiter %s: %d permits, to be had in %v", errs.ErrNotAcquired, errs.Quote(c.Name), c.Wanted, c.Remaining)
}

func (r refusal) Unwrap() error { return r.cause }

// Release gives n permits back, as if they had not been taken: the newest grants,
// whoever got them, leave the window, as many as there are. (With PerClient: those
// of this client.) Should one of them be a grant whose caller has left, and which is
// being undone at that moment, a permit is missing until an interval has passed.
//
// It does so even if ctx has ended, and goes on behind a caller whose ctx ends
// meanwhile. Errors: ErrUncertain if no answer came, or ctx ended before it: it is
// sent on for a minute; ErrInvalid for n below 1 or above 2^32-1, if no rate is set,
// for a bad name, or if the name holds something else; ErrUnavailable; ErrDenied;
// ErrClosed.
func (l *Limiter) Release(ctx context.Context, n int64) error {
	const what = "give back permits of limiter"
	if err := l.checkPermits(what, n); err != nil {
		return err
	}
	reply, err := l.o.Change(ctx, what, object.Eventually, l.giveBack(l.o.Keys(), n))
	if err != nil {
		return err
	}
	if reply == unset {
		return l.noRate(what)
	}
	l.changed()
	return nil
}

// Available is the number of permits that could be granted now. (With PerClient: to
// this client.) It is what Redis says at that moment. Errors: ErrInvalid if no rate
// is set, for a bad name, or if the name holds something else; ErrUnavailable;
// ErrDenied; ErrClosed; the context's.
func (l *Limiter) Available(ctx context.Context) (int64, error) {
	const what = "look at limiter"
	n, err := object.Ask(ctx, l.o, what, func(ctx context.Context) (int64, error) {
		reply := l.o.Send(ctx, l.o.Patience, l.look())
		return reply.Int(), reply.Err
	})
	if err == nil && n < 0 {
		return 0, l.noRate(what)
	}
	return n, err
}
