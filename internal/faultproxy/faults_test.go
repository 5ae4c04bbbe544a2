package faultproxy

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestDropReplyIsCarriedOutAndTimesOut(t *testing.T) {
	p, via, direct, ctx := setup(t)
	f := p.Add(Rule{Match: Cmd("incr"), Times: 1, Do: DropReply})
	require.NoError(t, via.Set(ctx, "n", 0, 0).Err())
	require.Zero(t, f.Hits())

	requireTimeout(t, via.Incr(ctx, "n").Err())
	requireDone(t, f)
	require.Equal(t, 1, f.Hits())
	require.Equal(t, "1", direct.Get(ctx, "n").Val())

	require.EqualValues(t, 2, via.Incr(ctx, "n").Val(), "the rule is used up")
	require.Equal(t, 1, f.Hits())
}

func TestDropReplyNeverGivesTheNextReplyInstead(t *testing.T) {
	p, via, direct, ctx := setup(t)
	p.Add(Rule{Match: Cmd("get"), Times: 1, Do: DropReply})
	after := p.Add(Rule{Match: Cmd("incr")})

	pipe := via.Pipeline()
	pipe.Set(ctx, "k", "v", 0)
	get := pipe.Get(ctx, "k")
	incr := pipe.Incr(ctx, "n")
	_, err := pipe.Exec(ctx)
	requireTimeout(t, err)
	requireTimeout(t, get.Err())
	requireTimeout(t, incr.Err())
	require.Equal(t, "1", direct.Get(ctx, "n").Val(), "later requests are carried out")
	require.Equal(t, 1, after.Hits(), "and their replies still matched")

	c := dialRaw(t, p)
	p.Add(Rule{Match: Cmd("get"), Times: 1, Do: DropReply})
	c.send("ECHO a", "GET k", "ECHO b")
	c.want("$1~a~") // what came before the loss is delivered
	c.silence()
}

func TestDropRequestIsNeverSeenByTheServer(t *testing.T) {
	p, via, direct, ctx := setup(t)
	f := p.Add(Rule{Match: Cmd("incr"), Times: 1, Do: DropRequest})
	after := p.Add(Rule{Match: Cmd("incrby")})

	pipe := via.Pipeline()
	pipe.Set(ctx, "k", "v", 0)
	incr := pipe.Incr(ctx, "n")
	incrBy := pipe.IncrBy(ctx, "m", 5)
	_, err := pipe.Exec(ctx)
	requireTimeout(t, err)
	requireTimeout(t, incr.Err())
	requireTimeout(t, incrBy.Err())
	requireDone(t, f)
	requireDone(t, after)
	require.ErrorIs(t, direct.Get(ctx, "n").Err(), redis.Nil)
	require.Equal(t, "5", direct.Get(ctx, "m").Val())

	require.EqualValues(t, 1, via.Incr(ctx, "n").Val())
}

func TestCloseAfterForwardIsCarriedOut(t *testing.T) {
	p, via, direct, ctx := setup(t)
	f := p.Add(Rule{Match: Cmd("incr"), Times: 1, Do: CloseAfterForward})
	requireClosed(t, via.Incr(ctx, "n").Err())
	require.Equal(t, 1, f.Hits())
	require.Equal(t, "1", direct.Get(ctx, "n").Val())
	require.EqualValues(t, 2, via.Incr(ctx, "n").Val())

	p.Add(Rule{Match: Cmd("incr"), Times: 1, Do: CloseAfterForward})
	c := dialRaw(t, p)
	c.send("ECHO a", "INCR n", "ECHO b")
	c.want("$1~a~")
	c.closed()
	require.Equal(t, "3", direct.Get(ctx, "n").Val())
}

func TestCloseBeforeForwardIsNotCarriedOut(t *testing.T) {
	p, via, direct, ctx := setup(t)
	f := p.Add(Rule{Match: Cmd("incr"), Times: 1, Do: CloseBeforeForward})
	requireClosed(t, via.Incr(ctx, "n").Err())
	require.Equal(t, 1, f.Hits())
	require.ErrorIs(t, direct.Get(ctx, "n").Err(), redis.Nil)
	require.EqualValues(t, 1, via.Incr(ctx, "n").Val())

	p.Add(Rule{Match: Cmd("incr"), Times: 1, Do: CloseBeforeForward})
	c := dialRaw(t, p)
	c.send("ECHO a", "INCR n", "SET k v")
	c.want("$1~a~")
	c.closed()
	require.Equal(t, "1", direct.Get(ctx, "n").Val())
	require.ErrorIs(t, direct.Get(ctx, "k").Err(), redis.Nil, "nor is what follows")
}

