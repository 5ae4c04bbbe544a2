package rlatch_test

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
	"github.com/holdfast-go/holdfast/rlatch"
)

// prompt is how long what happens "at once" may take on a busy machine.
const prompt = 5 * time.Second

// noPoll keeps the slow poll from hiding a wake-up that was lost.
var noPoll = holdfast.WithPollFallback(time.Hour)

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

func connect(t testing.TB, opts ...holdfast.Option) *holdfast.Client {
	t.Helper()
	return newClient(t, rlatch.Server().Client(t), opts...)
}

func set(t testing.TB, l *rlatch.Latch, n int64) {
	t.Helper()
	ok, err := l.TrySetCount(t.Context(), n)
	require.NoError(t, err)
	require.True(t, ok)
}

func count(t testing.TB, l *rlatch.Latch) int64 {
	t.Helper()
	n, err := l.Count(t.Context())
	require.NoError(t, err)
	return n
}

// peer is one client, with a count of what it sends.
type peer struct {
	*holdfast.Client
	sent *redistest.CommandCounter
}

func newPeer(t testing.TB) *peer {
	t.Helper()
	rdb, sent := rlatch.Server().Client(t), &redistest.CommandCounter{}
	rdb.AddHook(sent)
	return &peer{newClient(t, rdb, noPoll), sent}
}

// await starts n calls of Await on each latch, and answers where they report once
// all are parked: refused, subscribed, and refused once more.
func (p *peer) await(t testing.TB, n int, latches ...*rlatch.Latch) <-chan error {
	t.Helper()
	n *= len(latches)
	done := make(chan error, n)
	before := p.sent.Count("evalsha")
	for i := range n {
		l := latches[i%len(latches)]
		go func() { done <- l.Await(t.Context()) }()
	}
	redistest.Eventually(t, prompt, func() bool { return p.sent.Count("evalsha") >= before+2*int64(n) }, "not all waiters are parked")
	return done
}

func allReturn(t testing.TB, done <-chan error, n int) {
	t.Helper()
	late := time.After(prompt)
	for i := range n {
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-late:
			t.Fatalf("only %d of %d waiters were let go", i, n)
		}
	}
}

func subscribed(t testing.TB, rdb *redis.Client, name string) int64 {
	t.Helper()
	channel := "redisson_countdownlatch__channel__{" + name + "}"
	n, err := rdb.PubSubNumSub(context.Background(), channel).Result()
	require.NoError(t, err)
	return n[channel]
}

// Twenty waiters in two clients, on one object and on several: all are told.
func TestA04AllWaitersAreTold(t *testing.T) {
	a, b := newPeer(t), newPeer(t)
	n := name(t)
	one := a.Latch(n)
	set(t, one, 1)
	var several []*rlatch.Latch
	for range 10 {
		several = append(several, b.Latch(n))
	}
	first, second := a.await(t, 10, one), b.await(t, 1, several...)
	require.EqualValues(t, 2, subscribed(t, rlatch.Server().Client(t), n), "one subscription a client")

	require.NoError(t, one.CountDown(t.Context()))
	allReturn(t, first, 10)
	allReturn(t, second, 10)
	redistest.Eventually(t, prompt, func() bool {
		return subscribed(t, rlatch.Server().Client(t), n) == 0
	}, "the channel still has a subscriber")
}

// The count of a live latch can't be changed, never goes below zero, and can be set
// again only after it got there.
func TestA35SetAgainAndCountedTooFar(t *testing.T) {
	a, b := newPeer(t), connect(t)
	n := name(t)
	l := a.Latch(n)
	ctx := t.Context()
	set(t, l, 2)
	again, err := b.Latch(n).TrySetCount(ctx, 5)
	require.NoError(t, err)
	require.False(t, again)
	done := a.await(t, 3, l)
	for _, want := range []int64{1, 0, 0} {
		require.NoError(t, b.Latch(n).CountDown(ctx))
		require.Equal(t, want, count(t, l))
	}
	allReturn(t, done, 3)

	set(t, l, 1)
	require.ErrorIs(t, locktest.Answered(func() error {
		return l.TryAwait(ctx, holdfast.Wait(20*time.Millisecond))
	}), holdfast.ErrNotAcquired)
	require.NoError(t, l.CountDown(ctx))
	require.NoError(t, l.TryAwait(ctx))
	require.NoError(t, l.Await(ctx), "open stays open")
}

