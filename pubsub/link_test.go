package pubsub

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/task"
)

// Messages published while there is no connection are lost, so a new one wakes
// everybody: not before it stands, or they would look too early.
func TestReconnectWakesEverybody(t *testing.T) {
	const n = 50
	srv := redistest.Start(t)
	p := faultproxy.New(t, srv.Addr())
	b := newBench(t, srv, p)
	var subs []*Subscription
	for i := range n {
		subs = append(subs, b.ready(b.channel(i)), b.ready(b.channel(i)))
	}
	for range 3 {
		gate := make(chan struct{})
		fault := p.Add(faultproxy.Rule{Match: faultproxy.Cmd("subscribe"), Do: faultproxy.HoldReply(gate)})
		before, _ := b.calls("subscribe")
		require.NoError(t, b.admin.ClientKillByFilter(t.Context(), "type", "pubsub").Err())
		b.await(fault.Done(), "SUBSCRIBE on a new connection")
		for _, s := range subs {
			require.False(t, has(s.Wake()), "woken before the new connection stood")
		}
		fault.Remove()
		close(gate)
		for _, s := range subs {
			b.await(s.Wake(), "wake-up by the reconnect")
		}
		after, _ := b.calls("subscribe")
		require.Equal(t, before+1, after, "go-redis has subscribed by itself, too")
		b.caughtUp()
		for _, s := range subs {
			require.False(t, has(s.Wake()), "woken twice")
		}
		b.publish(b.channel(0))
		b.await(subs[0].Wake(), "message on the new connection")
		b.await(subs[1].Wake(), "message on the new connection")
	}
	require.Equal(t, 3, b.log.count(lostText), b.log)
	for _, s := range subs {
		s.Close()
	}
	b.nothingLeft()
	require.LessOrEqual(t, b.pubsubConns(), 1)
}

func TestServerRestart(t *testing.T) {
	srv := redistest.Start(t)
	b := newBench(t, srv, nil)
	s := b.ready(b.channel(1))
	srv.Kill()
	fresh := b.Subscribe(b.channel(2))
	redistest.Eventually(t, prompt, func() bool { return b.log.count(lostText) >= 3 }, "no attempt to connect")
	require.False(t, has(fresh.Ready()))
	srv.Restart()
	b.await(s.Wake(), "wake-up by the reconnect")
	b.await(fresh.Ready(), "confirmation")
	b.publish(b.channel(1))
	b.await(s.Wake(), "message")
}

// Attempts to connect are spaced, or a server that is down costs a core.
func TestReconnectIsNoBusyLoop(t *testing.T) {
	t.Parallel()
	var dials atomic.Int64
	var up atomic.Bool
	b := newBench(t, server, nil, func(o *redis.Options) {
		o.DialerRetries, o.DialerRetryTimeout = 1, time.Nanosecond // go-redis makes no pauses
		dial := redis.NewDialer(o)
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials.Add(1)
			if !up.Load() {
				return nil, errors.New("nobody there")
			}
			return dial(ctx, network, addr)
		}
	})
	began := time.Now()
	s := b.Subscribe(b.channel(1))
	redistest.Eventually(t, 4*prompt, func() bool { return dials.Load() >= 12 }, "no attempts to connect")
	require.Greater(t, time.Since(began), time.Second)
	up.Store(true)
	b.await(s.Ready(), "confirmation")
}

func TestBlackHoleIsNoticed(t *testing.T) {
	t.Parallel()
	p := faultproxy.New(t, server.Addr())
	b := newBench(t, server, p)
	s := b.ready(b.channel(1))
	p.Blackhole(true)
	began := time.Now()
	redistest.Eventually(t, 2*pingAfter+2*prompt, func() bool { return b.log.count(lostText) > 0 }, "the link is dead and nobody notices")
	require.Greater(t, time.Since(began), pingAfter, "too hasty")
	require.Contains(t, b.log.String(), errDead.Error())
	p.Blackhole(false)
	b.awaitFor(3*prompt, s.Wake(), "wake-up by the reconnect")
	redistest.Eventually(t, prompt, func() bool { return b.subscribed(b.channel(1)) }, "subscribed other than once")
	b.publish(b.channel(1))
	b.await(s.Wake(), "message on the new connection")
}

