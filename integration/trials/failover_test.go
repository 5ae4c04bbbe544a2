package trials

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/internal/topology"
)

// disaster is a way in which a master loses its place; undo brings it back, once
// another has it.
type disaster struct {
	how    string
	strike func(ctx context.Context, top *topology.Topology, n *topology.Node) error
	undo   func(n *topology.Node) error
}

var disasters = []disaster{
	{
		how:    "killed",
		strike: func(_ context.Context, _ *topology.Topology, n *topology.Node) error { n.Kill(); return nil },
		undo:   (*topology.Node).Restart,
	},
	{
		how:    "stopped",
		strike: func(_ context.Context, _ *topology.Topology, n *topology.Node) error { return n.Pause() },
		undo:   (*topology.Node).Resume,
	},
	{
		how: "in good order",
		strike: func(ctx context.Context, top *topology.Topology, n *topology.Node) error {
			_, err := top.Failover(ctx, n)
			return err
		},
		undo: func(*topology.Node) error { return nil },
	},
}

// connect makes a go-redis client as users have it, but for one setting: a server
// that is stopped, not dead, holds each command for as long as the read timeout,
// which is 3 s by default.
func connect(top *topology.Topology) redis.UniversalClient {
	const timeout = 500 * time.Millisecond
	e := top.Endpoint()
	if top.Kind() == topology.Cluster {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: e.Addrs, ReadTimeout: timeout})
	}
	return e.Client(func(o *topology.ClientOptions) { o.ReadTimeout = timeout })
}

// namesOf answers n names that a master has.
func namesOf(tb testing.TB, top *topology.Topology, m *topology.Node, n int, what string) (names []string) {
	for i := 0; len(names) < n; i++ {
		name := fmt.Sprintf("%s-%d", what, i)
		owner, err := top.Owner(context.Background(), name)
		require.NoError(tb, err)
		if owner == m {
			names = append(names, name)
		}
	}
	return names
}

// newMaster returns once a server other than old is the master of its names, in
// its own eyes and, under sentinels, in those of one of them: the earliest moment
// at which a client could know. It asks no server that may be stopped.
func newMaster(tb testing.TB, top *topology.Topology, old *topology.Node, before map[*topology.Node]bool) (*topology.Node, time.Time) {
	ctx := context.Background()
	var mu sync.Mutex
	type master struct {
		node *topology.Node
		at   time.Time
	}
	found := make(chan master, len(top.Nodes()))
	over := make(chan struct{})
	defer close(over)
	named := func(addr string) bool { return true }
	if top.Kind() == topology.Sentinel {
		named = func(addr string) bool {
			mu.Lock()
			defer mu.Unlock()
			for _, s := range top.Sentinels() {
				at, err := s.Admin().Do(ctx, "sentinel", "get-master-addr-by-name", top.Endpoint().MasterName).StringSlice()
				if err == nil && len(at) == 2 && net.JoinHostPort(at[0], at[1]) == addr {
					return true
				}
			}
			return false
		}
	}
	for _, n := range top.Nodes() {
		if n == old || before[n] {
			continue
		}
		go func() {
			for {
				info, err := n.Admin().Info(ctx, "replication").Result()
				if err == nil && strings.Contains(info, "role:master") && named(n.Addr()) {
					found <- master{n, time.Now()}
					return
				}
				select {
				case <-time.After(5 * time.Millisecond):
				case <-over:
					return
				}
			}
		}()
	}
	select {
	case m := <-found:
		return m.node, m.at
	case <-time.After(hang):
		tb.Fatal("the servers have no new master")
		return nil, time.Time{}
	}
}

// failedOver is what came of one failover.
type failedOver struct {
	took spread // from the new master to each worker's next hold
	// unreleased are the same times for names whose last release the new master
	// hadn't got: to it they are held until the lease ends.
	unreleased spread
	lost       int // of the holds that were there before and are renewed
	held       int
	errors     map[string]int // that reached callers
}

var rounds atomic.Int64

