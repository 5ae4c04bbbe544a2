package pubsub

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestConfirmedSubscriptionDelivers(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			b := newBench(t, server, nil, func(o *redis.Options) { o.Protocol = protocol })
			first, second := b.ready(b.channel(1)), b.ready(b.channel(1))
			other := b.ready(b.channel(2))
			b.caughtUp()
			for _, s := range []*Subscription{first, second, other} {
				require.False(t, has(s.Wake()), "woken by nothing")
			}
			b.publish(b.channel(1))
			b.await(first.Wake(), "message")
			b.await(second.Wake(), "message to the second waiter")
			b.caughtUp()
			require.False(t, has(other.Wake()), "woken by somebody else's message")

			first.Close()
			first.Close()
			b.publish(b.channel(1))
			b.await(second.Wake(), "message to the one who stayed")
			require.False(t, has(first.Wake()))
			second.Close()
			other.Close()
			b.nothingLeft()
		})
	}
}

// What is published after Ready arrives, so the server must have confirmed.
func TestReadyComesAfterTheServer(t *testing.T) {
	for what, hold := range map[string]func(<-chan struct{}) faultproxy.Action{
		"confirmation on its way": faultproxy.HoldReply,
		"request on its way":      faultproxy.HoldRequest,
	} {
		t.Run(what, func(t *testing.T) {
			p := faultproxy.New(t, server.Addr())
			b := newBench(t, server, p)
			gate := make(chan struct{})
			fault := p.Add(faultproxy.Rule{Match: faultproxy.Cmd("subscribe"), Do: hold(gate)})
			s := b.Subscribe(b.channel(1))
			b.await(fault.Done(), "SUBSCRIBE")
			again := b.Subscribe(b.channel(1))
			later := b.Subscribe(b.channel(2))
			b.handled()
			for _, s := range []*Subscription{s, again, later} {
				require.False(t, has(s.Ready()), "ready before the server said so")
			}
			close(gate)
			for _, s := range []*Subscription{s, again, later} {
				b.await(s.Ready(), "confirmation")
			}
			b.publish(b.channel(1))
			b.await(s.Wake(), "message")
			b.await(again.Wake(), "message")
			b.publish(b.channel(2))
			b.await(later.Wake(), "message")
		})
	}
}

func TestMessagesMergeInAFullSlot(t *testing.T) {
	b := newBench(t, server, nil)
	busy, other := b.ready(b.channel(1)), b.ready(b.channel(2))
	pipe := b.admin.Pipeline()
	for range 5000 {
		pipe.Publish(t.Context(), b.channel(1), "0")
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	b.publish(b.channel(2))
	b.await(other.Wake(), "message behind a waiter that doesn't listen")
	require.True(t, has(busy.Wake()), "a signal was lost")
	require.False(t, has(busy.Wake()), "signals pile up")
	b.publish(b.channel(1))
	b.await(busy.Wake(), "message after the burst")
}

func TestThousandChannelsAtOnce(t *testing.T) {
	const n = 1000
	b := newBench(t, redistest.Start(t), nil)
	subs := make([]*Subscription, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { subs[i] = b.Subscribe(b.channel(i)) })
	}
	wg.Wait()
	for _, s := range subs {
		b.await(s.Ready(), "confirmation")
	}
	require.Equal(t, 1, b.pubsubConns())
	calls, _ := b.calls("subscribe")
	// Each takes along what has come meanwhile: how much depends on the machine.
	require.LessOrEqual(t, calls, n/2)
	for i := range n {
		b.publish(b.channel(i))
	}
	for _, s := range subs {
		b.await(s.Wake(), "message")
		s.Close()
	}
	b.nothingLeft()
	calls, _ = b.calls("unsubscribe")
	require.LessOrEqual(t, calls, n/2)
	require.Zero(t, b.log.count(lostText), b.log)
}

// Whoever comes while a command is under way waits for the next one, which
// takes them all.
func TestOneSubscribeAtATime(t *testing.T) {
	p := faultproxy.New(t, server.Addr())
	b := newBench(t, server, p)
	gate := make(chan struct{})
	held := p.Add(faultproxy.Rule{Match: faultproxy.Cmd("subscribe"), Times: 1, Do: faultproxy.HoldReply(gate)})
	more := p.Add(faultproxy.Rule{Match: faultproxy.Cmd("subscribe", "unsubscribe")})
	subs := []*Subscription{b.Subscribe(b.channel(0))}
	b.await(held.Done(), "SUBSCRIBE")
	for i := range 20 {
		subs = append(subs, b.Subscribe(b.channel(i+1)))
		b.handled()
	}
	close(gate)
	for _, s := range subs {
		b.await(s.Ready(), "confirmation")
	}
	require.Equal(t, 1, more.Hits())
}