// A quiet link is a living one.
func TestQuietLinkIsKept(t *testing.T) {
	t.Parallel()
	p := faultproxy.New(t, server.Addr())
	b := newBench(t, server, p)
	pings := p.Add(faultproxy.Rule{Match: faultproxy.Cmd("ping")})
	s := b.ready(b.channel(1))
	redistest.Eventually(t, 2*pingAfter+2*prompt, func() bool { return pings.Hits() >= 2 }, "no pings")
	require.Empty(t, b.log.String())
	b.publish(b.channel(1))
	b.await(s.Wake(), "message")
}

// A channel asked for between a ping and its pong doesn't wait for the next
// ping.
func TestSubscribeBetweenPingAndPong(t *testing.T) {
	p := faultproxy.New(t, server.Addr())
	b := newBench(t, server, p)
	b.ready(b.channel(1))
	gate := make(chan struct{})
	ping := p.Add(faultproxy.Rule{Match: faultproxy.Cmd("ping"), Do: faultproxy.HoldReply(gate)})
	b.plain.mu.Lock()
	b.plain.lastRead = time.Now().Add(-pingAfter) // as if it had been quiet
	b.plain.mu.Unlock()
	b.plain.nudge()
	b.await(ping.Done(), "ping")
	s := b.Subscribe(b.channel(2))
	b.handled()
	close(gate)
	b.awaitFor(pingAfter/2, s.Ready(), "confirmation")
}

func TestConnectionWithoutChannelsIsClosed(t *testing.T) {
	p := faultproxy.New(t, server.Addr())
	b := newBench(t, server, p)
	b.ready(b.channel(1)).Close()
	b.nothingLeft()
	require.Equal(t, 1, p.Conns())
	b.plain.mu.Lock()
	b.plain.emptySince = time.Now().Add(-idleAfter) // as if it had been long
	b.plain.mu.Unlock()
	b.plain.nudge()
	redistest.Eventually(t, prompt, func() bool { return p.Conns() == 0 }, "the connection is kept")
	require.Empty(t, b.log.String())

	s := b.ready(b.channel(1))
	require.Equal(t, 1, p.Conns())
	b.publish(b.channel(1))
	b.await(s.Wake(), "message")
}

// A connection that took long to make isn't dead for that.
func TestSlowConnectionIsKept(t *testing.T) {
	var b *bench
	b = newBench(t, server, nil, func(o *redis.Options) {
		dial := redis.NewDialer(o)
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			b.plain.mu.Lock()
			long := time.Now().Add(-2*pingAfter - time.Second) // as if it had begun then
			b.plain.lastRead, b.plain.pendingFrom = long, long
			b.plain.mu.Unlock()
			b.plain.nudge() // somebody has come meanwhile
			return dial(ctx, network, addr)
		}
	})
	s := b.Subscribe(b.channel(1))
	b.await(s.Ready(), "confirmation")
	b.handled()
	b.publish(b.channel(1))
	b.await(s.Wake(), "message")
	require.Empty(t, b.log.String())
}

func TestCloseLeavesNothing(t *testing.T) {
	for what, use := range map[string]func(b *bench, p *faultproxy.Proxy){
		"unused":  func(*bench, *faultproxy.Proxy) {},
		"ready":   func(b *bench, _ *faultproxy.Proxy) { b.ready(b.channel(1)); b.ready(b.channel(2)) },
		"emptied": func(b *bench, _ *faultproxy.Proxy) { b.ready(b.channel(1)).Close(); b.nothingLeft() },
		"asking": func(b *bench, p *faultproxy.Proxy) {
			f := p.Add(faultproxy.Rule{Match: faultproxy.Cmd("subscribe"), Do: faultproxy.DropReply})
			b.Subscribe(b.channel(1))
			b.await(f.Done(), "SUBSCRIBE")
		},
		"connecting": func(b *bench, p *faultproxy.Proxy) {
			p.Blackhole(true)
			b.Subscribe(b.channel(1))
			redistest.Eventually(b.t, prompt, func() bool { return p.Conns() > 0 }, "no connection")
		},
		"between attempts": func(b *bench, p *faultproxy.Proxy) {
			p.Refuse(true)
			b.Subscribe(b.channel(1))
			redistest.Eventually(b.t, 2*prompt, func() bool { return b.log.count(lostText) > 0 }, "no attempt")
		},
	} {
		t.Run(what, func(t *testing.T) {
			srv := redistest.Start(t)
			p := faultproxy.New(t, srv.Addr())
			b := newBench(t, srv, p, func(o *redis.Options) { o.ReadTimeout = time.Second }) // bounds Close
			require.NoError(t, b.admin.Ping(t.Context()).Err())
			before := goleak.IgnoreCurrent()
			use(b, p)
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				b.close()
			}()
			b.await(closed, "end")
			p.Blackhole(false)
			p.Cut() // the proxy's own goroutines
			require.NoError(t, goleak.Find(before))
			redistest.Eventually(t, gone, func() bool { return b.pubsubConns() == 0 }, "a connection is left")

			s := b.Subscribe(b.channel(3))
			require.False(t, has(s.Ready()))
			s.Close()
			require.Zero(t, b.pubsubConns())
		})
	}
}