// failOverUnder has workers lock and unlock names of one master, and others held, and
// takes the master's place away.
func failOverUnder(tb testing.TB, top *topology.Topology, clients []*party, workers int, d disaster) (r failedOver) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*hang)
	defer cancel()
	masters, err := top.Masters(ctx)
	require.NoError(tb, err)
	before := make(map[*topology.Node]bool)
	for _, m := range masters {
		before[m] = true
	}
	old := masters[0]
	round := rounds.Add(1) // each has names of its own: a release that was lost is no other's affair
	names := namesOf(tb, top, old, workers, fmt.Sprint("worked-", round))
	r.errors = make(map[string]int)

	var holds []*holdfast.Hold
	for i, name := range namesOf(tb, top, old, 2*len(clients), fmt.Sprint("held-", round)) {
		h, err := clients[i%len(clients)].Lock(name).Lock(ctx)
		require.NoError(tb, err)
		holds = append(holds, h)
	}
	r.held = len(holds)

	type beginning struct {
		of *topology.Node
		at time.Time
	}
	var since atomic.Pointer[beginning] // of the new master
	var released sync.Map               // owner -> when its unlock had been answered
	var mu sync.Mutex
	var wg sync.WaitGroup
	working, stop := context.WithCancel(ctx)
	defer stop()
	note := func(what string, err error) {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range []error{holdfast.ErrUncertain, holdfast.ErrLost, holdfast.ErrUnavailable, holdfast.ErrDenied} {
			if errors.Is(err, e) {
				err = e
				break
			}
		}
		r.errors[what+": "+err.Error()]++
	}
	type step struct {
		name string
		took time.Duration
	}
	went := make(chan step, 2*workers)
	for i := range 2 * workers { // two for each name, of different clients
		l := clients[i%len(clients)].Lock(names[i/2])
		wg.Go(func() {
			counted := false
			for working.Err() == nil {
				h, err := l.Lock(working)
				if err != nil {
					if working.Err() == nil {
						note("lock", err)
					}
					continue
				}
				if b := since.Load(); b != nil && !counted {
					// The old master may serve for a moment more: that isn't going on.
					at := time.Now()
					if there, err := b.of.Admin().HExists(ctx, l.Name(), h.Owner()).Result(); err == nil && there {
						counted = true
						went <- step{l.Name(), at.Sub(b.at)}
					}
				}
				if err := h.Unlock(ctx); err != nil {
					note("unlock", err)
				} else {
					released.Store(h.Owner(), time.Now())
				}
			}
		})
	}
	pause(200 * time.Millisecond) // all are at work
	struck := make(chan error, 1)
	go func() { struck <- d.strike(ctx, top, old) }()
	next, at := newMaster(tb, top, old, before)
	since.Store(&beginning{next, at})
	unreleased := make(map[string]bool)
	for _, name := range names {
		asked := time.Now()
		owners, err := next.Admin().HKeys(ctx, name).Result()
		require.NoError(tb, err)
		for _, o := range owners {
			if at, ok := released.Load(o); ok && at.(time.Time).Before(asked) {
				unreleased[name] = true
			}
		}
	}
	for range 2 * workers {
		select {
		case s := <-went:
			if unreleased[s.name] {
				r.unreleased = append(r.unreleased, s.took)
			} else {
				r.took = append(r.took, s.took)
			}
		case <-time.After(hang):
			tb.Errorf("%s: work doesn't go on", d.how)
		}
	}
	stop()
	wg.Wait()
	require.NoError(tb, <-struck)
	require.NoError(tb, d.undo(old))
	require.NoError(tb, top.Await(ctx))
	for _, h := range holds {
		if h.Context().Err() != nil {
			r.lost++
			tb.Logf("%s: lost: %v", d.how, context.Cause(h.Context()))
		} else if err := h.Unlock(ctx); errors.Is(err, holdfast.ErrLost) {
			r.lost++
			tb.Logf("%s: lost, as its unlock found: %v", d.how, err)
		} else if err != nil {
			tb.Errorf("%s: a hold that was kept isn't: %v", d.how, err)
		}
	}
	return r
}

// failoverLease is longer than a failover takes.
const failoverLease = 12 * time.Second

func startFailovers(tb testing.TB, kind topology.Kind) (*topology.Topology, []*party) {
	top := topology.Run(tb, kind, topology.Options{})
	var clients []*party
	for range 4 {
		clients = append(clients, newParty(tb, connect(top), holdfast.WithLease(failoverLease)))
	}
	return top, clients
}

