package faultproxy

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestPubSubThroughTheProxy(t *testing.T) {
	for name, protocol := range map[string]int{"RESP2": 2, "RESP3": 3} {
		t.Run(name, func(t *testing.T) {
			p, _, direct, ctx := setup(t)
			via := viaProxy(t, p, func(o *redis.Options) { o.Protocol = protocol })
			all := p.Add(Rule{})

			ps := via.Subscribe(ctx, "a", "b")
			defer ps.Close()
			want := func(what any) {
				t.Helper()
				got, err := ps.ReceiveTimeout(ctx, patience)
				require.NoError(t, err)
				require.Equal(t, what, got)
			}
			want(&redis.Subscription{Kind: "subscribe", Channel: "a", Count: 1})
			want(&redis.Subscription{Kind: "subscribe", Channel: "b", Count: 2})
			require.NoError(t, ps.PSubscribe(ctx, "p*"))
			want(&redis.Subscription{Kind: "psubscribe", Channel: "p*", Count: 3})
			require.NoError(t, direct.Publish(ctx, "b", "one").Err())
			want(&redis.Message{Channel: "b", Payload: "one"})
			require.NoError(t, ps.Ping(ctx, "hi"))
			want(&redis.Pong{Payload: "hi"})
			require.NoError(t, direct.Publish(ctx, "pq", "two").Err())
			want(&redis.Message{Channel: "pq", Pattern: "p*", Payload: "two"})
			require.NoError(t, ps.Unsubscribe(ctx, "a"))
			want(&redis.Subscription{Kind: "unsubscribe", Channel: "a", Count: 2})
			require.NoError(t, ps.Ping(ctx, "ho"))
			want(&redis.Pong{Payload: "ho"})

			// HELLO and the like, SUBSCRIBE, PSUBSCRIBE, PING, UNSUBSCRIBE, PING.
			require.GreaterOrEqual(t, all.Hits(), 6)
		})
	}
}

func TestDropReplySwallowsAllConfirmationsAndNothingElse(t *testing.T) {
	for name, resp3 := range map[string]bool{"RESP2": false, "RESP3": true} {
		t.Run(name, func(t *testing.T) {
			p, _, direct, ctx := setup(t)
			f := p.Add(Rule{Match: Cmd("subscribe"), Times: 1, Do: DropReply})
			c := dialRaw(t, p)
			push := "*"
			if resp3 {
				c.hello()
				push = ">"
			}
			c.send("SUBSCRIBE a b", "SUBSCRIBE c")
			c.want(push + "3~$9~subscribe~$1~c~:3~")
			require.Equal(t, 1, f.Hits(), "a request with two confirmations is one")
			require.NoError(t, direct.Publish(ctx, "a", "x").Err())
			c.want(push + "3~$7~message~$1~a~$1~x~")
			c.send("PING")
			if resp3 {
				c.want("+PONG~")
			} else {
				c.want("*2~$4~pong~$0~~")
			}
		})
	}
}

func TestDropRequestOfASubscribe(t *testing.T) {
	p, _, direct, ctx := setup(t)
	p.Add(Rule{Match: Cmd("subscribe"), Times: 1, Do: DropRequest})
	c := dialRaw(t, p)
	c.hello()
	c.send("SUBSCRIBE a", "SUBSCRIBE b", "PING")
	c.want(">3~$9~subscribe~$1~b~:1~", "+PONG~")
	require.Equal(t, []string{"b"}, direct.PubSubChannels(ctx, "*").Val())
}

func TestOrdinaryCommandsBesideSubscriptions(t *testing.T) {
	p, _, direct, ctx := setup(t)
	require.NoError(t, direct.RPush(ctx, "list", "message", "a", "x").Err())
	c := dialRaw(t, p)
	c.hello()
	c.send("SUBSCRIBE a")
	c.want(">3~$9~subscribe~$1~a~:1~")
	f := p.Add(Rule{Match: Cmd("lrange")})
	incr := p.Add(Rule{Match: Cmd("incr"), Times: 1, Do: DropReply})
	c.send("LRANGE list 0 -1", "INCR n", "UNSUBSCRIBE", "ECHO b")
	c.want("*3~$7~message~$1~a~$1~x~", ">3~$11~unsubscribe~$1~a~:0~", "$1~b~")
	require.Equal(t, 1, f.Hits())
	require.Equal(t, 1, incr.Hits())
}

func TestRefusedSubscribeIsMatched(t *testing.T) {
	for name, resp3 := range map[string]bool{"RESP2": false, "RESP3": true} {
		t.Run(name, func(t *testing.T) {
			p, _, _, _ := setup(t)
			f := p.Add(Rule{Match: Cmd("subscribe"), Times: 1, Do: DropReply})
			c := dialRaw(t, p)
			if resp3 {
				c.hello()
			}
			c.send("SUBSCRIBE", "ECHO a") // no channel: an ordinary error
			c.want("$1~a~")
			require.Equal(t, 1, f.Hits())
			c.send("SUBSCRIBE", "ECHO b")
			c.want("-ERR wrong number of arguments for 'subscribe' command~", "$1~b~")
		})
	}
}

func TestShardSubscriptions(t *testing.T) {
	ctx := t.Context()
	cluster := redistest.StartCluster(t, 2)
	p := New(t, cluster.Addrs()[0])
	c := dialRaw(t, p)
	c.hello()
	known, err := srv.Client(t).Command(ctx).Result()
	require.NoError(t, err)
	if known["ssubscribe"] == nil {
		t.Log("this server has no sharded pub/sub: only its refusal is tested")
		c.send("SSUBSCRIBE b", "ECHO a")
		v, err := readValue(c.in)
		require.NoError(t, err)
		require.Equal(t, byte('-'), v.kind())
		c.want("$1~a~")
		return
	}
	c.send("SSUBSCRIBE a", "ECHO b") // slot 15495 is the other node's
	c.want("-MOVED 15495 "+cluster.Addrs()[1]+"~", "$1~b~")
	c.send("SSUBSCRIBE b", "ECHO c", "SUNSUBSCRIBE", "SUNSUBSCRIBE", "ECHO d") // slot 3300 is this one's
	c.want(">3~$10~ssubscribe~$1~b~:1~", "$1~c~",
		">3~$12~sunsubscribe~$1~b~:0~", ">3~$12~sunsubscribe~_~:0~", "$1~d~")
}

func TestFaultsOnMessagesOfALink(t *testing.T) {
	p, _, direct, ctx := setup(t)
	const low = 50 * time.Millisecond
	c := dialRaw(t, p)
	c.hello()
	c.send("SUBSCRIBE a")
	c.want(">3~$9~subscribe~$1~a~:1~")

	p.SetLatency(low, low)
	begin := time.Now()
	require.NoError(t, direct.Publish(ctx, "a", "x").Err())
	c.want(">3~$7~message~$1~a~$1~x~")
	require.GreaterOrEqual(t, time.Since(begin), low)
	p.SetLatency(0, 0)

	p.Blackhole(true)
	require.NoError(t, direct.Publish(ctx, "a", "y").Err())
	c.silence()
	p.Blackhole(false)
	c.want(">3~$7~message~$1~a~$1~y~")
}
