package worker

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// ClientName is the name of the connections of one process, as CLIENT LIST shows
// it.
func ClientName(process int) string { return fmt.Sprintf("holdfast-chaos-%d", process) }

// dial makes the go-redis client of a process. It reaches the servers by way of
// the proxies: what a server or a sentinel says of addresses is theirs, and is
// translated when they are dialled.
func dial(c Config) (redis.UniversalClient, error) {
	var d net.Dialer
	dialer := func(ctx context.Context, network, addr string) (net.Conn, error) {
		if proxy, ok := c.Proxies[addr]; ok {
			addr = proxy
		}
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return d.DialContext(ctx, network, addr)
	}
	pool := 4 * c.Goroutines // each may have a call that it left under way
	switch c.Topology {
	case Single:
		return redis.NewClient(&redis.Options{
			Addr: c.Addrs[0], Dialer: dialer, ClientName: ClientName(c.Process), Username: c.Username, Password: c.Password,
			ReadTimeout: c.ReadTimeout, WriteTimeout: c.ReadTimeout, PoolSize: pool,
		}), nil
	case Sentinel:
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: c.MasterName, SentinelAddrs: c.Addrs, Dialer: dialer, ClientName: ClientName(c.Process),
			Username: c.Username, Password: c.Password,
			ReadTimeout: c.ReadTimeout, WriteTimeout: c.ReadTimeout, PoolSize: pool,
		}), nil
	case Cluster:
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: c.Addrs, Dialer: dialer, ClientName: ClientName(c.Process), Username: c.Username, Password: c.Password,
			ReadTimeout: c.ReadTimeout, WriteTimeout: c.ReadTimeout, PoolSize: pool,
		}), nil
	}
	return nil, fmt.Errorf("worker: topology %q is not known", c.Topology)
}