// A latch that is set again in the same instant lets go whom the round before held,
// and holds whoever comes after.
func TestA35WaitersOfTheFirstRoundAreLetGo(t *testing.T) {
	a, b := newPeer(t), connect(t)
	l, other := a.Latch(name(t)), b.Latch(name(t))
	ctx := t.Context()
	for range 20 {
		set(t, other, 1)
		done := a.await(t, 5, l)
		require.NoError(t, other.CountDown(ctx))
		set(t, other, 1)
		require.ErrorIs(t, other.TryAwait(ctx), holdfast.ErrNotAcquired)
		require.ErrorIs(t, l.TryAwait(ctx), holdfast.ErrNotAcquired)
		allReturn(t, done, 5)
		require.NoError(t, other.CountDown(ctx))
	}
}

// Waiters of a latch that is deleted go on: no latch is an open latch. By Delete at
// once; if somebody deletes the key, at the next poll.
func TestA35DeletedWhileSomebodyWaits(t *testing.T) {
	a, b := newPeer(t), connect(t, holdfast.WithPollFallback(100*time.Millisecond))
	l := a.Latch(name(t))
	set(t, l, 7)
	done := a.await(t, 3, l)
	was, err := b.Latch(name(t)).Delete(t.Context())
	require.NoError(t, err)
	require.True(t, was)
	allReturn(t, done, 3)
	was, err = l.Delete(t.Context())
	require.NoError(t, err)
	require.False(t, was)

	set(t, l, 7)
	polling := make(chan error, 1)
	go func() { polling <- b.Latch(name(t)).Await(t.Context()) }()
	rdb := rlatch.Server().Client(t)
	redistest.Eventually(t, prompt, func() bool { return subscribed(t, rdb, name(t)) == 1 }, "nobody waits")
	require.NoError(t, rdb.Del(t.Context(), name(t)).Err())
	allReturn(t, polling, 1)
}

// A Java service that counts down is heard: all it does is change the key and
// publish.
func TestRedissonCountsDown(t *testing.T) {
	a, rdb := newPeer(t), rlatch.Server().Client(t)
	require.NoError(t, rdb.Set(t.Context(), name(t), "1", 0).Err())
	done := a.await(t, 3, a.Latch(name(t)))
	require.NoError(t, rdb.Del(t.Context(), name(t)).Err())
	require.NoError(t, rdb.Publish(t.Context(), "redisson_countdownlatch__channel__{"+name(t)+"}", "0").Err())
	allReturn(t, done, 3)
}

// Many count down at once, in two clients: each takes one, and the last one opens.
func TestConcurrentCountDowns(t *testing.T) {
	a, b := connect(t), connect(t)
	const each = 50
	set(t, a.Latch(name(t)), 2*each)
	var wg sync.WaitGroup
	for i := range 2 * each {
		c := a
		if i%2 == 1 {
			c = b
		}
		wg.Go(func() {
			l := c.Latch(name(t))
			if err := l.CountDown(t.Context()); err != nil {
				t.Error(err)
			}
			if err := l.Await(t.Context()); err != nil {
				t.Error(err)
			}
			if n, err := l.Count(t.Context()); n != 0 || err != nil {
				t.Error("open with a count of", n, err)
			}
		})
	}
	wg.Wait()
}

// A name that holds something else is left alone, and the error says what it is.
func TestA24NameHoldsSomethingElse(t *testing.T) {
	c, rdb := connect(t), rlatch.Server().Client(t)
	ctx := t.Context()
	for kind, put := range map[string]func(key string) error{
		"a list":                      func(key string) error { return rdb.RPush(ctx, key, "x").Err() },
		"a hash":                      func(key string) error { return rdb.HSet(ctx, key, "f", "x").Err() },
		"a string that is no count":   func(key string) error { return rdb.Set(ctx, key, "{\"a\":1}", 0).Err() },
		"a string that is  no count":  func(key string) error { return rdb.Set(ctx, key, "1.5", 0).Err() },
		"a string that  is no count ": func(key string) error { return rdb.Set(ctx, key, "", 0).Err() },
	} {
		key := name(t) + kind
		require.NoError(t, put(key))
		before, err := rdb.Dump(ctx, key).Result()
		require.NoError(t, err)
		l := c.Latch(key)
		_, errSet := l.TrySetCount(ctx, 1)
		_, errCount := l.Count(ctx)
		_, errDelete := l.Delete(ctx)
		for i, err := range []error{errSet, errCount, errDelete, l.CountDown(ctx), l.Await(ctx), l.TryAwait(ctx)} {
			require.ErrorIs(t, err, holdfast.ErrInvalid, "%s %d", kind, i)
			require.ErrorContains(t, err, strings.Join(strings.Fields(kind), " "))
		}
		after, err := rdb.Dump(ctx, key).Result()
		require.NoError(t, err)
		require.Equal(t, before, after)
	}
}

