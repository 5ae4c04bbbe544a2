package rlimiter_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rlimiter"
)

// prompt is how long what happens "at once" may take on a busy machine.
const prompt = 5 * time.Second

var names sync.Map // testing.TB -> string

// name is one that no other test uses, nor an earlier run of this one.
func name(t testing.TB) string {
	n, _ := names.LoadOrStore(t, fmt.Sprint(t.Name(), "-", time.Now().UnixNano()))
	return n.(string)
}

func newClient(t testing.TB, rdb redis.UniversalClient, opts ...holdfast.Option) *holdfast.Client {
	t.Helper()
	c, err := holdfast.New(rdb, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// peer is one client, with a count of what it sends.
type peer struct {
	*holdfast.Client
	sent *redistest.CommandCounter
}

func connect(t testing.TB, opts ...holdfast.Option) *peer {
	t.Helper()
	rdb, sent := rlimiter.Server().Client(t), &redistest.CommandCounter{}
	rdb.AddHook(sent)
	return &peer{newClient(t, rdb, opts...), sent}
}

func set(t testing.TB, l *rlimiter.Limiter, n int64, per time.Duration, opts ...rlimiter.RateOption) {
	t.Helper()
	ok, err := l.TrySetRate(t.Context(), rlimiter.Overall, n, per, opts...)
	require.NoError(t, err)
	require.True(t, ok)
}

func available(t testing.TB, l *rlimiter.Limiter) int64 {
	t.Helper()
	n, err := l.Available(t.Context())
	require.NoError(t, err)
	return n
}

// remaining is the time that a refusal tells.
func remaining(t testing.TB, err error) time.Duration {
	t.Helper()
	require.ErrorIs(t, err, holdfast.ErrNotAcquired)
	var refused *holdfast.NotAcquiredError
	require.ErrorAs(t, err, &refused)
	return refused.Remaining
}

// Whatever the first call finds, it is told apart.
func TestRateIsSetOnce(t *testing.T) {
	a, b := connect(t).RateLimiter(name(t)), connect(t).RateLimiter(name(t))
	ctx := t.Context()
	for _, err := range []error{
		a.Acquire(ctx, 1), a.TryAcquire(ctx, 1), a.Release(ctx, 1), a.UpdateRate(ctx, rlimiter.Overall, 1, time.Second),
	} {
		require.ErrorIs(t, err, holdfast.ErrInvalid)
		require.ErrorContains(t, err, "set a rate first")
	}
	_, err := a.Available(ctx)
	require.ErrorContains(t, err, "set a rate first")
	_, err = a.Config(ctx)
	require.ErrorContains(t, err, "set a rate first")
	there, err := a.Exists(ctx)
	require.NoError(t, err)
	require.False(t, there)

	set(t, a, 3, 1500*time.Microsecond, rlimiter.KeepAlive(time.Hour))
	again, err := b.TrySetRate(ctx, rlimiter.PerClient, 9, time.Second)
	require.NoError(t, err)
	require.False(t, again)
	c, err := b.Config(ctx)
	require.NoError(t, err)
	require.Equal(t, rlimiter.Config{Kind: rlimiter.Overall, Rate: 3, Interval: 2 * time.Millisecond, KeepAlive: time.Hour}, c)
	require.EqualValues(t, 3, available(t, b))
	there, err = a.Expire(ctx, time.Minute)
	require.NoError(t, err)
	require.True(t, there)

	was, err := b.Delete(ctx)
	require.NoError(t, err)
	require.True(t, was)
	was, err = a.Delete(ctx)
	require.NoError(t, err)
	require.False(t, was)
}

// A refusal comes at once, with the time: also where there would be time to wait,
// but not enough of it. Who waits long enough is served then, and asks but once more.
func TestWaitIsWhatRedisSays(t *testing.T) {
	p := connect(t, holdfast.WithPollFallback(time.Hour))
	l := p.RateLimiter(name(t))
	ctx := t.Context()
	const interval = 2 * time.Second
	set(t, l, 2, interval)
	require.NoError(t, l.Acquire(ctx, 2))
	granted := time.Now()

	for _, opts := range [][]rlimiter.Option{nil, {rlimiter.Wait(0)}, {rlimiter.Wait(100 * time.Millisecond)}} {
		due := remaining(t, locktest.Answered(func() error { return l.TryAcquire(ctx, 1, opts...) }))
		require.Positive(t, due)
		require.LessOrEqual(t, due, interval+time.Millisecond)
	}
	require.Less(t, time.Since(granted), interval, "they didn't come at once")
	before := p.sent.Count("evalsha")
	require.NoError(t, l.TryAcquire(ctx, 1, rlimiter.Wait(time.Minute)))
	require.LessOrEqual(t, p.sent.Count("evalsha")-before, int64(3), "it polled")
	// The window holds the new grant alone: the old ones have left it.
	require.Len(t, rlimiter.Grants(t, name(t)), 1)
}

// Nothing adds up while nobody asks.
func TestNoDriftAfterIdle(t *testing.T) {
	l := connect(t).RateLimiter(name(t))
	const interval = 100 * time.Millisecond
	set(t, l, 5, interval)
	for range 3 {
		require.NoError(t, l.Acquire(t.Context(), 5))
		redistest.Eventually(t, prompt, func() bool { return available(t, l) == 5 }, "the window doesn't empty")
		require.NoError(t, l.SetRate(t.Context(), rlimiter.Overall, 5, time.Hour))
		require.NoError(t, l.TryAcquire(t.Context(), 5))
		require.ErrorIs(t, l.TryAcquire(t.Context(), 1), holdfast.ErrNotAcquired)
		require.NoError(t, l.SetRate(t.Context(), rlimiter.Overall, 5, interval))
	}
}

// Goroutines of a client that wait stand in line: those who come later don't
// overtake one that wants many, and only the first asks.
func TestLocalWaitersStandInLine(t *testing.T) {
	p := connect(t, holdfast.WithPollFallback(time.Hour))
	l := p.RateLimiter(name(t))
	ctx := t.Context()
	set(t, l, 10, time.Hour)
	require.NoError(t, l.Acquire(ctx, 10))
	before := p.sent.Count("evalsha")
	many := make(chan error, 1)
	go func() { many <- l.Acquire(ctx, 8) }()
	mine := int64(0) // sent by the test
	redistest.Eventually(t, prompt, func() bool {
		mine++
		// Who stands in line asks again; who is about to join it doesn't.
		require.NoError(t, l.UpdateRate(ctx, rlimiter.Overall, 10, time.Hour))
		return p.sent.Count("evalsha")-before > 1+mine
	}, "it doesn't stand in line")
	require.Empty(t, many)

	ones := make(chan error, 20)
	for range 20 {
		go func() { ones <- l.TryAcquire(ctx, 1, rlimiter.Wait(time.Hour+time.Minute)) }()
	}
	require.NoError(t, l.Release(ctx, 5)) // enough for five of them
	select {
	case err := <-ones:
		t.Fatal("overtaken:", err)
	case err := <-many:
		t.Fatal("there are but 5:", err)
	case <-time.After(100 * time.Millisecond):
	}
	require.NoError(t, l.Release(ctx, 5)) // wakes the line at once
	require.NoError(t, <-many)
	require.NoError(t, <-ones)
	require.NoError(t, <-ones)
	require.NoError(t, l.SetRate(ctx, rlimiter.Overall, 100, time.Hour)) // so does a new rate
	for range 18 {
		require.NoError(t, <-ones)
	}
	require.EqualValues(t, 82, available(t, l))
	require.Less(t, p.sent.Count("evalsha")-before-mine, int64(60), "they stampeded")
}

func TestPerClient(t *testing.T) {
	a, b := connect(t).RateLimiter(name(t)), connect(t).RateLimiter(name(t))
	ctx := t.Context()
	require.NoError(t, a.SetRate(ctx, rlimiter.PerClient, 2, time.Hour))
	for _, l := range []*rlimiter.Limiter{a, b} {
		require.NoError(t, l.Acquire(ctx, 2))
		require.ErrorIs(t, l.TryAcquire(ctx, 1), holdfast.ErrNotAcquired)
	}
	require.NoError(t, a.Release(ctx, 2))
	require.EqualValues(t, 2, available(t, a))
	require.Zero(t, available(t, b))
}

// A rate that was lowered counts what was granted before.
func TestUpdateKeepsTheWindow(t *testing.T) {
	l := connect(t).RateLimiter(name(t))
	ctx := t.Context()
	set(t, l, 5, time.Hour)
	require.NoError(t, l.Acquire(ctx, 4))
	require.NoError(t, l.UpdateRate(ctx, rlimiter.Overall, 2, time.Hour))
	require.Zero(t, available(t, l))
	require.ErrorIs(t, l.Acquire(ctx, 3), holdfast.ErrInvalid, "more than the rate is now")
	require.NoError(t, l.Release(ctx, 3))
	require.EqualValues(t, 1, available(t, l))
	require.NoError(t, l.UpdateRate(ctx, rlimiter.Overall, 10, time.Hour))
	require.EqualValues(t, 9, available(t, l))
	require.NoError(t, l.SetRate(ctx, rlimiter.Overall, 10, time.Hour))
	require.EqualValues(t, 10, available(t, l))
}

// A waiter whose limiter is deleted, or whose client closes, is told.
func TestWaitersAreTold(t *testing.T) {
	p := connect(t)
	l, other := p.RateLimiter(name(t)), connect(t).RateLimiter(name(t))
	ctx := t.Context()
	waits := func(ctx context.Context) <-chan error {
		require.NoError(t, other.SetRate(ctx, rlimiter.Overall, 1, time.Hour))
		require.NoError(t, other.Acquire(ctx, 1))
		before := p.sent.Count("evalsha")
		done := make(chan error, 1)
		go func() { done <- l.Acquire(ctx, 1) }()
		redistest.Eventually(t, prompt, func() bool { return p.sent.Count("evalsha") > before }, "it doesn't ask")
		return done
	}
	done := waits(ctx)
	was, err := l.Delete(ctx)
	require.NoError(t, err)
	require.True(t, was)
	require.ErrorIs(t, <-done, holdfast.ErrInvalid)

	leaving, cancel := context.WithCancelCause(ctx)
	done = waits(leaving)
	why := errors.New("enough")
	cancel(why)
	err = <-done
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, why)

	done = waits(ctx)
	require.NoError(t, p.Close())
	require.ErrorIs(t, <-done, holdfast.ErrClosed)
	require.ErrorIs(t, l.TryAcquire(ctx, 1), holdfast.ErrClosed)
	require.Len(t, rlimiter.Grants(t, name(t)), 1)
}

// A name that holds something else is left alone, and the error says what it is; and
// a limiter's name is no lock, latch or semaphore.
func TestA24NameHoldsSomethingElse(t *testing.T) {
	c, rdb := connect(t), rlimiter.Server().Client(t)
	ctx := t.Context()
	hold, err := c.Lock(name(t) + "lock").Lock(ctx)
	require.NoError(t, err)
	defer func() { require.NoError(t, hold.Unlock(ctx)) }()
	require.NoError(t, rdb.Set(ctx, name(t)+"string", "x", 0).Err())
	require.NoError(t, rdb.HSet(ctx, name(t)+"hash", "rate", "many", "interval", "long").Err())
	for kind, what := range map[string]string{
		"lock": "a hash that is no rate limiter", "string": "a string", "hash": "a hash that is no rate limiter",
	} {
		key := name(t) + kind
		before, err := rdb.Dump(ctx, key).Result()
		require.NoError(t, err)
		l := c.RateLimiter(key)
		_, errTry := l.TrySetRate(ctx, rlimiter.Overall, 1, time.Second)
		_, errAvailable := l.Available(ctx)
		_, errDelete := l.Delete(ctx)
		_, errExpire := l.Expire(ctx, time.Second)
		for i, err := range []error{
			errTry, errAvailable, errDelete, errExpire, l.SetRate(ctx, rlimiter.Overall, 1, time.Second),
			l.UpdateRate(ctx, rlimiter.Overall, 1, time.Second), l.Acquire(ctx, 1), l.TryAcquire(ctx, 1), l.Release(ctx, 1),
		} {
			require.ErrorIs(t, err, holdfast.ErrInvalid, "%s %d", kind, i)
			require.ErrorContains(t, err, what)
		}
		_, err = l.Config(ctx)
		require.ErrorIs(t, err, holdfast.ErrInvalid)
		after, err := rdb.Dump(ctx, key).Result()
		require.NoError(t, err)
		require.Equal(t, before, after)
	}

	set(t, c.RateLimiter(name(t)), 1, time.Second)
	_, err = c.Lock(name(t)).TryLock(ctx)
	require.ErrorIs(t, err, holdfast.ErrInvalid)
	require.ErrorIs(t, c.Latch(name(t)).CountDown(ctx), holdfast.ErrInvalid)
	there, err := c.RateLimiter(name(t)).Exists(ctx)
	require.NoError(t, err)
	require.True(t, there)
}

func TestBadInput(t *testing.T) {
	c := connect(t)
	ctx := t.Context()
	l := c.RateLimiter(name(t))
	set(t, l, 5, time.Hour)
	for _, n := range []int64{0, -1, math.MinInt64, 6, 1 << 32, math.MaxInt64} {
		require.ErrorIs(t, l.Acquire(ctx, n), holdfast.ErrInvalid, n)
		require.ErrorIs(t, l.TryAcquire(ctx, n, rlimiter.Wait(time.Hour)), holdfast.ErrInvalid, n)
		if n != 6 {
			require.ErrorIs(t, l.Release(ctx, n), holdfast.ErrInvalid, n)
		}
	}
	require.ErrorIs(t, l.TryAcquire(ctx, 1, holdfast.Lease(time.Second)), holdfast.ErrInvalid)
	for _, bad := range []struct {
		k    rlimiter.Kind
		n    int64
		per  time.Duration
		opts []rlimiter.RateOption
	}{
		{2, 1, time.Second, nil},
		{-1, 1, time.Second, nil},
		{rlimiter.Overall, 0, time.Second, nil},
		{rlimiter.Overall, -1, time.Second, nil},
		{rlimiter.Overall, 1<<53 + 1, time.Second, nil},
		{rlimiter.Overall, 1, 0, nil},
		{rlimiter.Overall, 1, -time.Second, nil},
		{rlimiter.Overall, 1, time.Second, []rlimiter.RateOption{rlimiter.KeepAlive(-1)}},
	} {
		_, err := l.TrySetRate(ctx, bad.k, bad.n, bad.per, bad.opts...)
		require.ErrorIs(t, err, holdfast.ErrInvalid)
		require.ErrorIs(t, l.SetRate(ctx, bad.k, bad.n, bad.per, bad.opts...), holdfast.ErrInvalid)
		require.ErrorIs(t, l.UpdateRate(ctx, bad.k, bad.n, bad.per, bad.opts...), holdfast.ErrInvalid)
	}
	for _, d := range []time.Duration{0, -1} {
		_, err := l.Expire(ctx, d)
		require.ErrorIs(t, err, holdfast.ErrInvalid)
	}
	require.EqualValues(t, 5, available(t, l), "nothing was taken")

	// Times without a meaning in Redis are capped (A46).
	require.NoError(t, l.SetRate(ctx, rlimiter.Overall, 1, math.MaxInt64, nil, rlimiter.KeepAlive(math.MaxInt64)))
	require.NoError(t, l.Acquire(ctx, 1))
	require.Greater(t, remaining(t, l.TryAcquire(ctx, 1, rlimiter.Wait(math.MaxInt64))), 90*365*24*time.Hour)
	require.NoError(t, l.SetRate(ctx, rlimiter.Overall, 1<<53, 1))
	require.NoError(t, l.Acquire(ctx, 1<<32-1))

	for _, bad := range []string{"", "a{", "}{", "{}", strings.Repeat("n", 1<<20)} {
		require.ErrorIs(t, c.RateLimiter(bad).Acquire(ctx, 1), holdfast.ErrInvalid)
		_, err := c.RateLimiter(bad).Exists(ctx)
		require.ErrorIs(t, err, holdfast.ErrInvalid)
	}
	var none context.Context
	require.ErrorIs(t, l.Acquire(none, 1), holdfast.ErrInvalid)
	require.ErrorIs(t, l.SetRate(none, rlimiter.Overall, 1, time.Second), holdfast.ErrInvalid)
	require.NoError(t, l.Release(none, 1), "giving back shouldn't fail over that")
}
