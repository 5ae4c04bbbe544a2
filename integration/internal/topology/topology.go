package topology

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// Kind is one way to run Redis.
type Kind string

// The kinds.
const (
	Single     Kind = "single"     // one server
	Replicated Kind = "replicated" // a master and two replicas; nothing fails over
	Sentinel   Kind = "sentinel"   // a master and two replicas under three sentinels
	Cluster    Kind = "cluster"    // three masters with a replica each
)

// Kinds are all of them.
func Kinds() []Kind { return []Kind{Single, Replicated, Sentinel, Cluster} }

// ParseKind answers the kind of that name.
func ParseKind(name string) (Kind, error) {
	if k := Kind(name); slices.Contains(Kinds(), k) {
		return k, nil
	}
	return "", fmt.Errorf("topology: %q is none of %v", name, Kinds())
}

// Options say how the servers are to be. The zero value is a server from PATH
// that forgets everything when it restarts.
type Options struct {
	// Binary is the server; empty: what HOLDFAST_REDIS_SERVER names, or what is in PATH.
	Binary string
	// Dir keeps the logs of all servers, one folder each, after the end. It is made
	// if it isn't there. Empty: a temporary folder that goes with the servers.
	Dir string
	// Durable servers write every change to disk before they answer (appendfsync
	// always), and come back with it. Others come back empty.
	Durable bool
	// Password is asked for by all servers but the sentinels.
	Password string
	// DownAfter is how long a server may be silent before the others take it for
	// dead: sentinel's down-after-milliseconds and cluster-node-timeout. 0: a second
	// under sentinels, two in a cluster.
	DownAfter time.Duration
	// Args are further arguments for every server but the sentinels.
	Args []string
}

// downAfter is the effective value for a kind.
func (o Options) downAfter(k Kind) time.Duration {
	switch {
	case o.DownAfter > 0:
		return o.DownAfter
	case k == Cluster:
		return 2 * time.Second
	default:
		return time.Second
	}
}

const (
	masterName = "holdfast-master"
	replicas   = 2 // of a master that isn't in a cluster
	sentinels  = 3
	quorum     = 2
	masters    = 3 // of a cluster, with a replica each

	startTimeout = 60 * time.Second
)

// Topology are servers that belong together.
type Topology struct {
	kind      Kind
	options   Options
	dir       string
	nodes     []*Node
	sentinels []*Node
}

// Start starts the servers of a kind and returns once all are in their place:
// replicas follow, sentinels know each other and the replicas, the cluster is
// fine on every node. The caller closes it.
func Start(ctx context.Context, kind Kind, o Options) (*Topology, error) {
	t := &Topology{kind: kind, options: o}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := t.start(ctx)
	if err == nil {
		err = t.Await(ctx)
	}
	if err != nil {
		err = fmt.Errorf("topology: start %s: %w%s", kind, err, t.logTails())
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// Run is Start for a test, which ends the servers; if it has failed the ends of
// their logs are in its output.
func Run(tb testing.TB, kind Kind, o Options) *Topology {
	tb.Helper()
	t, err := Start(context.Background(), kind, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Log(t.logTails())
		}
		if err := t.Close(); err != nil {
			tb.Error(err)
		}
	})
	return t
}

func (t *Topology) start(ctx context.Context) error {
	t.dir = t.options.Dir
	var err error
	if t.dir == "" {
		t.dir, err = os.MkdirTemp("", "topology-")
	} else {
		err = os.MkdirAll(t.dir, 0o755)
	}
	if err != nil {
		return err
	}
	switch t.kind {
	case Single:
		return t.launch("server", nil)
	case Replicated:
		return t.startReplicated(ctx)
	case Sentinel:
		return t.startSentinel(ctx)
	case Cluster:
		return t.startCluster(ctx)
	default:
		return fmt.Errorf("no such kind: %q", t.kind)
	}
}

func (t *Topology) startReplicated(context.Context) error {
	if err := t.launch("server-1", nil); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(t.nodes[0].Addr())
	if err != nil {
		return err
	}
	for i := range replicas {
		// In the file, not among the arguments: a replica that was made master
		// and restarts is a master.
		if err := t.launch("server-"+strconv.Itoa(i+2), []string{"replicaof " + host + " " + port}); err != nil {
			return err
		}
	}
	return nil
}

