package trials

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/internal/topology"
)

// pipelines counts, at the clients of a cluster's nodes, how many pipelines they
// send and how many commands are in them, and what is sent alone.
type pipelines struct{ sent, commands, alone atomic.Int64 }

func (*pipelines) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p *pipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		p.alone.Add(1)
		return next(ctx, cmd)
	}
}

func (p *pipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		p.sent.Add(1)
		p.commands.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

// held is what came of many holds on a cluster.
type held struct {
	lost              int
	pipelines, within float64 // a second; commands in one
	alone             float64 // commands a second
	nearest           time.Duration
}

// holdMany holds names all over a cluster, over links with a delay, for a while.
func holdMany(tb testing.TB, names int, lease, delay, during time.Duration) (r held) {
	ctx := context.Background()
	top := topology.Run(tb, topology.Cluster, topology.Options{})
	proxies, err := top.Proxies()
	require.NoError(tb, err)
	defer proxies.Close()
	for _, p := range proxies.All() {
		p.SetLatency(delay, delay)
	}
	e := proxies.Endpoint()
	var count pipelines
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: e.Addrs, PoolSize: 64, NewClient: func(o *redis.Options) *redis.Client {
			c := redis.NewClient(o)
			c.AddHook(&count)
			return c
		},
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, e.Via[addr])
		},
	})
	c := newParty(tb, rdb, holdfast.WithLease(lease))
	defer c.leave()

	holds := make([]*holdfast.Hold, names)
	var wg sync.WaitGroup
	const hands = 100
	for g := range hands {
		wg.Go(func() {
			for i := g; i < names; i += hands {
				var err error
				if holds[i], err = c.Lock(fmt.Sprint("held-", i)).Lock(ctx); err != nil {
					tb.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if tb.Failed() {
		return r
	}
	count.sent.Store(0)
	count.commands.Store(0)
	count.alone.Store(0)
	r.nearest = lease
	over := time.After(during)
	tick := time.NewTicker(lease / 12)
	defer tick.Stop()
	for looking := true; looking; {
		select {
		case <-over:
			looking = false
		case <-tick.C:
			for _, h := range holds {
				if h.Context().Err() == nil {
					r.nearest = min(r.nearest, time.Until(h.ExpiresAt()))
				}
			}
		}
	}
	s := during.Seconds()
	r.pipelines = float64(count.sent.Load()) / s
	r.within = float64(count.commands.Load()) / float64(max(count.sent.Load(), 1))
	r.alone = float64(count.alone.Load()) / s
	for g := range hands {
		wg.Go(func() {
			for i := g; i < names; i += hands {
				if holds[i].Unlock(ctx) != nil {
					holds[i] = nil
				}
			}
		})
	}
	wg.Wait()
	for _, h := range holds {
		if h == nil {
			r.lost++
		}
	}
	return r
}

// Holds on a cluster are renewed together, node by node.
func TestHoldsOnASlowCluster(t *testing.T) {
	r := holdMany(t, 1000, 6*time.Second, 5*time.Millisecond, 5*time.Second)
	t.Logf("%d lost; %.0f pipelines a second with %.0f commands each, %.1f commands a second beside; the nearest end of a lease was %v away",
		r.lost, r.pipelines, r.within, r.alone, r.nearest)
	require.Zero(t, r.lost)
	require.Greater(t, r.within, 5.0, "renewals go out one by one")
}

// Bar: 20,000 holds on a cluster, over links with 5 ms of delay, lease 3 s: none is
// lost in a minute; renewals are pipelined per node.
func BenchmarkHolds20000OnACluster(b *testing.B) {
	for b.Loop() {
		r := holdMany(b, 20_000, 3*time.Second, 5*time.Millisecond, time.Minute)
		b.ReportMetric(float64(r.lost), "lost")
		b.ReportMetric(r.pipelines, "pipelines/s")
		b.ReportMetric(r.within, "commands/pipeline")
		b.ReportMetric(r.alone, "commands/s_beside")
		b.ReportMetric(ms(r.nearest), "ms_nearest_end_of_a_lease")
		if r.lost > 0 {
			b.Errorf("%d of 20,000 holds were lost", r.lost)
		}
	}
	b.ReportMetric(0, "ns/op")
}
