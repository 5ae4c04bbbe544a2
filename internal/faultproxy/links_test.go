package faultproxy

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestBlackholeForwardsNothingAndThenWhatWasQueued(t *testing.T) {
	p, via, direct, ctx := setup(t)
	c := dialRaw(t, p)
	c.send("ECHO a")
	c.want("$1~a~")
	require.NoError(t, via.Ping(ctx).Err())

	p.Blackhole(true)
	p.Blackhole(true)
	conns := p.Conns()
	c.send("SET k v", "ECHO b")
	c.silence()
	requireTimeout(t, via.Incr(ctx, "n").Err()) // on the connection that exists
	awaitConns(t, p, conns-1)                   // which the client has given up
	requireTimeout(t, via.Incr(ctx, "m").Err()) // on a new one
	require.Zero(t, direct.Exists(ctx, "k", "n", "m").Val())

	p.Blackhole(false)
	p.Blackhole(false)
	c.want("+OK~", "$1~b~")
	redistest.Eventually(t, patience, func() bool { return direct.Get(ctx, "n").Val() == "1" }, "what was queued did not arrive")
	require.NoError(t, via.Ping(ctx).Err())
	require.Zero(t, direct.Exists(ctx, "m").Val())
	awaitServerConns(ctx, t, direct, 3) // direct, via and c
}

func TestBlackholeStopsReplies(t *testing.T) {
	p, _, direct, ctx := setup(t)
	c := dialRaw(t, p)
	c.send("BLPOP list 0")
	redistest.Eventually(t, patience, func() bool { return blocked(t, direct) == 1 }, "BLPOP did not arrive")
	p.Blackhole(true)
	require.NoError(t, direct.RPush(ctx, "list", "x").Err())
	c.silence()
	p.Blackhole(false)
	c.want("*2~$4~list~$1~x~")
}

func TestBlackholeServesANewConnectionAfterwards(t *testing.T) {
	p, _, direct, ctx := setup(t)
	require.NoError(t, direct.Ping(ctx).Err())
	p.Blackhole(true)
	gone, stays := dialRaw(t, p), dialRaw(t, p)
	gone.send("SET gone 1")
	stays.send("SET stays 1")
	awaitConns(t, p, 2)
	require.NoError(t, gone.c.Close())
	awaitConns(t, p, 1)
	awaitServerConns(ctx, t, direct, 1) // the server has not heard of them
	p.Blackhole(false)
	stays.want("+OK~")
	require.Zero(t, direct.Exists(ctx, "gone").Val())
}

func TestBlackholeHidesTheServersEnd(t *testing.T) {
	own := redistest.Start(t)
	p := New(t, own.Addr())
	c := dialRaw(t, p)
	c.send("ECHO a")
	c.want("$1~a~")
	p.Blackhole(true)
	own.Kill()
	c.silence()
	p.Blackhole(false)
	c.closed()
}

func TestRefuseClosesNewConnectionsOnly(t *testing.T) {
	p, _, _, ctx := setup(t)
	c := dialRaw(t, p)
	c.send("ECHO a")
	c.want("$1~a~")

	p.Refuse(true)
	via := viaProxy(t, p)
	requireClosed(t, via.Ping(ctx).Err())
	c.send("ECHO b")
	c.want("$1~b~")
	require.Equal(t, 1, p.Conns())

	p.Refuse(false)
	require.NoError(t, via.Ping(ctx).Err())
}

func TestCutClosesWhatIsOpen(t *testing.T) {
	p, via, direct, ctx := setup(t)
	require.NoError(t, via.Ping(ctx).Err())
	c := dialRaw(t, p)
	c.send("BLPOP list 0")
	redistest.Eventually(t, patience, func() bool { return blocked(t, direct) == 1 }, "BLPOP did not arrive")
	require.Equal(t, 2, p.Conns())

	p.Cut()
	require.Zero(t, p.Conns())
	c.closed()
	awaitServerConns(ctx, t, direct, 1)
	require.NoError(t, via.Ping(ctx).Err()) // go-redis notices and dials again
	require.Equal(t, 1, p.Conns())

	// Also in a black hole.
	p.Blackhole(true)
	p.Cut()
	require.Zero(t, p.Conns())
	awaitServerConns(ctx, t, direct, 1)
}