// A close must not overtake replies that are still on their way.
func TestClosesKeepTheirPlaceBehindDelayedReplies(t *testing.T) {
	for name, do := range map[string]Action{"after": CloseAfterForward, "before": CloseBeforeForward} {
		t.Run(name, func(t *testing.T) {
			p, _, _, _ := setup(t)
			held := make(chan struct{})
			first := p.Add(Rule{Match: Cmd("echo"), Do: HoldReply(held)})
			last := p.Add(Rule{Match: Cmd("incr"), Do: do})
			c := dialRaw(t, p)
			c.send("ECHO a", "ECHO b", "INCR n")
			requireDone(t, first)
			requireDone(t, last)
			c.silence()
			close(held)
			c.want("$1~a~", "$1~b~")
			c.closed()
		})
	}
}

func TestDelayMakesAReplyLate(t *testing.T) {
	const delay = 80 * time.Millisecond
	p, via, _, ctx := setup(t)
	require.NoError(t, via.Ping(ctx).Err())
	f := p.Add(Rule{Match: Cmd("incr"), Times: 1, Do: Delay(delay)})
	begin := time.Now()
	require.EqualValues(t, 1, via.Incr(ctx, "n").Val())
	require.GreaterOrEqual(t, time.Since(begin), delay)
	require.Equal(t, 1, f.Hits())

	p.Add(Rule{Match: Cmd("incr"), Times: 1, Do: Delay(time.Hour)})
	requireTimeout(t, via.Incr(ctx, "n").Err())
	require.EqualValues(t, 3, via.Incr(ctx, "n").Val())
}

func TestHoldReplyUntilItIsLetGo(t *testing.T) {
	p, _, direct, ctx := setup(t)
	via := viaProxy(t, p, func(o *redis.Options) { o.ReadTimeout = patience })
	let := make(chan struct{})
	f := p.Add(Rule{Match: Cmd("incr"), Times: 1, Do: HoldReply(let)})

	answered := make(chan int64, 1)
	go func() { answered <- via.Incr(ctx, "n").Val() }()
	requireDone(t, f)
	require.Equal(t, "1", direct.Get(ctx, "n").Val(), "the server has carried it out")
	require.Empty(t, answered)
	close(let)
	require.EqualValues(t, 1, <-answered)

	// Other replies of the connection keep their place behind it.
	let = make(chan struct{})
	f = p.Add(Rule{Match: Cmd("incr"), Times: 1, Do: HoldReply(let)})
	c := dialRaw(t, p)
	c.send("ECHO a", "INCR n", "ECHO b")
	requireDone(t, f)
	c.want("$1~a~")
	c.silence()
	close(let)
	c.want(":2~", "$1~b~")
}

func TestHoldRequestArrivesAfterNewerCommands(t *testing.T) {
	p, via, direct, ctx := setup(t)
	let := make(chan struct{})
	f := p.Add(Rule{Match: Cmd("set"), Times: 1, Do: HoldRequest(let)})

	requireTimeout(t, via.Set(ctx, "k", "old", 0).Err())
	requireDone(t, f)
	awaitConns(t, p, 0) // the client gave the connection up
	require.NoError(t, via.Set(ctx, "k", "new", 0).Err())
	require.Equal(t, "new", direct.Get(ctx, "k").Val())

	f.Remove() // changes nothing for what is held
	close(let)
	redistest.Eventually(t, patience, func() bool { return direct.Get(ctx, "k").Val() == "old" }, "the late copy did not arrive")
}

func TestHoldRequestOutlivesCut(t *testing.T) {
	p, via, direct, ctx := setup(t)
	let := make(chan struct{})
	f := p.Add(Rule{Match: Cmd("incr"), Times: 1, Do: HoldRequest(let)})
	failed := make(chan error, 1)
	go func() { failed <- via.Incr(ctx, "n").Err() }()
	requireDone(t, f)
	p.Cut()
	require.Error(t, <-failed)
	require.EqualValues(t, 1, via.Incr(ctx, "n").Val())
	close(let)
	redistest.Eventually(t, patience, func() bool { return direct.Get(ctx, "n").Val() == "2" }, "the late copy did not arrive")
	awaitServerConns(ctx, t, direct, 2) // direct and via: the copy's connection is not left behind
}

func TestHoldRequestKeepsTheOrderOfItsConnection(t *testing.T) {
	p, _, direct, ctx := setup(t)
	let := make(chan struct{})
	f := p.Add(Rule{Match: Cmd("incr"), Times: 1, Do: HoldRequest(let)})
	c := dialRaw(t, p)
	c.send("ECHO a", "INCR n", "SET k v", "ECHO b")
	c.want("$1~a~")
	requireDone(t, f)
	c.silence()
	require.Zero(t, direct.Exists(ctx, "n", "k").Val())
	close(let)
	c.want(":1~", "+OK~", "$1~b~")
}

