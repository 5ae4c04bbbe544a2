package redistest

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	clusterSlots   = 16384
	clusterTimeout = 30 * time.Second
)

// Cluster is a Redis cluster of masters without replicas.
type Cluster struct {
	nodes []*Server
}

// StartCluster starts n masters that share the slots in equal ranges, each with
// the given extra arguments, and returns once every node knows all the others and
// says that the cluster is fine.
func StartCluster(tb testing.TB, n int, args ...string) *Cluster {
	tb.Helper()
	if n < 1 {
		tb.Fatalf("redistest: a cluster of %d nodes", n)
	}
	c := &Cluster{}
	// A node that is gone is noticed after this many milliseconds; the 15 s that
	// servers take by default are long for a test.
	args = append([]string{
		"--cluster-enabled", "yes",
		"--cluster-config-file", "nodes.conf",
		"--cluster-node-timeout", "2000",
	}, args...)
	for range n {
		c.nodes = append(c.nodes, Start(tb, args...))
	}
	ctx, cancel := context.WithTimeout(context.Background(), clusterTimeout)
	defer cancel()
	if err := c.form(ctx); err != nil {
		tb.Fatal("redistest: form cluster: ", err)
	}
	return c
}

// form hands out the slots, introduces the nodes to each other and waits.
func (c *Cluster) form(ctx context.Context) error {
	n := len(c.nodes)
	clients := make([]*redis.Client, n)
	for i, s := range c.nodes {
		rdb := redis.NewClient(s.Options())
		defer rdb.Close()
		clients[i] = rdb
	}
	for i, rdb := range clients {
		// Nodes that begin with equal epochs first have to settle who changes.
		if err := rdb.Do(ctx, "cluster", "set-config-epoch", i+1).Err(); err != nil {
			return fmt.Errorf("set-config-epoch: %w", err)
		}
		first, last := i*clusterSlots/n, (i+1)*clusterSlots/n-1
		if err := rdb.ClusterAddSlotsRange(ctx, first, last).Err(); err != nil {
			return fmt.Errorf("add slots %d-%d: %w", first, last, err)
		}
	}
	for i, rdb := range clients {
		// Gossip would spread this by itself, but takes its time.
		for _, other := range c.nodes[i+1:] {
			host, port, err := net.SplitHostPort(other.Addr())
			if err != nil {
				return err
			}
			if err := rdb.ClusterMeet(ctx, host, port).Err(); err != nil {
				return fmt.Errorf("meet: %w", err)
			}
		}
	}
	return awaitCluster(ctx, clients)
}

// awaitCluster returns once every node sees a complete cluster.
func awaitCluster(ctx context.Context, clients []*redis.Client) error {
	want := []string{
		"cluster_state:ok\r\n",
		fmt.Sprintf("cluster_slots_ok:%d\r\n", clusterSlots),
		fmt.Sprintf("cluster_known_nodes:%d\r\n", len(clients)),
		fmt.Sprintf("cluster_size:%d\r\n", len(clients)),
	}
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for _, rdb := range clients {
		for {
			info, err := rdb.ClusterInfo(ctx).Result()
			if err != nil {
				return fmt.Errorf("cluster info: %w", err)
			}
			if containsAll(info, want) {
				break
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return fmt.Errorf("%w; last state:\n%s", ctx.Err(), info)
			}
		}
	}
	return nil
}

func containsAll(s string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}

// Addrs are the addresses of all nodes.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.nodes))
	for i, s := range c.nodes {
		addrs[i] = s.Addr()
	}
	return addrs
}

// Nodes are the servers, in the order of the slots they were given. A node that
// is restarted finds its way back: it keeps its identity and slots, not its data.
func (c *Cluster) Nodes() []*Server { return append([]*Server(nil), c.nodes...) }

// Client returns a cluster client of its own that the end of the test closes.
// Each mod may change its options.
func (c *Cluster) Client(tb testing.TB, mod ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	tb.Helper()
	opts := &redis.ClusterOptions{Addrs: c.Addrs(), Password: c.nodes[0].password}
	for _, m := range mod {
		m(opts)
	}
	rdb := redis.NewClusterClient(opts)
	closeAtEnd(tb, rdb)
	return rdb
}

// Owner is the node that says it has a slot.
func (c *Cluster) Owner(tb testing.TB, slot int) *Server {
	tb.Helper()
	for _, s := range c.nodes {
		rdb := redis.NewClient(s.Options())
		defer rdb.Close()
		ranges, err := rdb.ClusterSlots(context.Background()).Result() //nolint:staticcheck // Redis 6.2 has no CLUSTER SHARDS
		if err != nil {
			continue // it is down; another knows
		}
		for _, r := range ranges {
			if r.Start <= slot && slot <= r.End && len(r.Nodes) > 0 {
				for _, o := range c.nodes {
					if o.Addr() == r.Nodes[0].Addr {
						return o
					}
				}
			}
		}
	}
	tb.Fatalf("redistest: no node has slot %d", slot)
	return nil
}

// MoveSlot gives a slot and its keys to another node, as resharding does, and
// returns once both have it so. between, if not nil, is called while the slot is
// open on both sides, before any key has moved.
func (c *Cluster) MoveSlot(tb testing.TB, slot int, to *Server, between func()) {
	tb.Helper()
	if err := c.moveSlot(context.Background(), slot, c.Owner(tb, slot), to, between); err != nil {
		tb.Fatalf("redistest: move slot %d: %v", slot, err)
	}
}

func (c *Cluster) moveSlot(ctx context.Context, slot int, from, to *Server, between func()) error {
	src, dst := redis.NewClient(from.Options()), redis.NewClient(to.Options())
	defer src.Close()
	defer dst.Close()
	srcID, err := src.Do(ctx, "cluster", "myid").Text()
	if err != nil {
		return err
	}
	dstID, err := dst.Do(ctx, "cluster", "myid").Text()
	if err != nil {
		return err
	}
	if err := dst.Do(ctx, "cluster", "setslot", slot, "importing", srcID).Err(); err != nil {
		return err
	}
	if err := src.Do(ctx, "cluster", "setslot", slot, "migrating", dstID).Err(); err != nil {
		return err
	}
	if between != nil {
		between()
	}
	host, port, err := net.SplitHostPort(to.Addr())
	if err != nil {
		return err
	}
	for {
		names, err := src.ClusterGetKeysInSlot(ctx, slot, 100).Result()
		if err != nil {
			return err
		}
		if len(names) == 0 {
			break
		}
		args := []any{"migrate", host, port, "", 0, 5000}
		if to.password != "" {
			args = append(args, "auth", to.password)
		}
		args = append(args, "keys")
		for _, n := range names {
			args = append(args, n)
		}
		if err := src.Do(ctx, args...).Err(); err != nil {
			return err
		}
	}
	// The new owner first: at no moment has nobody the slot.
	for _, rdb := range []*redis.Client{dst, src} {
		if err := rdb.Do(ctx, "cluster", "setslot", slot, "node", dstID).Err(); err != nil {
			return err
		}
	}
	return nil
}
