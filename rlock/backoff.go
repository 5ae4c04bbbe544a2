package rlock

import (
	"math"
	"math/rand/v2"
	"reflect"
	"time"

	"github.com/holdfast-go/holdfast/internal/errs"
)

// Backoff says how long a waiter of a SpinLock sleeps before it asks again.
// Implementations are called from any goroutine.
type Backoff interface {
	// Delay answers the pause after so many refusals of one wait: 1 after the
	// first. Anything below a millisecond counts as one.
	Delay(attempt int) time.Duration
}

// ExponentialBackoff sleeps longer after each refusal, between half of the time
// and the whole, by chance, so that waiters don't come all at once. The zero value
// has Redisson's numbers.
type ExponentialBackoff struct {
	// Initial is the first pause. Zero: 1 ms.
	Initial time.Duration
	// Max is the longest pause. Zero: 128 ms, or Initial if that is more.
	Max time.Duration
	// Multiplier is how much longer each pause is than the one before. Zero: 2;
	// otherwise at least 1.
	Multiplier float64
}

// Delay implements Backoff.
func (b ExponentialBackoff) Delay(attempt int) time.Duration {
	b = b.complete()
	d := b.Max
	// In floating point, which overflows to infinity instead of turning negative.
	if f := float64(b.Initial) * math.Pow(b.Multiplier, float64(max(attempt, 1)-1)); f < float64(b.Max) {
		d = time.Duration(f)
	}
	return d - rand.N(d/2+1)
}

func (b ExponentialBackoff) complete() ExponentialBackoff {
	if b.Initial <= 0 {
		b.Initial = time.Millisecond
	}
	if b.Max <= 0 {
		b.Max = max(128*time.Millisecond, b.Initial)
	}
	if !(b.Multiplier >= 1) { // NaN too
		b.Multiplier = 2
	}
	return b
}

func (b ExponentialBackoff) check() error {
	switch {
	case b.Initial < 0, b.Max < 0:
		return errs.Invalid("backoff from %v to %v: pauses aren't negative: leave a field out for its default", b.Initial, b.Max)
	case b.Multiplier != 0 && !(b.Multiplier >= 1):
		return errs.Invalid("backoff with multiplier %v: choose at least 1, or leave it out for 2", b.Multiplier)
	}
	return nil
}

// ConstantBackoff sleeps equally long after each refusal:
//
//	client.SpinLock(name, rlock.ConstantBackoff(50*time.Millisecond))
//
// It must be positive: ErrInvalid from the lock's first call.
type ConstantBackoff time.Duration

// Delay implements Backoff.
func (b ConstantBackoff) Delay(int) time.Duration { return time.Duration(b) }

func (b ConstantBackoff) check() error {
	if b <= 0 {
		return errs.Invalid("constant backoff of %v: a waiter that never pauses would keep Redis busy: choose 1ms or more", time.Duration(b))
	}
	return nil
}

// backoff checks b, and puts the default in place of none.
func backoff(b Backoff) (Backoff, error) {
	if v := reflect.ValueOf(b); b == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return ExponentialBackoff{}, nil
	}
	if c, ok := b.(interface{ check() error }); ok {
		return b, c.check()
	}
	return b, nil
}
