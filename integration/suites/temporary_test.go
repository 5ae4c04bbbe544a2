package suites

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/internal/scenario"
	"github.com/holdfast-go/holdfast/integration/internal/topology"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/keys"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rlimiter"
)

// refusals are what servers answer for a while: none has run anything.
var refusals = map[string]string{
	"CLUSTERDOWN": "CLUSTERDOWN The cluster is down",
	"TRYAGAIN":    "TRYAGAIN Multiple keys request during rehashing of slot",
	"READONLY":    "READONLY You can't write against a read only replica.",
	"LOADING":     "LOADING Redis is loading the dataset in memory",
	"BUSY":        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
	"MASTERDOWN":  "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
}

// While a server answers so, no caller hears of it who has the time to wait, holds
// go on, and nothing happens twice.
func TestTemporaryRefusals(t *testing.T) {
	t.Parallel()
	for _, kind := range []topology.Kind{topology.Single, topology.Cluster} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			_, p := start(t, kind)
			for what, text := range refusals {
				t.Run(what, func(t *testing.T) { t.Parallel(); temporarily(t, p, text) })
			}
		})
	}
}

// A redirection to a node that is the right one, or that sends back, is followed
// until it leads somewhere.
func TestRedirections(t *testing.T) {
	t.Parallel()
	top, p := start(t, topology.Cluster)
	name := keyOf(t)
	owner, err := top.Owner(t.Context(), name)
	require.NoError(t, err)
	masters, err := top.Masters(t.Context())
	require.NoError(t, err)
	wrong := masters[0]
	if wrong == owner {
		wrong = masters[1]
	}
	slot := strconv.Itoa(keys.Slot(name))
	for what, text := range map[string]string{
		"MOVED":       "MOVED " + slot + " " + owner.Addr(),
		"MOVED wrong": "MOVED " + slot + " " + wrong.Addr(),
		"ASK":         "ASK " + slot + " " + owner.Addr(),
		"ASK wrong":   "ASK " + slot + " " + wrong.Addr(),
	} {
		t.Run(what, func(t *testing.T) { t.Parallel(); temporarily(t, p, text) })
	}
}

