package redistest

import (
	"context"
	"fmt"
	"net"
	"strconv"
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
	args = append(NodeArgs(2*time.Second), args...)
	for range n {
		c.nodes = append(c.nodes, Start(tb, args...))
	}
	ctx, cancel := context.WithTimeout(context.Background(), clusterTimeout)
	defer cancel()
	if err := FormCluster(ctx, c.nodes); err != nil {
		tb.Fatal("redistest: form cluster: ", err)
	}
	return c
}

// NodeArgs make a server a node of a cluster in which a node that is gone is
// noticed after the given time; the 15 s that servers take by default are long for
// a test.
func NodeArgs(timeout time.Duration) []string {
	return []string{
		"--cluster-enabled", "yes",
		"--cluster-config-file", "nodes.conf",
		"--cluster-node-timeout", strconv.FormatInt(timeout.Milliseconds(), 10),
	}
}

// FormCluster makes a cluster of servers that were started with NodeArgs. The
// masters get equal ranges of slots, and each replica follows the master of its
// place in the list (the list of masters begins anew when it is shorter). It
// returns once every node knows all the others and says that the cluster is fine,
// and every replica follows.
func FormCluster(ctx context.Context, masters []*Server, replicas ...*Server) error {
	all := append(append([]*Server(nil), masters...), replicas...)
	clients := make([]*redis.Client, len(all))
	for i, s := range all {
		rdb := redis.NewClient(s.Options())
		defer rdb.Close()
		clients[i] = rdb
	}
	n := len(masters)
	for i, rdb := range clients {
		// Nodes that begin with equal epochs first have to settle who changes.
		if err := rdb.Do(ctx, "cluster", "set-config-epoch", i+1).Err(); err != nil {
			return fmt.Errorf("set-config-epoch: %w", err)
		}
		if i >= n {
			continue
		}
		first, last := i*clusterSlots/n, (i+1)*clusterSlots/n-1
		slots := make([]int, 0, last-first+1)
		for slot := first; slot <= last; slot++ {
			slots = append(slots, slot)
		}
		if err := rdb.ClusterAddSlots(ctx, slots...).Err(); err != nil { // Redis 6.2 can't take ranges
			return fmt.Errorf("add slots %d-%d: %w", first, last, err)
		}
		// A master would wait some seconds for more replicas to come.
		if err := rdb.ConfigSet(ctx, "repl-diskless-sync-delay", "0").Err(); err != nil {
			return err
		}
	}
	for i, rdb := range clients {
		// Gossip would spread this by itself, but takes its time.
		for _, other := range all[i+1:] {
			host, port, err := net.SplitHostPort(other.Addr())
			if err != nil {
				return err
			}
			if err := rdb.ClusterMeet(ctx, host, port).Err(); err != nil {
				return fmt.Errorf("meet: %w", err)
			}
		}
	}
	for i, r := range replicas {
		master, ours := clients[i%n], clients[n+i]
		id, err := clusterID(ctx, master)
		if err == nil {
			// It has to have heard of the master before it can follow it.
			err = Retry(ctx, func() error { return ours.ClusterReplicate(ctx, id).Err() })
		}
		if err == nil {
			err = Retry(ctx, func() error { return r.follows(ctx, master) })
		}
		if err != nil {
			return fmt.Errorf("replicate: %w", err)
		}
	}
	return awaitCluster(ctx, clients, n)
}

// clusterID is a node's name; Redis 6.2 has it in CLUSTER MYID, too.
func clusterID(ctx context.Context, rdb *redis.Client) (string, error) {
	return rdb.Do(ctx, "cluster", "myid").Text()
}

// awaitCluster returns once every node sees a complete cluster.
func awaitCluster(ctx context.Context, clients []*redis.Client, masters int) error {
	want := []string{
		"cluster_state:ok\r\n",
		fmt.Sprintf("cluster_slots_ok:%d\r\n", clusterSlots),
		fmt.Sprintf("cluster_known_nodes:%d\r\n", len(clients)),
		fmt.Sprintf("cluster_size:%d\r\n", masters),
	}
	for _, rdb := range clients {
		if err := Retry(ctx, func() error {
			info, err := rdb.ClusterInfo(ctx).Result()
			if err == nil && !containsAll(info, want) {
				err = fmt.Errorf("not yet; the state is:\n%s", info)
			}
			return err
		}); err != nil {
			return fmt.Errorf("cluster info: %w", err)
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
	if err := MoveSlots(context.Background(), slot, slot, c.Owner(tb, slot), to, between); err != nil {
		tb.Fatalf("redistest: move slot %d: %v", slot, err)
	}
}

// MoveSlots gives the slots from first to last, which from has, and their keys to
// another master, one after the other, as resharding does. between, if not nil, is
// called once for each, while it is open on both sides, before any of its keys has
// moved. After an error the slot that was on its way is open still.
func MoveSlots(ctx context.Context, first, last int, from, to *Server, between func()) error {
	src, dst := redis.NewClient(from.Options()), redis.NewClient(to.Options())
	defer src.Close()
	defer dst.Close()
	srcID, err := clusterID(ctx, src)
	if err != nil {
		return err
	}
	dstID, err := clusterID(ctx, dst)
	if err != nil {
		return err
	}
	for slot := first; slot <= last; slot++ {
		if err := dst.Do(ctx, "cluster", "setslot", slot, "importing", srcID).Err(); err != nil {
			return err
		}
		if err := src.Do(ctx, "cluster", "setslot", slot, "migrating", dstID).Err(); err != nil {
			return err
		}
		if between != nil {
			between()
		}
		if err := moveKeys(ctx, slot, src, to); err != nil {
			return err
		}
		// The new owner first: at no moment has nobody the slot.
		for _, rdb := range []*redis.Client{dst, src} {
			if err := rdb.Do(ctx, "cluster", "setslot", slot, "node", dstID).Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

// moveKeys moves what src has in an open slot.
func moveKeys(ctx context.Context, slot int, src *redis.Client, to *Server) error {
	host, port, err := net.SplitHostPort(to.Addr())
	if err != nil {
		return err
	}
	for {
		names, err := src.ClusterGetKeysInSlot(ctx, slot, 100).Result()
		if err != nil || len(names) == 0 {
			return err
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
}