func TestBadInput(t *testing.T) {
	c := connect(t)
	ctx := t.Context()
	good := c.Latch(name(t))
	for _, n := range []int64{-1, math.MinInt64, 1<<53 + 1, math.MaxInt64} {
		_, err := good.TrySetCount(ctx, n)
		require.ErrorIs(t, err, holdfast.ErrInvalid)
	}
	set(t, good, 0)
	require.Zero(t, count(t, good))
	set(t, good, 1<<53)
	require.EqualValues(t, 1<<53, count(t, good))
	require.NoError(t, good.CountDown(ctx))
	require.EqualValues(t, 1<<53-1, count(t, good))
	require.ErrorIs(t, good.TryAwait(ctx, holdfast.Lease(time.Second)), holdfast.ErrInvalid)
	require.ErrorIs(t, good.TryAwait(ctx, holdfast.Wait(-1)), holdfast.ErrNotAcquired)

	for _, name := range []string{"", "a{", "}{", "{}", strings.Repeat("n", 1<<20)} {
		l := c.Latch(name)
		_, errSet := l.TrySetCount(ctx, 1)
		_, errCount := l.Count(ctx)
		_, errDelete := l.Delete(ctx)
		for _, err := range []error{errSet, errCount, errDelete, l.CountDown(ctx), l.Await(ctx), l.TryAwait(ctx)} {
			require.ErrorIs(t, err, holdfast.ErrInvalid)
		}
	}
	var none context.Context
	_, err := good.TrySetCount(none, 1)
	require.ErrorIs(t, err, holdfast.ErrInvalid)
	require.ErrorIs(t, good.Await(none), holdfast.ErrInvalid)
	require.NoError(t, good.CountDown(none), "a report isn't lost over that")

	require.NoError(t, c.Close())
	require.ErrorIs(t, good.CountDown(ctx), holdfast.ErrClosed)
	require.ErrorIs(t, good.Await(ctx), holdfast.ErrClosed)
}

// Where pub/sub may be sharded, the channel of a name with braces is in another slot
// than its key. It is refused before anything is sent.
func TestA44NamesWithBracesOnACluster(t *testing.T) {
	c := newClient(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{rlatch.Server().Addr()}}))
	_, err := c.Latch("x{y}z").TrySetCount(t.Context(), 1)
	require.ErrorIs(t, err, holdfast.ErrInvalid)
	require.ErrorContains(t, err, "redisson_countdownlatch__channel__{x{y}z}")

	l := connect(t).Latch("x{y}z:" + name(t))
	set(t, l, 1)
	require.NoError(t, l.CountDown(t.Context()))
	require.NoError(t, l.Await(t.Context()))
}

// A waiter leaves when its context ends or its client closes, and leaves nothing.
func TestWaitersLeave(t *testing.T) {
	a := newPeer(t)
	l := a.Latch(name(t))
	set(t, l, 1)
	ctx, cancel := context.WithCancelCause(t.Context())
	left := make(chan error, 1)
	go func() { left <- l.Await(ctx) }()
	stay := a.await(t, 1, l)
	why := errors.New("enough")
	cancel(why)
	err := <-left
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, why)
	require.NoError(t, a.Close())
	require.ErrorIs(t, <-stay, holdfast.ErrClosed)
	rdb := rlatch.Server().Client(t)
	redistest.Eventually(t, prompt, func() bool { return subscribed(t, rdb, name(t)) == 0 }, "still subscribed")
	require.Equal(t, "1", rdb.Get(t.Context(), name(t)).Val())
}

// A count that Redis can't lower is a bad name, not a refusal by Redis.
func TestCountThatRedisCannotLower(t *testing.T) {
	c := connect(t)
	rdb := rlatch.Server().Client(t)
	for _, count := range []string{"9223372036854775808", "99999999999999999999"} {
		require.NoError(t, rdb.Set(t.Context(), t.Name(), count, 0).Err())
		require.ErrorIs(t, c.Latch(t.Name()).CountDown(t.Context()), holdfast.ErrInvalid)
		require.Equal(t, count, rdb.Get(t.Context(), t.Name()).Val())
	}
}