// temporarily has the servers answer every script with an error for some time,
// while a hold is to be renewed and others ask.
func temporarily(t *testing.T, p scenario.Place, text string) {
	const (
		lease = 5 * time.Second
		lasts = 2 * time.Second // longer than a renewal is off, shorter than a call's patience
	)
	c := p.Via(t, locktest.Link{Lease: lease})
	name := keyOf(t)
	held, err := c.Lock("{" + name + "}held").Lock(t.Context())
	require.NoError(t, err)
	leaving, err := c.Lock("{" + name + "}leaving").Lock(t.Context())
	require.NoError(t, err)
	sem, limiter := c.Semaphore("{"+name+"}s"), c.RateLimiter("{"+name+"}r")
	_, err = sem.TrySetPermits(t.Context(), 3)
	require.NoError(t, err)
	require.NoError(t, limiter.SetRate(t.Context(), rlimiter.Overall, 3, time.Hour))

	faults := c.Add(faultproxy.Rule{Match: faultproxy.Cmd("evalsha", "eval"), Do: faultproxy.Refusal(text)})
	results := make(chan error, 8)
	calls := []func(ctx context.Context) error{
		func(ctx context.Context) error {
			h, err := c.Lock("{" + name + "}new").Lock(ctx)
			if err != nil {
				return err
			}
			return h.Unlock(ctx)
		},
		func(ctx context.Context) error {
			h, err := c.Lock("{"+name+"}other").TryLock(ctx, holdfast.Wait(time.Minute))
			if err != nil {
				return err
			}
			return h.Unlock(ctx)
		},
		leaving.Unlock,
		func(ctx context.Context) error { return sem.Acquire(ctx, 1) },
		func(ctx context.Context) error { return limiter.Acquire(ctx, 1) },
	}
	for _, call := range calls {
		go func() { results <- call(t.Context()) }()
	}
	hits := func() (n int) {
		for _, f := range faults {
			n += f.Hits()
		}
		return n
	}
	redistest.Eventually(t, time.Minute, func() bool { return hits() >= len(calls) }, "the fault isn't made")
	<-time.After(lasts) // a renewal falls into it
	select {
	case err := <-results:
		t.Fatal("a call has ended: ", err)
	default:
	}
	for _, f := range faults {
		f.Remove()
	}
	for range calls {
		select {
		case err := <-results:
			require.NoError(t, err)
		case <-time.After(time.Minute):
			t.Fatal("a call doesn't end")
		}
	}
	<-time.After(lease - lasts) // the lease would be over by now
	require.NoError(t, held.Context().Err(), "the hold wasn't renewed")
	require.NoError(t, held.Unlock(t.Context()))
	n, err := sem.Available(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
	n, err = limiter.Available(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
}

// The real thing: a script of somebody else that doesn't end, and a master that
// turns replica.
func TestServersThatAreBusyOrReadOnly(t *testing.T) {
	t.Parallel()
	top := topology.Run(t, topology.Single, topology.Options{Args: []string{"--lua-time-limit", "50"}})
	p := scenario.On(top)
	admin := top.Nodes()[0].Admin()
	c := p.With(t, locktest.Link{Lease: 5 * time.Second})
	held, err := c.Lock("held").Lock(t.Context())
	require.NoError(t, err)
	grant := func() <-chan error {
		got := make(chan error, 1)
		go func() { got <- c.Lock("new").Do(t.Context(), func(context.Context) error { return nil }) }()
		return got
	}

	endless := p.Redis(t, func(o *topology.ClientOptions) { o.ReadTimeout, o.MaxRetries = time.Minute, -1 })
	ended := make(chan error, 1)
	go func() { ended <- endless.Eval(t.Context(), "while true do end", nil).Err() }()
	redistest.Eventually(t, time.Minute, func() bool {
		err := admin.Ping(t.Context()).Err()
		return err != nil && strings.HasPrefix(err.Error(), "BUSY")
	}, "it isn't busy")
	got := grant()
	<-time.After(500 * time.Millisecond)
	require.NoError(t, admin.ScriptKill(t.Context()).Err())
	require.Error(t, <-ended)
	require.NoError(t, <-got)

	require.NoError(t, admin.Do(t.Context(), "replicaof", "127.0.0.1", "1").Err())
	got = grant()
	<-time.After(500 * time.Millisecond)
	select {
	case err := <-got:
		t.Fatal("it has ended: ", err)
	default:
	}
	require.NoError(t, admin.Do(t.Context(), "replicaof", "no", "one").Err())
	require.NoError(t, <-got)
	require.NoError(t, held.Context().Err())
	require.NoError(t, held.Unlock(t.Context()))

	// Who has no time is told what it was.
	require.NoError(t, admin.Do(t.Context(), "replicaof", "127.0.0.1", "1").Err())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err = c.Lock("new").Lock(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, holdfast.ErrUnavailable)
	require.False(t, errors.Is(err, holdfast.ErrNotAcquired))
	require.NoError(t, admin.Do(t.Context(), "replicaof", "no", "one").Err())
}

// A cluster that is down while a majority of its masters is gone, and up again.
func TestClusterThatWasDown(t *testing.T) {
	t.Parallel()
	top := topology.Run(t, topology.Cluster, topology.Options{DownAfter: time.Second, Durable: true})
	p := scenario.On(top)
	c := p.With(t, locktest.Link{Lease: time.Minute})
	masters, err := top.Masters(t.Context())
	require.NoError(t, err)
	held, err := c.Lock("held").Lock(t.Context())
	require.NoError(t, err)
	owner, err := top.Owner(t.Context(), "held")
	require.NoError(t, err)
	var killed []*topology.Node
	for _, m := range masters {
		if m != owner {
			m.Kill()
			killed = append(killed, m)
		}
	}
	redistest.Eventually(t, time.Minute, func() bool {
		info, err := owner.Admin().ClusterInfo(t.Context()).Result()
		return err == nil && strings.Contains(info, "cluster_state:fail")
	}, "the cluster isn't down")
	got := make(chan error, 1)
	go func() { got <- held.Extend(t.Context(), 2*time.Minute) }()
	acquired := make(chan error, 1)
	go func() { acquired <- c.Lock("{held}2").Do(t.Context(), func(context.Context) error { return nil }) }()
	<-time.After(500 * time.Millisecond)
	for _, m := range killed {
		require.NoError(t, m.Restart())
	}
	for _, result := range []chan error{got, acquired} {
		select {
		case err := <-result:
			require.NoError(t, err)
		case <-time.After(time.Minute):
			t.Fatal("a call doesn't end")
		}
	}
	require.NoError(t, held.Context().Err())
	require.NoError(t, held.Unlock(t.Context()))
}

// keyOf is a name of the test without what a hash tag can't have in it.
func keyOf(t *testing.T) string { return strings.NewReplacer("/", "-", " ", "-").Replace(t.Name()) }