// Work goes on after a failover, and what was held long before it is held still.
func TestWorkGoesOnAfterFailover(t *testing.T) {
	for _, kind := range []topology.Kind{topology.Sentinel, topology.Cluster} {
		t.Run(string(kind), func(t *testing.T) {
			top, clients := startFailovers(t, kind)
			r := failOverUnder(t, top, clients, 4, disasters[0])
			leaveAll(clients...)
			t.Logf("work goes on after %v to %v; %d of %d holds lost; errors: %v", r.took.min(), r.took.max(), r.lost, r.held, r.errors)
			require.Zero(t, r.lost, "holds that the replica had were lost")
		})
	}
}

// Bar: 20 failovers under sentinels and 20 in a cluster: every worker has its next
// hold within 2 s after the servers have a new master.
func BenchmarkFailover20(b *testing.B) {
	const times, workers = 20, 10
	for _, kind := range []topology.Kind{topology.Sentinel, topology.Cluster} {
		b.Run(string(kind), func(b *testing.B) {
			for b.Loop() {
				top, clients := startFailovers(b, kind)
				took := make(map[string]spread)
				var all, unreleased spread
				lost, held := 0, 0
				failed := make(map[string]int)
				for i := range times {
					d := disasters[i%len(disasters)]
					r := failOverUnder(b, top, clients, workers, d)
					fmt.Printf("%s %d %s: after %v to %v, unreleased %v, %d lost, errors %v\n", kind, i, d.how, r.took.min(), r.took.max(), r.unreleased, r.lost, r.errors)
					took[d.how] = append(took[d.how], r.took.max())
					all = append(all, r.took.max())
					unreleased = append(unreleased, r.unreleased...)
					lost, held = lost+r.lost, held+r.held
					for what, n := range r.errors {
						failed[what] += n
					}
				}
				leaveAll(clients...)
				rows := [][]string{{"the master was", "times", "work went on after: median", "longest"}}
				for _, d := range disasters {
					s := took[d.how]
					rows = append(rows, []string{d.how, fmt.Sprint(len(s)), millis(s.median()), millis(s.max())})
				}
				printTable(rows)
				fmt.Printf("errors that reached callers: %v\n", failed)
				all.report(b, "until_work_goes_on")
				b.ReportMetric(float64(len(unreleased)), "releases_that_were_lost")
				b.ReportMetric(float64(lost), "holds_lost")
				b.ReportMetric(float64(held), "holds")
				if all.max() > goesOn {
					b.Errorf("%s: work went on only %v after there was a new master", kind, all.max())
				}
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// F-A02, second part: another server is the master by now, and the old one runs on
// and can be reached. A waiter whose subscription stands there hears nothing of a
// release at the new one; it gets in by the fallback poll, or before.
func TestA02FormerMasterKeepsRunning(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*hang)
	defer cancel()
	top := topology.Run(t, topology.Sentinel, topology.Options{})
	a, b := newParty(t, connect(top), holdfast.WithLease(failoverLease)), newParty(t, connect(top))
	defer leaveAll(a, b)
	h, err := a.Lock("kept").Lock(ctx)
	require.NoError(t, err)
	got := make(chan time.Time, 1)
	go func() {
		defer close(got)
		next, err := b.Lock("kept").Lock(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		got <- time.Now()
		if err := next.Unlock(ctx); err != nil {
			t.Error(err)
		}
	}()
	old, err := top.Owner(ctx, "kept")
	require.NoError(t, err)
	eventually(t, prompt, "it listens at the old master", func() bool {
		chans, err := old.Admin().PubSubChannels(ctx, "*kept*").Result()
		return err == nil && len(chans) == 1
	})
	require.NoError(t, old.Pause())
	_, _ = newMaster(t, top, old, map[*topology.Node]bool{old: true})
	require.NoError(t, old.Resume())
	from := time.Now()
	require.NoError(t, h.Unlock(ctx))
	at, ok := <-got
	require.True(t, ok)
	t.Logf("the waiter had it %v after the call of Unlock", at.Sub(from))
	require.Less(t, at.Sub(from), fallback+prompt)
	require.NoError(t, top.Await(ctx))
}