func TestUnsubscribedWhenTheLastHasLeft(t *testing.T) {
	b := newBench(t, server, nil)
	stays, leaves, other := b.ready(b.channel(1)), b.ready(b.channel(1)), b.ready(b.channel(2))
	leaves.Close()
	other.Close()
	redistest.Eventually(t, gone, func() bool { return !b.subscribed(b.channel(2)) }, "still subscribed")
	b.publish(b.channel(1))
	b.await(stays.Wake(), "message to the one who stayed")
	stays.Close()
	b.nothingLeft()
}

// Who leaves before the confirmation has come leaves nothing behind either.
func TestLeftBeforeTheConfirmation(t *testing.T) {
	p := faultproxy.New(t, server.Addr())
	b := newBench(t, server, p)
	gate := make(chan struct{})
	fault := p.Add(faultproxy.Rule{Match: faultproxy.Cmd("subscribe"), Do: faultproxy.HoldReply(gate)})
	s, unsent := b.Subscribe(b.channel(1)), (*Subscription)(nil)
	b.await(fault.Done(), "SUBSCRIBE")
	unsent = b.Subscribe(b.channel(2))
	s.Close()
	unsent.Close()
	b.handled()
	close(gate)
	b.nothingLeft()
	require.Equal(t, 1, fault.Hits(), "asked for a channel that nobody wants")
}

// Hand-offs from waiter to waiter don't churn.
func TestChannelOutlivesItsWaiterForAMoment(t *testing.T) {
	p := faultproxy.New(t, server.Addr())
	b := newBench(t, server, p)
	asked := p.Add(faultproxy.Rule{Match: faultproxy.Cmd("subscribe")})
	s := b.ready(b.channel(1))
	for range 50 {
		s.Close()
		s = b.Subscribe(b.channel(1))
		require.True(t, has(s.Ready()), "a channel that is subscribed is ready at once")
		b.publish(b.channel(1))
		b.await(s.Wake(), "message")
	}
	require.Equal(t, 1, asked.Hits())

	// The moment of its former waiters is over when that of a later one is.
	b.ready(b.channel(2)).Close()
	redistest.Eventually(t, gone, func() bool { return !b.subscribed(b.channel(2)) }, "still subscribed")
	b.publish(b.channel(1))
	b.await(s.Wake(), "message")
	s.Close()
	b.nothingLeft()
}

func TestSubscribedAgainWhileTheUnsubscribeIsUnderWay(t *testing.T) {
	for what, hold := range map[string]func(<-chan struct{}) faultproxy.Action{
		"answer on its way":  faultproxy.HoldReply,
		"request on its way": faultproxy.HoldRequest,
	} {
		t.Run(what, func(t *testing.T) {
			p := faultproxy.New(t, server.Addr())
			b := newBench(t, server, p)
			for range 2 {
				gate := make(chan struct{})
				fault := p.Add(faultproxy.Rule{Match: faultproxy.Cmd("unsubscribe"), Times: 1, Do: hold(gate)})
				b.ready(b.channel(1)).Close()
				b.ready(b.channel(2)).Close()
				b.await(fault.Done(), "UNSUBSCRIBE")
				s, hasty := b.Subscribe(b.channel(1)), b.Subscribe(b.channel(2))
				hasty.Close()
				b.handled()
				require.False(t, has(s.Ready()), "ready on a channel that is being left")
				close(gate)
				b.await(s.Ready(), "confirmation")
				b.publish(b.channel(1))
				b.await(s.Wake(), "message")
				s.Close()
				b.nothingLeft()
			}
		})
	}
}

// A subscription whose answer never comes is asked for again, and spoils
// neither its name nor those of others.
func TestSubscriptionThatTimesOutPoisonsNothing(t *testing.T) {
	for what, do := range map[string]faultproxy.Action{
		"reply lost":   faultproxy.DropReply,
		"request lost": faultproxy.DropRequest,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			p := faultproxy.New(t, server.Addr())
			b := newBench(t, server, p)
			old := b.ready(b.channel(0))
			fault := p.Add(faultproxy.Rule{Match: faultproxy.Cmd("subscribe"), Times: 1, Do: do})
			s := b.Subscribe(b.channel(1))
			b.await(fault.Done(), "SUBSCRIBE")
			s.Close() // gives up
			again, other := b.Subscribe(b.channel(1)), b.Subscribe(b.channel(2))
			b.awaitFor(3*pingAfter+2*prompt, again.Ready(), "confirmation")
			b.await(other.Ready(), "confirmation of another name")
			b.await(old.Wake(), "wake-up by the reconnect")
			b.publish(b.channel(1))
			b.await(again.Wake(), "message")
			for _, s := range []*Subscription{old, again, other} {
				s.Close()
			}
			b.nothingLeft()
		})
	}
}

