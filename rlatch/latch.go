package rlatch

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/keys"
	"github.com/holdfast-go/holdfast/internal/object"
	"github.com/holdfast-go/holdfast/internal/script"
	"github.com/holdfast-go/holdfast/internal/wait"
)

// Option sets how one TryAwait waits: Wait.
type Option = hold.Option

// maxCount is the largest count: up to here Lua and Java agree on numbers.
const maxCount = 1 << 53

// Latch is a count-down latch: Redisson's RCountDownLatch, on the same keys. It
// has no state of its own: any number of objects for one name, in any number of
// goroutines and processes, are one latch.
type Latch struct {
	o          *object.Object
	channel    string
	channelArg any // channel, boxed once
	opened     any // the key that says when it was opened last
}

// NewLatch makes a latch on a client's services. Users call Client.Latch.
func NewLatch(s *hold.Services, name string) *Latch {
	o := object.New(s, name)
	l := &Latch{o: o}
	key := o.RedisKey()
	l.channel = "redisson_countdownlatch__channel__{" + key + "}"
	l.channelArg, l.opened = l.channel, keys.Suffixed(key, "holdfast:opened")
	if s.Runner.MayShard() && strings.Contains(key, "{") {
		o.Refuse(errs.Invalid("name %s: on a cluster a latch's name can't have braces: its channel, %s, falls into another slot than its key; use a name without them", errs.Quote(name), errs.Quote(l.channel)))
	}
	return l
}

var (
	//go:embed await.lua
	awaitSrc string
	//go:embed countdown.lua
	countDownSrc string
	//go:embed delete.lua
	deleteSrc string
	//go:embed set.lua
	setSrc string

	awaitScript     = script.New("await.lua", awaitSrc)
	countDownScript = script.Mutating("countdown.lua", countDownSrc)
	deleteScript    = script.Mutating("delete.lua", deleteSrc)
	setScript       = script.Mutating("set.lua", setSrc)
)

// Answers of the scripts.
const (
	countedMute = 3  // countdown: reached zero, but PUBLISH was refused
	doneMute    = 2  // set, delete: done, but PUBLISH was refused
	noCount     = 4  // countdown, set, delete: a string that is no count
	open        = 0  // await
	noCountSeen = 1  // await: a string that is no count
	closed      = 10 // await: so much is added to what stands in opened
)

// Name is the name that the latch was made with.
func (l *Latch) Name() string { return l.o.Name() }

// TrySetCount gives an open latch the count n and reports whether it did: not if
// it has a count already. Zero leaves the latch open. All at once, by Redis. Errors:
// ErrInvalid for n below zero or above 2^53, a bad name, or if the name holds
// something else; ErrUncertain if no answer came, or ctx ended before it: the
// count may be set or not; ErrUnavailable; ErrDenied; ErrClosed; the context's.
func (l *Latch) TrySetCount(ctx context.Context, n int64) (bool, error) {
	const what = "set count of latch"
	if n < 0 || n > maxCount {
		return false, errs.Invalid("%s %s: %d is not between 0 and 2^53", what, errs.Quote(l.o.Name()), n)
	}
	reply, err := l.change(ctx, what, object.AtMostNow, l.set(l.o.Keys(), n), doneMute)
	return reply != 0, err
}

// CountDown takes one off the count, and at zero lets all waiters go. An open
// latch stays open: the count never goes below zero. It is one command, and takes
// exactly one off, however often it had to be sent. It does so even if ctx has
// ended, and goes on behind a caller whose ctx ends meanwhile. Errors: ErrUncertain
// if no answer came, or ctx ended before it: it is sent on for a minute; ErrInvalid
// if the name is bad or holds something else; ErrUnavailable; ErrDenied; ErrClosed.
func (l *Latch) CountDown(ctx context.Context) error {
	_, err := l.change(ctx, "count down latch", object.Eventually, l.countDown(l.o.Keys()), countedMute)
	return err
}