func TestHeldThingsEndWithTheProxy(t *testing.T) {
	p, via, _, ctx := setup(t)
	never := make(chan struct{})
	request := p.Add(Rule{Match: Cmd("incr"), Do: HoldRequest(never)})
	reply := p.Add(Rule{Match: Cmd("get"), Do: HoldReply(never)})
	p.Add(Rule{Match: Cmd("set"), Do: Delay(time.Hour)})
	p.SetLatency(time.Hour, time.Hour)
	requireTimeout(t, via.Incr(ctx, "n").Err())
	c := dialRaw(t, p)
	c.send("INCR n")
	d := dialRaw(t, p)
	d.send("GET n")
	e := dialRaw(t, p)
	e.send("SET n 1")
	requireDone(t, request)
	requireDone(t, reply)
	p.Close()
	p.Close()
	c.closed()
	d.closed()
	e.closed()
	require.Zero(t, p.Conns())
}

func TestScriptsAreMatchedByHash(t *testing.T) {
	p, via, direct, ctx := setup(t)
	script := redis.NewScript(`return redis.call('INCR', KEYS[1])`)
	require.NoError(t, script.Load(ctx, direct).Err())
	f := p.Add(Rule{
		Match: func(cmd []string) bool { return Cmd("evalsha")(cmd) && cmd[1] == script.Hash() && cmd[3] == "n" },
		Do:    DropReply,
	})
	require.NoError(t, script.Run(ctx, via, []string{"other"}).Err())
	requireTimeout(t, script.Run(ctx, via, []string{"n"}).Err())
	require.Equal(t, 1, f.Hits())
	f.Remove()
	require.EqualValues(t, 2, script.Run(ctx, via, []string{"n"}).Val())
}

// go-redis sends again by default what may have been carried out: the danger that
// the proxy is for.
func TestLostReplyIsCarriedOutTwiceByDefault(t *testing.T) {
	p, _, direct, ctx := setup(t)
	via := viaProxy(t, p, func(o *redis.Options) { o.MaxRetries = 3 })
	p.Add(Rule{Match: Cmd("incr"), Times: 1, Do: CloseAfterForward})
	require.EqualValues(t, 2, via.Incr(ctx, "n").Val())
	require.Equal(t, "2", direct.Get(ctx, "n").Val())
}

func TestConnectionSetUpCanFailToo(t *testing.T) {
	p, via, _, ctx := setup(t)
	f := p.Add(Rule{Times: 1, Do: DropReply})
	requireTimeout(t, via.Ping(ctx).Err())
	require.Equal(t, 1, f.Hits())
	require.NoError(t, via.Ping(ctx).Err())
}

func TestServerThatIsGoneClosesTheClient(t *testing.T) {
	own := redistest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p := New(t, own.Addr())
	via := viaProxy(t, p)
	require.NoError(t, via.Ping(ctx).Err())
	own.Kill()
	awaitConns(t, p, 0)
	err := via.Ping(ctx).Err()
	require.Error(t, err)
	require.False(t, errors.Is(err, context.DeadlineExceeded), "%v", err)
	own.Restart()
	require.NoError(t, via.Ping(ctx).Err())
}

func awaitConns(t *testing.T, p *Proxy, n int) {
	t.Helper()
	redistest.Eventually(t, patience, func() bool { return p.Conns() == n }, "want %d connections", n)
}

// awaitServerConns waits for the number of connections that the server has.
func awaitServerConns(ctx context.Context, t *testing.T, rdb *redis.Client, n int) {
	t.Helper()
	count := func() int {
		list, err := rdb.ClientList(ctx).Result()
		require.NoError(t, err)
		lines := 0
		for _, c := range list {
			if c == '\n' {
				lines++
			}
		}
		return lines
	}
	redistest.Eventually(t, patience, func() bool { return count() == n }, "the server has %d connections, want %d", count(), n)
}

func TestRefusalTakesTheReplysPlace(t *testing.T) {
	p, via, direct, ctx := setup(t)
	f := p.Add(Rule{Match: Cmd("incr"), Times: 2, Do: Refusal("OOPS not now")})
	require.EqualError(t, via.Incr(ctx, "n").Err(), "OOPS not now")

	pipe := via.Pipeline()
	set := pipe.Set(ctx, "k", "v", 0)
	incr := pipe.Incr(ctx, "n")
	get := pipe.Get(ctx, "k")
	_, err := pipe.Exec(ctx)
	require.EqualError(t, err, "OOPS not now")
	require.NoError(t, set.Err())
	require.EqualError(t, incr.Err(), "OOPS not now", "in its place among the others")
	require.Equal(t, "v", get.Val())
	require.Equal(t, 2, f.Hits())
	require.EqualValues(t, 1, via.Incr(ctx, "n").Val())
	require.Equal(t, "1", direct.Get(ctx, "n").Val(), "the server never saw them")
}