// user makes a Redis user who may do anything, on the channels given.
func user(t *testing.T, admin *redis.Client, rules ...any) func(*redis.Options) {
	t.Helper()
	args := append([]any{"acl", "setuser", t.Name(), "reset", "on", ">secret", "allkeys", "+@all", "resetchannels"}, rules...)
	require.NoError(t, admin.Do(t.Context(), args...).Err())
	return func(o *redis.Options) { o.Username, o.Password = t.Name(), "secret" }
}

func TestRefusedChannelsAreAskedForAgain(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	b := newBench(t, srv, nil, user(t, admin))
	s := b.Subscribe(b.channel(1))
	redistest.Eventually(t, prompt, func() bool { return b.log.count(refusedText) > 0 }, "no word of the refusal")
	require.Contains(t, b.log.String(), "NOPERM")
	require.Contains(t, b.log.String(), b.channel(1))
	require.False(t, has(s.Ready()))

	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", t.Name(), "allchannels").Err())
	b.awaitFor(askAgain+prompt, s.Ready(), "confirmation, with the rights there")
	_, rejected := b.calls("subscribe")
	require.Equal(t, 1, rejected, "a refused channel is asked for all the time")
	b.publish(b.channel(1))
	b.await(s.Wake(), "message")
	require.Zero(t, b.log.count(lostText), b.log)
}

// Redis refuses a SUBSCRIBE as a whole: those who may must not suffer.
func TestRefusedChannelsSpoilNoOthers(t *testing.T) {
	srv := redistest.Start(t)
	p := faultproxy.New(t, srv.Addr())
	b := newBench(t, srv, p, user(t, srv.Client(t), "&good:*"))
	gate := make(chan struct{})
	held := p.Add(faultproxy.Rule{Match: faultproxy.Cmd("subscribe"), Times: 1, Do: faultproxy.HoldReply(gate)})
	first := b.Subscribe("good:first")
	b.await(held.Done(), "SUBSCRIBE")
	var good, bad []*Subscription
	for i := range 10 { // all of them in the next command
		good = append(good, b.Subscribe(fmt.Sprintf("good:%d", i)))
		bad = append(bad, b.Subscribe(fmt.Sprintf("bad:%d", i)))
	}
	b.handled()
	close(gate)
	for _, s := range append(good, first) {
		b.await(s.Ready(), "confirmation of a channel that is allowed")
	}
	redistest.Eventually(t, prompt, func() bool { return b.log.count(refusedText) >= len(bad) }, "no word of a refusal")
	for _, s := range bad {
		require.False(t, has(s.Ready()))
	}
	for i, s := range good {
		b.publish(fmt.Sprintf("good:%d", i))
		b.await(s.Wake(), "message")
	}
	_, rejected := b.calls("subscribe")
	require.Equal(t, 1+len(bad), rejected)

	for _, s := range append(append(good, first), bad...) {
		s.Close()
	}
	redistest.Eventually(t, gone, func() bool { return b.Channels() == 0 }, "channels are left")
}

// Many come and go on few channels while the connection is killed again and
// again: whoever is ready hears, and nothing is left at the end.
func TestHammer(t *testing.T) {
	const workers, rounds, names = 32, 150, 5
	srv := redistest.Start(t)
	b := newBench(t, srv, nil)
	killer := srv.Client(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg, killing sync.WaitGroup
	killing.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				killer.ClientKillByFilter(context.Background(), "type", "pubsub")
			case <-ctx.Done():
				return
			}
		}
	})
	for range workers {
		wg.Go(func() {
			rdb := srv.Client(t)
			for range rounds {
				c := b.channel(rand.IntN(names))
				s := b.Subscribe(c)
				switch rand.IntN(4) {
				case 0: // leaves at once
				case 1: // leaves when it is ready
					select {
					case <-s.Ready():
					case <-time.After(2 * prompt):
						t.Errorf("never ready; log:\n%s", b.log)
					}
				default: // stays for a message, or for the reconnect that ate it
					select {
					case <-s.Ready():
					case <-time.After(2 * prompt):
						t.Errorf("never ready; log:\n%s", b.log)
					}
					if err := rdb.Publish(context.Background(), c, "0").Err(); err != nil {
						t.Error(err)
					}
					select {
					case <-s.Wake():
					case <-time.After(2 * prompt):
						t.Error("a wake-up was lost")
					}
				}
				s.Close()
			}
		})
	}
	wg.Wait()
	cancel()
	killing.Wait()
	b.nothingLeft()
	require.LessOrEqual(t, b.pubsubConns(), 1)

	s := b.ready(b.channel(0))
	b.publish(b.channel(0))
	b.await(s.Wake(), "message after it all")
}
