package topology

import (
	"context"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// Endpoint is all that a client has to know of a topology. It is plain data, which
// can be sent to another process as JSON.
type Endpoint struct {
	Kind       Kind              `json:"kind"`
	Addrs      []string          `json:"addrs"`                // the server; the sentinels; the nodes
	MasterName string            `json:"masterName,omitempty"` // as the sentinels know it
	Password   string            `json:"password,omitempty"`
	Via        map[string]string `json:"via,omitempty"` // a server's address -> that to dial instead
}

// Dialer dials a server.
type Dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// ClientOptions are what a user may choose about a client of any kind. Zero values
// are go-redis' defaults.
type ClientOptions struct {
	Username, Password string
	PoolSize           int
	MaxRetries         int // -1: none
	DialTimeout        time.Duration
	ReadTimeout        time.Duration
	WriteTimeout       time.Duration
	// Dial is told the address that a server has, or the one that Endpoint.Via puts
	// in its place. nil: dials it.
	Dial Dialer
}

// Client is a client of these servers: *redis.Client, or *redis.ClusterClient for a
// cluster. A cluster's client looks for changes every second, where go-redis looks
// once a minute. The caller closes it.
func (e Endpoint) Client(mods ...func(*ClientOptions)) redis.UniversalClient {
	o := ClientOptions{Password: e.Password}
	for _, m := range mods {
		m(&o)
	}
	dial := e.dialer(o)
	switch e.Kind {
	case Sentinel:
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: e.MasterName, SentinelAddrs: e.Addrs,
			Username: o.Username, Password: o.Password, Dialer: dial,
			PoolSize: o.PoolSize, MaxRetries: o.MaxRetries,
			DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
		})
	case Cluster:
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: e.Addrs, Username: o.Username, Password: o.Password, Dialer: dial,
			PoolSize: o.PoolSize, MaxRetries: o.MaxRetries,
			DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
			ClusterStateReloadInterval: time.Second,
		})
	default:
		return redis.NewClient(&redis.Options{
			Addr: e.Addrs[0], Username: o.Username, Password: o.Password, Dialer: dial,
			PoolSize: o.PoolSize, MaxRetries: o.MaxRetries,
			DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
		})
	}
}

// dialer puts the addresses of proxies in place of the servers'.
func (e Endpoint) dialer(o ClientOptions) Dialer {
	timeout := o.DialTimeout
	if timeout == 0 {
		timeout = 5 * time.Second // go-redis' own
	}
	dial := o.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: timeout}).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if via, ok := e.Via[addr]; ok {
			addr = via
		}
		return dial(ctx, network, addr)
	}
}
