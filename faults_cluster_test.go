package holdfast_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/keys"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rlock"
)

// ranOn is how often the nodes of a cluster carried out a command.
func ranOn(t testing.TB, c *redistest.Cluster, command string) (n int) {
	t.Helper()
	for _, s := range c.Nodes() {
		info, err := s.Client(t).Info(t.Context(), "commandstats").Result()
		require.NoError(t, err)
		for line := range strings.Lines(info) {
			if after, ok := strings.CutPrefix(line, "cmdstat_"+command+":calls="); ok {
				calls, _, _ := strings.Cut(after, ",")
				i, err := strconv.Atoi(calls)
				require.NoError(t, err)
				n += i
			}
		}
	}
	return n
}

// Releases are told in the way that was chosen, and no other; waiters are woken
// by them, not by polling.
func TestShardedPubSubOnACluster(t *testing.T) {
	t.Parallel() // a cluster of its own
	for what, c := range map[string]struct {
		mode           holdfast.ShardedPubSub
		publish, other string
	}{
		"auto": {holdfast.Auto, "spublish", "publish"},
		"on":   {holdfast.On, "spublish", "publish"},
		"off":  {holdfast.Off, "publish", "spublish"},
	} {
		t.Run(what, func(t *testing.T) {
			cluster := redistest.StartCluster(t, 3)
			opts := []holdfast.Option{holdfast.WithShardedPubSub(c.mode), holdfast.WithPollFallback(deaf), holdfast.WithLease(never)}
			p1, p2 := newClient(t, cluster.Client(t), opts...), newParty(t, cluster.Client(t), opts...)
			for _, name := range []string{"a", "b", "c", "x{y}z", "{order}:7"} {
				a, err := p1.Lock(name).Lock(t.Context())
				require.NoError(t, err)
				before := p2.answered.count()
				b := begin(func() (*rlock.Hold, error) { return p2.Lock(name).Lock(t.Context()) })
				redistest.Eventually(t, prompt, func() bool { return p2.answered.count() >= before+2 }, "no try after the confirmation")
				require.NoError(t, a.Unlock(t.Context()))
				v := granted(t, b, prompt)
				require.NoError(t, v.hold.Unlock(t.Context()))
			}
			require.NotZero(t, ranOn(t, cluster, c.publish))
			require.Zero(t, ranOn(t, cluster, c.other))
		})
	}
}

// A single server has no shards, but may be told to use their commands.
func TestShardedPubSubOnASingleServer(t *testing.T) {
	for mode, command := range map[holdfast.ShardedPubSub]string{holdfast.Auto: "publish", holdfast.On: "spublish"} {
		srv := redistest.Start(t)
		p1 := newClient(t, srv.Client(t), holdfast.WithShardedPubSub(mode), holdfast.WithLease(never))
		p2 := newParty(t, srv.Client(t), holdfast.WithShardedPubSub(mode), holdfast.WithPollFallback(deaf))
		a, err := p1.Lock("n").Lock(t.Context())
		require.NoError(t, err)
		b := begin(func() (*rlock.Hold, error) { return p2.Lock("n").Lock(t.Context()) })
		redistest.Eventually(t, prompt, func() bool { return p2.answered.count() >= 2 }, "no try after the confirmation")
		require.NoError(t, a.Unlock(t.Context()))
		v := granted(t, b, prompt)
		require.NoError(t, v.hold.Unlock(t.Context()))
		calls, _ := served(t, srv.Client(t), command)
		require.Equal(t, 2, calls)
	}
	_, err := holdfast.New(server.Client(t), holdfast.WithShardedPubSub(7))
	require.ErrorIs(t, err, holdfast.ErrInvalid)
}

