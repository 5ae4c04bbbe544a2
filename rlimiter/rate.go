package rlimiter

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/object"
)

// Kind says who shares the permits of a limiter.
type Kind int

const (
	// Overall is one window for all clients. Redisson: OVERALL.
	Overall Kind = 0
	// PerClient is a window for each Client. Redisson: PER_CLIENT.
	PerClient Kind = 1
)

func (k Kind) String() string {
	switch k {
	case Overall:
		return "Overall"
	case PerClient:
		return "PerClient"
	}
	return "Kind(" + strconv.Itoa(int(k)) + ")"
}

// Config is what a rate was set to.
type Config struct {
	Kind Kind
	// Rate is how many permits are granted per Interval at most.
	Rate     int64
	Interval time.Duration
	// KeepAlive is how long the limiter lives without being used; 0: for ever.
	KeepAlive time.Duration
}

// RateOption sets more about a rate.
type RateOption func(*Config)

// KeepAlive has the limiter go when no permit was granted for d: a positive time in
// whole milliseconds, rounded up, at most a century. Zero, the default: it stays
// until it is deleted.
func KeepAlive(d time.Duration) RateOption {
	return func(c *Config) { c.KeepAlive = d }
}

// maxRate is the largest rate: up to here Lua and Java agree on numbers.
const maxRate = 1 << 53

// newConfig checks what a rate is to be. The interval is rounded up to whole
// milliseconds.
func (l *Limiter) newConfig(what string, k Kind, n int64, per time.Duration, opts []RateOption) (Config, error) {
	c := Config{Kind: k, Rate: n, Interval: lease.Round(per)}
	for _, set := range opts {
		if set != nil {
			set(&c)
		}
	}
	wrong := ""
	switch {
	case k != Overall && k != PerClient:
		wrong = fmt.Sprintf("%v is no kind: take Overall or PerClient", k)
	case n < 1 || n > maxRate:
		wrong = fmt.Sprintf("rate %d is not between 1 and 2^53", n)
	case per <= 0:
		wrong = fmt.Sprintf("interval %v is not positive", per)
	case c.KeepAlive < 0:
		wrong = fmt.Sprintf("keep alive %v is negative: leave it out to keep the limiter for ever", c.KeepAlive)
	}
	if wrong != "" {
		return c, errs.Invalid("%s %s: %s", what, errs.Quote(l.Name()), wrong)
	}
	c.KeepAlive = lease.Round(c.KeepAlive)
	return c, nil
}

const settingRate = "set rate of limiter"

// TrySetRate sets a rate of n permits per interval, a positive time in whole
// milliseconds, rounded up, at most a century; and reports whether it did: not if a
// rate is set already. Errors: ErrInvalid for a bad name, kind, n below 1 or above
// 2^53, or interval, or if the name holds something else; ErrUncertain if no answer
// came, or ctx ended before it: the rate may be set or not; ErrUnavailable;
// ErrDenied; ErrClosed; the context's.
func (l *Limiter) TrySetRate(ctx context.Context, k Kind, n int64, per time.Duration, opts ...RateOption) (bool, error) {
	return l.configure(ctx, "try", k, n, per, opts)
}

// SetRate sets a rate whether or not one is set, and clears the window: all permits
// are free again. (With PerClient that of this client; others' go on.) Those of this
// client who wait ask anew at once, others when the time is over that they were
// told before. Errors: as TrySetRate.
func (l *Limiter) SetRate(ctx context.Context, k Kind, n int64, per time.Duration, opts ...RateOption) error {
	_, err := l.configure(ctx, "set", k, n, per, opts)
	return err
}

// UpdateRate changes the rate and keeps the window: what was granted counts. After
// the rate was lowered nothing is granted until enough has left the window. Errors:
// as TrySetRate, and ErrInvalid if no rate is set.
func (l *Limiter) UpdateRate(ctx context.Context, k Kind, n int64, per time.Duration, opts ...RateOption) error {
	done, err := l.configure(ctx, "update", k, n, per, opts)
	if err == nil && !done {
		return l.noRate(settingRate)
	}
	return err
}

func (l *Limiter) configure(ctx context.Context, how string, k Kind, n int64, per time.Duration, opts []RateOption) (bool, error) {
	c, err := l.newConfig(settingRate, k, n, per, opts)
	if err != nil {
		return false, err
	}
	done, err := l.o.Change(ctx, settingRate, object.AtMostNow, l.setRate(l.o.Keys(), how, c))
	l.changed() // also if that isn't known
	return done == 1, err
}

// Config is what the rate was set to. Errors: as Available.
func (l *Limiter) Config(ctx context.Context) (Config, error) {
	const what = "look at limiter"
	fields := []string{"rate", "interval", "type", "keepAliveTime"}
	vals, err := object.Ask(ctx, l.o, what, func(ctx context.Context) ([]any, error) {
		return l.o.Runner.Redis().HMGet(ctx, l.o.RedisKey(), fields...).Result()
	})
	if err != nil {
		return Config{}, err
	}
	if vals[0] == nil {
		return Config{}, l.noRate(what)
	}
	var nums [4]int64
	var bad error
	for i, v := range vals {
		s, ok := v.(string)
		if !ok && fields[i] == "keepAliveTime" {
			continue // an older Redisson's
		}
		var err error
		nums[i], err = strconv.ParseInt(s, 10, 64)
		bad = errors.Join(bad, err)
	}
	if bad != nil {
		return Config{}, l.o.InvalidKey(ctx, l.Name(), l.o.RedisKey(), "a hash that is no rate limiter")
	}
	return Config{
		Kind: Kind(nums[2]), Rate: nums[0],
		Interval:  millis(nums[1]),
		KeepAlive: millis(nums[3]),
	}, nil
}

// millis is n milliseconds, at most the longest time there is for us.
func millis(n int64) time.Duration {
	return time.Duration(min(n, lease.Max.Milliseconds())) * time.Millisecond
}

// Exists reports whether a rate is set. Errors: as Available.
func (l *Limiter) Exists(ctx context.Context) (bool, error) {
	return object.Ask(ctx, l.o, "look at limiter", func(ctx context.Context) (bool, error) {
		n, err := l.o.Runner.Redis().Exists(ctx, l.o.RedisKey()).Result()
		return n == 1, err
	})
}

// Expire has the limiter go after d, a positive time in whole milliseconds, rounded
// up, and reports whether a rate is set. With KeepAlive the next grant sets another
// time. Errors: as TrySetRate.
func (l *Limiter) Expire(ctx context.Context, d time.Duration) (bool, error) {
	const what = "expire limiter"
	if d <= 0 {
		return false, errs.Invalid("%s %s: %v is not positive", what, errs.Quote(l.Name()), d)
	}
	done, err := l.o.Change(ctx, what, object.AtMostNow, l.expire(l.o.Keys(), lease.Round(d)))
	return done == 1, err
}

// Delete removes the limiter with its windows, those of other clients of a
// PerClient limiter excepted, and reports whether a rate was set. Who waits is
// answered ErrInvalid at the next try, unless a rate is set again. Errors: as
// TrySetRate.
func (l *Limiter) Delete(ctx context.Context) (bool, error) {
	done, err := l.o.Change(ctx, "delete limiter", object.AtMostNow, l.remove(l.o.Keys()))
	l.changed() // also if that isn't known
	return done == 1, err
}