// A connection may have nothing to ask for: all that is wanted was refused a
// moment ago, or left.
func TestCloseWithNothingAskedFor(t *testing.T) {
	ends := func(b *bench) {
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			b.close()
		}()
		b.await(closed, "end")
	}
	t.Run("refused", func(t *testing.T) {
		srv := redistest.Start(t)
		p := faultproxy.New(t, srv.Addr())
		require.NoError(t, srv.Client(t).Do(t.Context(), "acl", "setuser", "default", "resetchannels").Err())
		b := newBench(t, srv, p)
		b.Subscribe(b.channel(1))
		redistest.Eventually(t, prompt, func() bool { return b.log.count(refusedText) > 0 }, "no word of the refusal")
		p.Cut()
		redistest.Eventually(t, prompt, func() bool { return b.log.count(lostText) > 0 }, "no word of the cut")
		redistest.Eventually(t, prompt, func() bool { // it sleeps in a session
			b.plain.mu.Lock()
			defer b.plain.mu.Unlock()
			return time.Since(b.plain.lastRead) > 10*minReconnect
		}, "no new session")
		ends(b)
	})
	t.Run("left", func(t *testing.T) {
		rdb := server.Client(t)
		for range 300 {
			b := &bench{t: t, tasks: task.NewGroup(), log: &logbook{}}
			b.Hub = New(rdb, nil, b.tasks, slog.New(slog.NewTextHandler(b.log, nil)))
			s := b.Subscribe(b.channel(1))
			go s.Close()
			ends(b)
		}
	})
}

// ender is a connection that runs a function before it sends a SUBSCRIBE.
type ender struct {
	net.Conn
	end func()
}

func (e *ender) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("subscribe")) {
		e.end()
	}
	return e.Conn.Write(p)
}

func TestClosedWhileSubscribing(t *testing.T) {
	p := faultproxy.New(t, server.Addr())
	var b *bench
	ended := make(chan struct{})
	b = newBench(t, server, p, func(o *redis.Options) {
		dial := redis.NewDialer(o)
		o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
			conn, err := dial(ctx, network, p.Addr())
			return &ender{conn, sync.OnceFunc(func() { b.tasks.Stop(); close(ended) })}, err
		}
	})
	s := b.Subscribe(b.channel(1))
	b.await(ended, "SUBSCRIBE")
	b.close()
	require.False(t, has(s.Ready()))
	redistest.Eventually(t, prompt, func() bool { return p.Conns() == 0 }, "the connection is left")
}

// The schedule of a link, by its clock.
func TestLinkSchedule(t *testing.T) {
	now := time.Now()
	fresh := func() *link {
		l := New(nil, nil, task.NewGroup(), slog.New(slog.DiscardHandler)).plain
		l.lastRead = now
		return l
	}
	topicIn := func(l *link, channel string, st state) *topic {
		tp := &topic{channel: channel, ready: make(chan struct{}), subs: map[*Subscription]struct{}{}, state: st}
		tp.subs[&Subscription{}] = struct{}{}
		l.topics[channel] = tp
		l.noteLocked(tp)
		return tp
	}
	kind := func(l *link, after time.Duration) string {
		k, _, _ := l.next(now.Add(after))
		return k
	}

	l := fresh()
	topicIn(l, "a", confirmed)
	_, _, sleep := l.next(now)
	require.Equal(t, pingAfter, sleep)
	require.Empty(t, kind(l, pingAfter-1))
	require.Equal(t, "ping", kind(l, pingAfter))
	require.Empty(t, kind(l, pingAfter), "one ping is enough")
	topicIn(l, "b", wanted)
	require.Equal(t, "subscribe", kind(l, pingAfter), "the pong holds nothing up")
	require.Empty(t, kind(l, 2*pingAfter-1))
	require.Equal(t, "dead", kind(l, 2*pingAfter))

	l = fresh() // pongs come, the answer to SUBSCRIBE doesn't
	topicIn(l, "a", wanted)
	require.Equal(t, "subscribe", kind(l, 0))
	l.lastRead = now.Add(2*pingAfter - time.Second)
	require.Empty(t, kind(l, 2*pingAfter-1))
	require.Equal(t, "dead", kind(l, 2*pingAfter))

	l = fresh()
	require.Empty(t, kind(l, 0))
	for d := time.Duration(0); d < idleAfter; d += time.Second {
		l.lastRead = now.Add(d)
		require.Empty(t, kind(l, d))
	}
	l.lastRead = now.Add(idleAfter)
	require.Equal(t, "idle", kind(l, idleAfter))

	l = fresh()
	refused := topicIn(l, "a", wanted)
	refused.refusedUntil = now.Add(time.Second)
	k, _, sleep := l.next(now)
	require.Empty(t, k)
	require.Equal(t, time.Second, sleep)
	require.Equal(t, "subscribe", kind(l, time.Second))

	l = fresh()
	leaving := topicIn(l, "a", confirmed)
	clear(leaving.subs)
	leaving.idleSince = now
	l.noteLocked(leaving)
	k, _, sleep = l.next(now)
	require.Empty(t, k)
	require.Equal(t, linger, sleep)
	require.Equal(t, "unsubscribe", kind(l, linger))
}

