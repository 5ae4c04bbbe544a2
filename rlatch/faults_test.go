package rlatch_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rlatch"
)

// throughProxy is a client whose connections go through a proxy, which gives up a
// read after so long.
func throughProxy(t testing.TB, read time.Duration, opts ...holdfast.Option) (*holdfast.Client, *faultproxy.Proxy) {
	t.Helper()
	proxy := faultproxy.New(t, rlatch.Server().Addr())
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: read})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	return newClient(t, rdb, opts...), proxy
}

var anyScript = faultproxy.Cmd("EVALSHA", "EVAL")

// A count-down whose reply is lost, or whose first copy runs after all that came
// later, takes exactly one off.
func TestA18CountDownSentTwice(t *testing.T) {
	c, proxy := throughProxy(t, 200*time.Millisecond)
	l := c.Latch(name(t))
	set(t, l, 3)
	require.NoError(t, l.CountDown(t.Context())) // the script is loaded from here on
	require.EqualValues(t, 2, count(t, l))

	lost := proxy.Add(faultproxy.Rule{Match: anyScript, Do: faultproxy.DropReply, Times: 1})
	require.NoError(t, l.CountDown(t.Context()))
	require.Equal(t, 1, lost.Hits())
	require.EqualValues(t, 1, count(t, l))

	free := make(chan struct{})
	late := proxy.Add(faultproxy.Rule{Match: anyScript, Do: faultproxy.HoldRequest(free), Times: 1})
	require.NoError(t, l.CountDown(t.Context()))
	require.Zero(t, count(t, l))
	set(t, l, 5) // a new round, which the late copy must leave alone
	before := rlatch.Scripts(t)
	close(free)
	redistest.Eventually(t, prompt, func() bool { return rlatch.Scripts(t) > before }, "the late copy didn't run")
	require.Equal(t, 1, late.Hits())
	require.EqualValues(t, 5, count(t, l))
}

// A count-down whose caller leaves, or that finds no server at first, goes on: a
// worker's report isn't lost because its request is over.
func TestCountDownGoesOnBehindItsCaller(t *testing.T) {
	c, proxy := throughProxy(t, 200*time.Millisecond)
	other := connect(t).Latch(name(t))
	set(t, other, 2)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, c.Latch(name(t)).CountDown(over), "a context that has ended doesn't keep it back")
	require.EqualValues(t, 1, count(t, other))

	proxy.Blackhole(true)
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := c.Latch(name(t)).CountDown(soon)
	require.ErrorIs(t, err, holdfast.ErrUncertain)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.EqualValues(t, 1, count(t, other))
	proxy.Blackhole(false)
	redistest.Eventually(t, prompt, func() bool { return count(t, other) == 0 }, "the count-down was lost")
}

// No answer is never "not open", nor "open".
func TestA47AwaitWithoutServer(t *testing.T) {
	c, proxy := throughProxy(t, 200*time.Millisecond, holdfast.WithCommandTimeout(500*time.Millisecond))
	l := c.Latch(name(t))
	set(t, l, 1)
	proxy.Refuse(true)
	proxy.Cut()
	require.ErrorIs(t, l.TryAwait(t.Context()), holdfast.ErrUnavailable)
	require.ErrorIs(t, l.TryAwait(t.Context(), holdfast.Wait(100*time.Millisecond)), holdfast.ErrUnavailable)
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	err := l.Await(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, holdfast.ErrUnavailable)
	_, err = l.TrySetCount(t.Context(), 1)
	require.ErrorIs(t, err, holdfast.ErrUnavailable)
	proxy.Refuse(false)
	require.ErrorIs(t, l.TryAwait(t.Context()), holdfast.ErrNotAcquired)
}

// Messages that are lost while the subscription is rebuilt don't matter.
func TestA02OpenedWhileTheSubscriptionIsRebuilt(t *testing.T) {
	c, proxy := throughProxy(t, time.Second, noPoll)
	l, other := c.Latch(name(t)), connect(t).Latch(name(t))
	set(t, other, 1)
	done := make(chan error, 1)
	go func() { done <- l.Await(t.Context()) }()
	rdb := rlatch.Server().Client(t)
	redistest.Eventually(t, prompt, func() bool { return subscribed(t, rdb, name(t)) == 1 }, "nobody waits")
	proxy.Refuse(true)
	proxy.Cut()
	require.NoError(t, other.CountDown(t.Context()))
	proxy.Refuse(false)
	allReturn(t, done, 1)
}

// A user without rights to the channel still counts down; waiters poll.
func TestA41PublishIsRefused(t *testing.T) {
	srv := redistest.Start(t)
	admin := srv.Client(t)
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "mute", "on", ">pw", "~*", "+@all", "resetchannels").Err())
	mute := newClient(t, srv.Client(t, func(o *redis.Options) { o.Username, o.Password = "mute", "pw" }))
	waits := newClient(t, srv.Client(t), holdfast.WithPollFallback(100*time.Millisecond))
	set(t, mute.Latch("x"), 1)
	done := make(chan error, 1)
	go func() { done <- waits.Latch("x").Await(t.Context()) }()
	redistest.Eventually(t, prompt, func() bool { return subscribed(t, admin, "x") == 1 }, "nobody waits")
	require.NoError(t, mute.Latch("x").CountDown(t.Context()))
	allReturn(t, done, 1)
	set(t, mute.Latch("x"), 1)
	was, err := mute.Latch("x").Delete(t.Context())
	require.NoError(t, err)
	require.True(t, was)
}