// Delete opens the latch whatever its count, and reports whether it had one.
// Waiters are let go with nil, as at zero: no latch is an open latch. (Waiters in
// Java are not: Redisson takes the notification for that of a new count, and looks
// only at the next one.) Errors: as TrySetCount.
func (l *Latch) Delete(ctx context.Context) (bool, error) {
	reply, err := l.change(ctx, "delete latch", object.AtMostNow, l.remove(l.o.Keys()), doneMute)
	return reply != 0, err
}

// change sends a request, and explains what its script answered beside success.
func (l *Latch) change(ctx context.Context, what string, d object.Delivery, call script.Call, mute int64) (int64, error) {
	reply, err := l.o.Change(ctx, what, d, call)
	switch {
	case err != nil:
		return 0, err
	case reply == noCount:
		return 0, l.noCount(ctx)
	case reply == mute:
		l.o.Muted(l.o.RedisKey())
	}
	return reply, nil
}

func (l *Latch) noCount(ctx context.Context) error {
	return l.o.InvalidKey(ctx, l.o.Name(), l.o.RedisKey(), "a string that is no count")
}

// Count is the present count: 0 for an open latch. It is what Redis says at that
// moment; where the go-redis client sends reads to replicas, what a replica says.
// Errors: ErrInvalid if the name is bad or holds something else; ErrUnavailable;
// ErrDenied; ErrClosed; the context's.
func (l *Latch) Count(ctx context.Context) (int64, error) {
	n, err := object.Ask(ctx, l.o, "look at latch", func(ctx context.Context) (string, error) {
		val, err := l.o.Runner.Redis().Get(ctx, l.o.RedisKey()).Result()
		if errors.Is(err, redis.Nil) {
			return "0", nil
		}
		return val, err
	})
	if err != nil {
		return 0, err
	}
	count, ok := parseCount(n)
	if !ok {
		return 0, l.noCount(ctx)
	}
	return max(count, 0), nil
}

// Await waits until the latch is open or ctx ends, also while Redis doesn't
// answer. It returns nil when the count has reached zero since it was called, even
// if the latch has been set again meanwhile (but for an opening that falls between
// its first look, if the reply to that is lost, and the next); at once if there is no
// count; and when the latch is deleted. Errors: the context's, with what Redis said last; ErrInvalid
// if the name is bad or holds something else; ErrDenied; ErrClosed.
func (l *Latch) Await(ctx context.Context) error {
	return l.await(ctx, wait.Spec{Forever: true})
}

// TryAwait looks once whether the latch is open, or waits for as long as Wait(d)
// says. Errors: as Await, and ErrNotAcquired if it isn't open by then;
// ErrUnavailable if Redis gave no answer within the time to wait, or within the
// command timeout without one; ErrInvalid for other options than Wait.
func (l *Latch) TryAwait(ctx context.Context, opts ...Option) error {
	set, err := hold.Collect(opts)
	if err != nil {
		return err
	}
	if set.LeaseSet {
		return errs.Invalid("await latch %s: nothing is held, so there is no lease: leave the option Lease out", errs.Quote(l.o.Name()))
	}
	err = l.await(ctx, wait.Spec{Wait: set.Wait})
	if errors.Is(err, errs.ErrNotAcquired) {
		return fmt.Errorf("%w: latch %s is not open yet", errs.ErrNotAcquired, errs.Quote(l.o.Name()))
	}
	return err
}

func (l *Latch) await(ctx context.Context, spec wait.Spec) error {
	var seen any // what the first look found
	spec.Channel = l.channel
	return l.o.Acquire(ctx, spec, object.Request{
		What: "await latch",
		Make: func(script.Keys) script.Call { return l.look(seen) },
		Read: func(reply script.Reply) (wait.Outcome, error) {
			switch n := reply.Int(); n {
			case open:
				return wait.Outcome{Granted: true}, nil
			case noCountSeen:
				return wait.Outcome{}, l.noCount(ctx)
			default:
				if seen == nil {
					seen = n - closed
				}
				return wait.Outcome{TTL: -1}, nil
			}
		},
	})
}