// The slot of a name moves while somebody waits for it and somebody holds it.
func TestA45SlotMovesWhileSomeoneWaits(t *testing.T) {
	for what, mode := range map[string]holdfast.ShardedPubSub{"sharded": holdfast.On, "plain": holdfast.Off} {
		t.Run(what, func(t *testing.T) {
			cluster := redistest.StartCluster(t, 3)
			opts := []holdfast.Option{holdfast.WithShardedPubSub(mode), holdfast.WithLease(6 * time.Second)}
			p1 := newClient(t, cluster.Client(t), opts...)
			p2 := newParty(t, cluster.Client(t), append(opts, holdfast.WithPollFallback(deaf))...)
			const name = "n"
			slot := keys.Slot(name)
			for i := range 3 {
				a, err := p1.Lock(name).Lock(t.Context())
				require.NoError(t, err)
				before := p2.answered.count()
				b := begin(func() (*rlock.Hold, error) { return p2.Lock(name).Lock(t.Context()) })
				redistest.Eventually(t, prompt, func() bool { return p2.answered.count() >= before+2 }, "no try after the confirmation")
				to := cluster.Nodes()[(i+1)%3]
				if cluster.Owner(t, slot) == to {
					to = cluster.Nodes()[(i+2)%3]
				}
				cluster.MoveSlot(t, slot, to, nil)
				waits(t, b)
				if mode == holdfast.On { // the waiter follows the slot
					rdb := to.Client(t)
					redistest.Eventually(t, prompt, func() bool {
						channels, err := rdb.PubSubShardChannels(t.Context(), "*").Result()
						require.NoError(t, err)
						return len(channels) == 1
					}, "the waiter doesn't listen at the new owner")
				}
				require.NoError(t, a.Context().Err(), "the hold was lost in the move")
				require.NoError(t, a.Unlock(t.Context()))
				v := granted(t, b, prompt)
				require.NoError(t, v.hold.Unlock(t.Context()))
			}
			for _, s := range cluster.Nodes() {
				rdb := s.Client(t)
				redistest.Eventually(t, gone, func() bool {
					sharded, err := rdb.PubSubShardChannels(t.Context(), "*").Result()
					require.NoError(t, err)
					plain, err := rdb.PubSubChannels(t.Context(), "*").Result()
					require.NoError(t, err)
					return len(sharded)+len(plain) == 0
				}, "subscriptions are left")
			}
		})
	}
}

// A node that is gone answers nothing, not even that its slots are elsewhere. Who
// can't connect to it looks where they are; go-redis by itself would ask it for up
// to a minute.
func TestSlotsOfADeadNodeAreLookedFor(t *testing.T) {
	cluster := redistest.StartCluster(t, 3, "--cluster-require-full-coverage", "no")
	nodes := cluster.Nodes()
	c := newClient(t, cluster.Client(t), holdfast.WithLease(2*prompt))
	name := ""
	for i := 0; name == ""; i++ {
		if n := t.Name() + strconv.Itoa(i); cluster.Owner(t, keys.Slot(n)) == nodes[0] {
			name = n
		}
	}
	held, err := c.Lock(name).Lock(t.Context())
	require.NoError(t, err)
	other := newClient(t, cluster.Client(t)) // which knows the slots from now on
	_, err = other.Lock(name).TryLock(t.Context())
	require.ErrorIs(t, err, holdfast.ErrNotAcquired)
	cluster.MoveSlot(t, keys.Slot(name), nodes[1], nil)
	nodes[0].Kill()

	_, err = other.Lock(name).TryLock(t.Context(), holdfast.Wait(prompt))
	require.ErrorIs(t, err, holdfast.ErrNotAcquired)
	ends := held.ExpiresAt()
	redistest.Eventually(t, 2*prompt, func() bool { return held.ExpiresAt().After(ends) }, "no renewal")
	require.NoError(t, held.Unlock(t.Context()))

	nodes[0].Restart() // else go-redis dials it for a second after its end
	eventually(t, "go-redis dials no more", func() bool {
		_, stacks := running()
		return !strings.Contains(stacks, "tryDial")
	})
}
