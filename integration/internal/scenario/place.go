package scenario

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/internal/topology"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// Place is where scenarios are played.
type Place struct {
	// Endpoint is what clients are told.
	Endpoint topology.Endpoint
	// Addrs are all servers, sentinels included: a proxy can stand before each.
	Addrs []string
	// Replicas, if given, are how many replicas clients wait for, where their leases
	// leave the time.
	Replicas int
	// Quiet: nothing else uses the servers while a scenario runs.
	Quiet bool
}

// On is the place that a topology is.
func On(top *topology.Topology) Place {
	p := Place{Endpoint: top.Endpoint(), Addrs: top.Addrs()}
	if top.Kind() == topology.Replicated {
		p.Replicas = 1 // of two: nothing counts that only the master has
	}
	return p
}

// Redis is a client that looks at the servers, closed with the test.
func (p Place) Redis(t testing.TB, mods ...func(*topology.ClientOptions)) redis.UniversalClient {
	t.Helper()
	rdb := p.Endpoint.Client(mods...)
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	return rdb
}

// Connect makes a client with default leases, closed with the test.
func (p Place) Connect(t testing.TB, opts ...holdfast.Option) *holdfast.Client {
	t.Helper()
	return p.client(t, p.Redis(t), locktest.Link{}, opts...)
}

func (p Place) client(t testing.TB, rdb redis.UniversalClient, l locktest.Link, opts ...holdfast.Option) *holdfast.Client {
	t.Helper()
	if l.Lease > 0 {
		opts = append(opts, holdfast.WithLease(l.Lease))
	}
	if l.Poll > 0 {
		opts = append(opts, holdfast.WithPollFallback(l.Poll))
	}
	if p.Replicas > 0 && l.Read == 0 && (l.Lease == 0 || l.Lease >= 10*time.Second) {
		opts = append(opts, holdfast.WithReplicas(p.Replicas, 3*time.Second))
	}
	c, err := holdfast.New(rdb, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// With makes a client, closed with the test. Of l it takes all but Read.
func (p Place) With(t testing.TB, l locktest.Link, opts ...holdfast.Option) *holdfast.Client {
	t.Helper()
	return p.client(t, p.Redis(t), locktest.Link{Lease: l.Lease, Poll: l.Poll}, opts...)
}

// Behind is a client behind proxies of its own.
type Behind struct {
	*holdfast.Client
	*topology.Proxies
	Sent *redistest.CommandCounter
}

// Via makes a client behind proxies of its own, closed with the test.
func (p Place) Via(t testing.TB, l locktest.Link, opts ...holdfast.Option) Behind {
	t.Helper()
	proxies, err := topology.NewProxies(p.Endpoint, p.Addrs)
	require.NoError(t, err)
	t.Cleanup(proxies.Close)
	rdb := proxies.Endpoint().Client(func(o *topology.ClientOptions) {
		o.ReadTimeout = l.Read
		o.PoolSize = 30
	})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	sent := &redistest.CommandCounter{}
	rdb.AddHook(sent)
	c := p.client(t, rdb, l, opts...)
	t.Cleanup(proxies.Cut) // before the client's Close, which would sit out a read
	return Behind{Client: c, Proxies: proxies, Sent: sent}
}
