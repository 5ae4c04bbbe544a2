package topology

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/keys"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// Slots is the number of slots of a cluster.
const Slots = 16384

var errNoMaster = errors.New("no master")

// Owner is the master that has a name now, whatever the kind.
func (t *Topology) Owner(ctx context.Context, name string) (*Node, error) {
	return t.OwnerOf(ctx, keys.Slot(name))
}

// OwnerOf is Owner by the slot, which matters in a cluster alone. Where servers
// contradict each other the youngest decision counts; none is an error.
func (t *Topology) OwnerOf(ctx context.Context, slot int) (*Node, error) {
	switch t.kind {
	case Sentinel:
		return t.sentinelsMaster(ctx)
	case Cluster:
		return t.slotOwner(ctx, slot)
	default:
		return t.nodes[0], nil
	}
}

// Masters are all masters that have names now.
func (t *Topology) Masters(ctx context.Context) ([]*Node, error) {
	if t.kind != Cluster {
		m, err := t.OwnerOf(ctx, 0)
		if err != nil {
			return nil, err
		}
		return []*Node{m}, nil
	}
	var found []*Node
	for _, v := range t.views(ctx) {
		if v.master && len(v.slots) > 0 {
			found = append(found, v.node)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("topology: %w", errNoMaster)
	}
	return found, nil
}

// Replicas are the nodes that follow n, in their own words.
func (t *Topology) Replicas(ctx context.Context, n *Node) ([]*Node, error) {
	var found []*Node
	for _, r := range t.nodes {
		if r == n {
			continue
		}
		info, err := r.info(ctx, "replication")
		if err != nil {
			continue // it is down
		}
		if info["role"] == "slave" && net.JoinHostPort(info["master_host"], info["master_port"]) == n.Addr() {
			found = append(found, r)
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return found, nil
}

// info reads one section of INFO.
func (n *Node) info(ctx context.Context, section string) (map[string]string, error) {
	text, err := n.admin.Info(ctx, section).Result()
	if err != nil {
		return nil, err
	}
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[key] = value
		}
	}
	return fields, nil
}

// sentinelsMaster is what a quorum of sentinels takes for the master, if it says so
// itself.
func (t *Topology) sentinelsMaster(ctx context.Context) (*Node, error) {
	votes := make(map[string]int)
	for _, s := range t.sentinels {
		at, err := s.admin.Do(ctx, "sentinel", "get-master-addr-by-name", masterName).StringSlice()
		if err == nil && len(at) == 2 {
			votes[net.JoinHostPort(at[0], at[1])]++
		}
	}
	for _, n := range t.nodes {
		if votes[n.Addr()] < quorum {
			continue
		}
		info, err := n.info(ctx, "replication")
		if err != nil {
			return nil, n.wrap("ask", err)
		}
		if info["role"] != "master" {
			return nil, fmt.Errorf("topology: %w: %s isn't one yet", errNoMaster, n.name)
		}
		return n, nil
	}
	return nil, fmt.Errorf("topology: %w: the sentinels say %v", errNoMaster, votes)
}

// view is what a node of a cluster says of itself.
type view struct {
	node   *Node
	id     string
	master bool
	epoch  int64
	slots  [][2]int
}

// views asks all nodes; those that don't answer are left out.
func (t *Topology) views(ctx context.Context) (all []view) {
	for _, n := range t.nodes {
		text, err := n.admin.ClusterNodes(ctx).Result()
		if err != nil {
			continue
		}
		for line := range strings.Lines(text) {
			if v, ok := parseMyself(n, line); ok {
				all = append(all, v)
			}
		}
	}
	return all
}

// parseMyself reads the line of CLUSTER NODES that is about the node itself:
// id, address, flags, master, ping, pong, epoch, link, slots.
func parseMyself(n *Node, line string) (view, bool) {
	f := strings.Fields(line)
	if len(f) < 8 || !strings.Contains(f[2], "myself") {
		return view{}, false
	}
	epoch, err := strconv.ParseInt(f[6], 10, 64)
	if err != nil {
		return view{}, false
	}
	v := view{node: n, id: f[0], master: strings.Contains(f[2], "master"), epoch: epoch}
	for _, r := range f[8:] {
		first, last, isRange := strings.Cut(r, "-")
		if !isRange {
			last = first
		}
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err1 == nil && err2 == nil { // else a slot on its way: [7-<-id]
			v.slots = append(v.slots, [2]int{from, to})
		}
	}
	return v, true
}

func (v view) has(slot int) bool {
	for _, r := range v.slots {
		if r[0] <= slot && slot <= r[1] {
			return true
		}
	}
	return false
}

func (t *Topology) slotOwner(ctx context.Context, slot int) (*Node, error) {
	var best view
	for _, v := range t.views(ctx) {
		if v.master && v.has(slot) && (best.node == nil || v.epoch > best.epoch) {
			best = v
		}
	}
	if best.node == nil {
		return nil, fmt.Errorf("topology: %w for slot %d", errNoMaster, slot)
	}
	return best.node, nil
}

// AwaitMaster returns the master of a name once there is one that isn't old (nil:
// any) and takes writes.
func (t *Topology) AwaitMaster(ctx context.Context, name string, old *Node) (*Node, error) {
	var found *Node
	err := redistest.Retry(ctx, func() error {
		n, err := t.Owner(ctx, name)
		if err != nil {
			return err
		}
		if n == old {
			return fmt.Errorf("topology: %s is the master of %q still", n.name, name)
		}
		if t.kind == Cluster {
			info, err := n.admin.ClusterInfo(ctx).Result()
			if err != nil {
				return err
			}
			if !strings.Contains(info, "cluster_state:ok") {
				return fmt.Errorf("topology: %s: the cluster isn't fine", n.name)
			}
		}
		found = n
		return nil
	})
	return found, err
}

// Await returns once all servers run and are in their place again: every replica
// follows, sentinels see all servers alive, the cluster is fine, complete and the
// same in the eyes of every node.
func (t *Topology) Await(ctx context.Context) error {
	switch t.kind {
	case Single:
		return redistest.Retry(ctx, func() error { return t.nodes[0].admin.Ping(ctx).Err() })
	case Replicated:
		return t.awaitReplicas(ctx)
	case Sentinel:
		return errors.Join(t.awaitReplicas(ctx), t.awaitSentinels(ctx))
	default:
		return errors.Join(t.awaitReplicas(ctx), t.awaitCluster(ctx))
	}
}

// awaitReplicas returns once every node is a master or follows one, their numbers
// are right, and each master has had a write acknowledged by all of its replicas. That
// a replica's link is up is not enough: after a whole copy its master sends on only
// once the replica has reported, up to a second later, and what is written until then
// is lost in a failover.
func (t *Topology) awaitReplicas(ctx context.Context) error {
	want := len(t.nodes) / 2
	if t.kind != Cluster {
		want = replicas
	}
	return redistest.Retry(ctx, func() error {
		following := 0
		masters := make(map[*Node]int)
		for _, n := range t.nodes {
			info, err := n.info(ctx, "replication")
			if err != nil {
				return n.wrap("ask", err)
			}
			if info["role"] == "master" {
				if masters[n], err = strconv.Atoi(info["connected_slaves"]); err != nil {
					return n.wrap("ask", err)
				}
				continue
			}
			if info["master_link_status"] != "up" {
				return fmt.Errorf("topology: %s doesn't follow yet", n.name)
			}
			following++
		}
		if following != want {
			return fmt.Errorf("topology: %d replicas, not %d", following, want)
		}
		for n, count := range masters {
			if err := n.confirm(ctx, count); err != nil {
				return err
			}
		}
		return nil
	})
}

// confirm writes something to a master, and waits until that many replicas have it.
func (n *Node) confirm(ctx context.Context, replicas int) error {
	const tries, patience = 1000, 2 * time.Second
	conn := n.admin.Conn() // WAIT is about the writes of its connection
	defer conn.Close()
	for i := range tries {
		key := fmt.Sprintf("topology:confirm:%d", i)
		err := conn.Set(ctx, key, "", 0).Err()
		if redis.HasErrorPrefix(err, "MOVED") {
			continue // another master's slot
		}
		if err == nil {
			err = conn.Del(ctx, key).Err()
		}
		if err != nil {
			return n.wrap("write", err)
		}
		have, err := conn.Wait(ctx, replicas, patience).Result()
		if err == nil && have < int64(replicas) {
			err = fmt.Errorf("%d of %d replicas have what was written", have, replicas)
		}
		return n.wrap("write", err)
	}
	return fmt.Errorf("topology: %s has no slot", n.name)
}

// awaitSentinels returns once all sentinels have the same view, in which nothing is
// down.
func (t *Topology) awaitSentinels(ctx context.Context) error {
	return redistest.Retry(ctx, func() error {
		if _, err := t.sentinelsMaster(ctx); err != nil {
			return err
		}
		for _, s := range t.sentinels {
			m, err := s.admin.Do(ctx, "sentinel", "master", masterName).StringSlice()
			if err != nil {
				return s.wrap("ask", err)
			}
			f := make(map[string]string)
			for i := 0; i+1 < len(m); i += 2 {
				f[m[i]] = m[i+1]
			}
			if f["flags"] != "master" || f["num-slaves"] != strconv.Itoa(replicas) || f["num-other-sentinels"] != strconv.Itoa(sentinels-1) {
				return fmt.Errorf("topology: %s sees %s replicas, %s others, master %s", s.name, f["num-slaves"], f["num-other-sentinels"], f["flags"])
			}
			if err := s.admin.Do(ctx, "sentinel", "ckquorum", masterName).Err(); err != nil {
				return s.wrap("quorum of", err)
			}
		}
		return nil
	})
}

func (t *Topology) awaitCluster(ctx context.Context) error {
	return redistest.Retry(ctx, func() error {
		for _, n := range t.nodes {
			info, err := n.admin.ClusterInfo(ctx).Result()
			if err != nil {
				return n.wrap("ask", err)
			}
			for _, want := range []string{
				"cluster_state:ok\r\n",
				fmt.Sprintf("cluster_slots_ok:%d\r\n", Slots),
				fmt.Sprintf("cluster_known_nodes:%d\r\n", len(t.nodes)),
				fmt.Sprintf("cluster_size:%d\r\n", masters),
			} {
				if !strings.Contains(info, want) {
					return fmt.Errorf("topology: %s isn't content:\n%s", n.name, info)
				}
			}
		}
		return t.agree(ctx)
	})
}

// agree answers an error unless all nodes of a cluster give each the same role,
// master and slots.
func (t *Topology) agree(ctx context.Context) error {
	var first string
	for i, n := range t.nodes {
		text, err := n.admin.ClusterNodes(ctx).Result()
		if err != nil {
			return n.wrap("ask", err)
		}
		var lines []string
		for line := range strings.Lines(text) {
			if f := strings.Fields(line); len(f) > 7 {
				f[2] = strings.Replace(f[2], "myself,", "", 1)
				lines = append(lines, strings.Join(append(f[:4:4], f[8:]...), " "))
			}
		}
		slices.Sort(lines)
		switch view := strings.Join(lines, "\n"); {
		case i == 0:
			first = view
		case view != first:
			return fmt.Errorf("topology: %s and %s contradict each other:\n%s\n\n%s", n.name, t.nodes[0].name, view, first)
		}
	}
	return nil
}