func (t *Topology) startSentinel(ctx context.Context) error {
	if err := t.startReplicated(ctx); err != nil {
		return err
	}
	if err := t.awaitReplicas(ctx); err != nil { // the sentinels' first look shall see them
		return err
	}
	for i := range sentinels {
		name := "sentinel-" + strconv.Itoa(i+1)
		dir := filepath.Join(t.dir, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		s, err := redistest.LaunchSentinel(t.options.Binary, dir, redistest.Watch{
			Master:    t.nodes[0].server,
			Quorum:    quorum,
			DownAfter: t.options.downAfter(t.kind),
			Failover:  5 * time.Second,
		})
		if err != nil {
			return err
		}
		n := newNode(name, s)
		t.sentinels = append(t.sentinels, n)
		// How often they look at the servers and tell each other; by default it takes
		// them 10 s to notice that a former master is to be made a replica. What a
		// failover itself takes doesn't depend on it. Redis 6.2 can't be told.
		err = n.admin.Do(ctx, "sentinel", "debug", "info-period", 1000, "publish-period", 500).Err()
		var refused redis.Error
		if err != nil && !errors.As(err, &refused) {
			return err
		}
	}
	return nil
}

func (t *Topology) startCluster(ctx context.Context) error {
	for i := range 2 * masters {
		if err := t.launch("node-"+strconv.Itoa(i+1), nil, redistest.NodeArgs(t.options.downAfter(t.kind))...); err != nil {
			return err
		}
	}
	servers := make([]*redistest.Server, len(t.nodes))
	for i, n := range t.nodes {
		servers[i] = n.server
	}
	return redistest.FormCluster(ctx, servers[:masters], servers[masters:]...)
}

// launch starts one data server in a folder of its own.
func (t *Topology) launch(name string, conf []string, args ...string) error {
	dir := filepath.Join(t.dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	args = append(args, "--repl-diskless-sync-delay", "0")
	if t.options.Durable {
		args = append(args, "--appendonly", "yes", "--appendfsync", "always")
	}
	if p := t.options.Password; p != "" {
		args = append(args, "--requirepass", p, "--masterauth", p)
	}
	s, err := redistest.Launch(t.options.Binary, dir, conf, append(args, t.options.Args...)...)
	if err != nil {
		return err
	}
	t.nodes = append(t.nodes, newNode(name, s))
	return nil
}

// Kind is what it was started as.
func (t *Topology) Kind() Kind { return t.kind }

// Dir is the folder with the servers' logs.
func (t *Topology) Dir() string { return t.dir }

// Nodes are the servers that hold data, in the order of their start: the first
// masters first. Which are masters now is for Masters to say.
func (t *Topology) Nodes() []*Node { return slices.Clone(t.nodes) }

// Sentinels are the sentinels, none where there are no such.
func (t *Topology) Sentinels() []*Node { return slices.Clone(t.sentinels) }

// Close ends all servers. A folder that Options named keeps the logs; the data goes.
// A server that had died by itself is an error.
func (t *Topology) Close() error {
	var err error
	for _, n := range slices.Concat(t.sentinels, t.nodes) {
		err = errors.Join(err, n.close())
	}
	if t.options.Dir == "" {
		return errors.Join(err, os.RemoveAll(t.dir))
	}
	return err
}

// logTails are the ends of all logs.
func (t *Topology) logTails() (text string) {
	for _, n := range slices.Concat(t.sentinels, t.nodes) {
		text += fmt.Sprintf("\n--- log of %s, %s:\n%s", n.name, n.Addr(), n.server.LogTail())
	}
	return text
}

// Client is a client of these servers, that the caller closes; see Endpoint.Client.
func (t *Topology) Client(mods ...func(*ClientOptions)) redis.UniversalClient {
	return t.Endpoint().Client(mods...)
}

// Endpoint is what a client has to know.
func (t *Topology) Endpoint() Endpoint {
	e := Endpoint{Kind: t.kind, Password: t.options.Password}
	switch t.kind {
	case Sentinel:
		e.MasterName = masterName
		for _, s := range t.sentinels {
			e.Addrs = append(e.Addrs, s.Addr())
		}
	case Cluster:
		for _, n := range t.nodes {
			e.Addrs = append(e.Addrs, n.Addr())
		}
	default:
		e.Addrs = []string{t.nodes[0].Addr()}
	}
	return e
}