// Commands that had failed work again: a link whose server says nothing is given up
// at once, not after seconds of silence; one that lives is kept.
func TestDoubtfulLinkHasToProveItself(t *testing.T) {
	p := faultproxy.New(t, server.Addr())
	b := newBench(t, server, p)
	s := b.ready(b.channel(1))
	before, _ := b.calls("subscribe")
	b.Doubt(false)
	b.handled()
	<-time.After(2 * proofWithin)
	after, _ := b.calls("subscribe")
	require.Equal(t, before, after, "a link that lives was given up")

	p.Blackhole(true)
	began := time.Now()
	b.Doubt(false)
	redistest.Eventually(t, pingAfter, func() bool { return b.log.count(lostText) > 0 }, "it is kept")
	require.GreaterOrEqual(t, time.Since(began), proofWithin, "too hasty")
	p.Blackhole(false)
	b.awaitFor(3*prompt, s.Wake(), "wake-up by the reconnect")
}

// A server that isn't the master any more may answer, and still not hear what is
// published: the link is made anew, and wakes everybody, at most once a second.
func TestLinkFollowsTheMaster(t *testing.T) {
	b := newBench(t, server, nil)
	s := b.ready(b.channel(1))
	before, _ := b.calls("subscribe")
	for range 2 {
		for range 10 {
			b.Doubt(true)
		}
		b.await(s.Wake(), "wake-up by the new connection")
	}
	b.caughtUp()
	after, _ := b.calls("subscribe")
	require.LessOrEqual(t, after, before+3) // the tenth doubt may come after the first new connection
	require.Zero(t, b.log.count(lostText))
	b.publish(b.channel(1))
	b.await(s.Wake(), "message on the new connection")
}

// A client under sentinels that only waits has no command that could fail: its link
// looks where commands go, and follows them.
func TestQuietLinkLooksWhereCommandsGo(t *testing.T) {
	b := newBench(t, server, nil)
	looks := make(chan string)
	b.plain.serving = func(ctx context.Context) (string, error) {
		select {
		case at := <-looks:
			return at, nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	s := b.ready(b.channel(1))
	before, _ := b.calls("subscribe")
	looks <- "a"
	looks <- "a"
	after, _ := b.calls("subscribe")
	require.Equal(t, before, after)
	looks <- "b"
	b.await(s.Wake(), "wake-up by the new connection")
	looks <- "b" // of the new one
	after, _ = b.calls("subscribe")
	require.Equal(t, before+1, after)
	require.Zero(t, b.log.count(lostText))
}

// Where the server doesn't tell, it is asked once a connection: every refusal goes
// down in its log.
func TestLinkThatMayNotLook(t *testing.T) {
	b := newBench(t, server, nil)
	b.plain.serving = b.serving
	require.False(t, b.failover())
	at, err := b.serving(t.Context())
	require.NoError(t, err)
	require.Equal(t, server.Addr(), at)

	denied := newBench(t, server, nil, user(t, server.Client(t), "allchannels", "-client|info"))
	_, err = denied.serving(t.Context())
	require.True(t, redis.HasErrorPrefix(err, "NOPERM"), "%v", err)
	asked := make(chan struct{}, 10)
	denied.plain.serving = func(ctx context.Context) (string, error) {
		asked <- struct{}{}
		return denied.serving(ctx)
	}
	denied.ready(denied.channel(1))
	<-time.After(3 * lookEvery)
	require.Len(t, asked, 1)
}