func TestLatencyOverlapsAndKeepsOrder(t *testing.T) {
	const n, low, high = 100, 50 * time.Millisecond, 100 * time.Millisecond
	p, _, _, ctx := setup(t)
	via := viaProxy(t, p, func(o *redis.Options) { o.ReadTimeout = patience })
	require.NoError(t, via.Ping(ctx).Err())
	p.SetLatency(low, high)

	begin := time.Now()
	cmds, err := via.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i := range n {
			pipe.Echo(ctx, fmt.Sprint(i))
		}
		return nil
	})
	took := time.Since(begin)
	require.NoError(t, err)
	for i, cmd := range cmds {
		require.Equal(t, fmt.Sprint(i), cmd.(*redis.StringCmd).Val())
	}
	require.GreaterOrEqual(t, took, low)
	require.Less(t, took, n*low/2, "the delays of one pipeline add up")

	p.SetLatency(0, 0)
	for range 20 {
		begin = time.Now()
		require.NoError(t, via.Ping(ctx).Err())
		if time.Since(begin) < low {
			return
		}
	}
	t.Fatal("the latency did not end")
}

func TestLatencyIsWithinItsBounds(t *testing.T) {
	p := &Proxy{}
	require.True(t, p.arrival().IsZero())
	const low, high = time.Hour, 2 * time.Hour
	p.SetLatency(low, high)
	var least, most time.Duration = high, low
	for range 1000 {
		d := time.Until(p.arrival()).Round(time.Second)
		least, most = min(least, d), max(most, d)
	}
	require.GreaterOrEqual(t, least, low)
	require.LessOrEqual(t, most, high)
	require.Greater(t, most-least, 50*time.Minute)
	p.SetLatency(low, low)
	require.Equal(t, low, time.Until(p.arrival()).Round(time.Second))
}

func TestRequestOfAClientThatLeftIsDelivered(t *testing.T) {
	p, _, direct, ctx := setup(t)
	c := dialRaw(t, p)
	c.send("INCR n")
	require.NoError(t, c.c.Close())
	redistest.Eventually(t, patience, func() bool { return direct.Get(ctx, "n").Val() == "1" }, "not delivered")
	awaitServerConns(ctx, t, direct, 1)
	awaitConns(t, p, 0)

	// A client that only stops sending still gets its replies.
	c = dialRaw(t, p)
	c.send("INCR n", "ECHO a")
	require.NoError(t, c.c.(*net.TCPConn).CloseWrite())
	c.want(":2~", "$1~a~")
	c.closed()
}

func TestUnreadableBytesAreReported(t *testing.T) {
	reports := make(chan string, 1)
	p, err := newProxy(srv.Addr(), func(format string, args ...any) { reports <- fmt.Sprintf(format, args...) })
	require.NoError(t, err)
	defer p.Close()
	c := dialRaw(t, p)
	_, err = io.WriteString(c.c, "PING\r\n")
	require.NoError(t, err)
	c.closed()
	require.Contains(t, <-reports, "protocol error")
}

func TestNewForAndItsClose(t *testing.T) {
	p, err := NewFor(srv.Addr())
	require.NoError(t, err)
	c := dialRaw(t, p)
	c.send("ECHO a")
	c.want("$1~a~")
	p.Close()
	c.closed()
	_, err = net.Dial("tcp4", p.Addr())
	require.Error(t, err)
}

func blocked(t *testing.T, rdb *redis.Client) int {
	t.Helper()
	info, err := rdb.InfoMap(t.Context(), "clients").Result()
	require.NoError(t, err)
	var n int
	_, err = fmt.Sscan(info["Clients"]["blocked_clients"], &n)
	require.NoError(t, err)
	return n
}
