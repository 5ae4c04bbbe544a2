package topology_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/integration/internal/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// within bounds what a test does to servers.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestEveryKindServesAndRestarts(t *testing.T) {
	for _, kind := range topology.Kinds() {
		for _, durable := range []bool{false, true} {
			t.Run(string(kind)+"/durable="+strconv.FormatBool(durable), func(t *testing.T) {
				t.Parallel()
				ctx := within(t, time.Minute)
				dir := t.TempDir()
				top, err := topology.Start(ctx, kind, topology.Options{Dir: dir, Durable: durable, Password: "s3cret"})
				require.NoError(t, err)
				defer func() {
					require.NoError(t, top.Close())
					logs, err := filepath.Glob(filepath.Join(dir, "*", "server.log"))
					require.NoError(t, err)
					require.Len(t, logs, len(top.Nodes())+len(top.Sentinels()))
					data, err := filepath.Glob(filepath.Join(dir, "*", "append*"))
					require.NoError(t, err)
					require.Empty(t, data)
				}()
				proxies, err := top.Proxies()
				require.NoError(t, err)
				defer proxies.Close()
				text, err := json.Marshal(proxies.Endpoint())
				require.NoError(t, err)
				var e topology.Endpoint
				require.NoError(t, json.Unmarshal(text, &e))
				rdb := e.Client()
				defer rdb.Close()
				for i := range 20 {
					require.NoError(t, rdb.Set(ctx, "k"+strconv.Itoa(i), i, 0).Err())
				}
				conns := 0
				for _, p := range proxies.All() {
					conns += p.Conns()
				}
				require.NotZero(t, conns, "nothing goes through the proxies")

				m, err := top.Owner(ctx, "k1")
				require.NoError(t, err)
				require.EqualValues(t, 1, m.Admin().Exists(ctx, "k1").Val())
				if kind == topology.Single {
					require.NoError(t, m.Restart())
					want := "1"
					if !durable {
						want = ""
					}
					require.Equal(t, want, m.Admin().Get(ctx, "k1").Val())
					require.NoError(t, m.RestartEmpty())
					require.Empty(t, m.Admin().Get(ctx, "k1").Val())
				}
			})
		}
	}
}

func TestFailovers(t *testing.T) {
	for _, kind := range []topology.Kind{topology.Sentinel, topology.Cluster} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			ctx := within(t, 2*time.Minute)
			top := topology.Run(t, kind, topology.Options{DownAfter: time.Second})
			rdb := top.Client()
			defer rdb.Close()
			old, err := top.Owner(ctx, "k")
			require.NoError(t, err)
			replicas, err := top.Replicas(ctx, old)
			require.NoError(t, err)
			pipe := old.Admin().Pipeline() // WAIT is for the writes of its own connection
			pipe.Set(ctx, "k", "v", 0)
			have := pipe.Do(ctx, "wait", len(replicas), 30000)
			_, err = pipe.Exec(ctx)
			require.NoError(t, err)
			require.EqualValues(t, len(replicas), have.Val())

			next, err := top.Failover(ctx, old)
			require.NoError(t, err)
			require.NotEqual(t, old.Name(), next.Name())
			require.NoError(t, top.Await(ctx))
			require.Equal(t, "v", next.Admin().Get(ctx, "k").Val())
			replicas, err = top.Replicas(ctx, next)
			require.NoError(t, err)
			require.NotEmpty(t, replicas)

			// On a busy machine servers may take each other for dead at any time: so
			// who is the master is asked anew.
			old, err = top.AwaitMaster(ctx, "k", nil)
			require.NoError(t, err)
			old.Kill()
			next, err = top.AwaitMaster(ctx, "k", old)
			require.NoError(t, err)
			require.NotEqual(t, old.Name(), next.Name())
			require.NoError(t, old.Restart())
			require.NoError(t, top.Await(ctx))

			// Who doesn't answer is replaced, and finds its place when it does again.
			old, err = top.AwaitMaster(ctx, "k", nil)
			require.NoError(t, err)
			require.NoError(t, old.Pause())
			_, err = top.AwaitMaster(ctx, "k", old)
			require.NoError(t, err)
			require.NoError(t, old.Resume())
			require.NoError(t, top.Await(ctx))
		})
	}
}

func TestSlotsMove(t *testing.T) {
	ctx := within(t, time.Minute)
	top := topology.Run(t, topology.Cluster, topology.Options{Password: "s3cret"})
	rdb := top.Client()
	defer rdb.Close()
	for i := range 100 {
		require.NoError(t, rdb.Set(ctx, strconv.Itoa(i), i, 0).Err())
	}
	to := top.Nodes()[0]
	open := 0
	require.NoError(t, top.MoveSlots(ctx, 5400, 5500, to, func() { open++ }))
	require.Equal(t, 101-61, open, "5400-5460 are its own")
	for _, slot := range []int{5400, 5461, 5500} {
		owner, err := top.OwnerOf(ctx, slot)
		require.NoError(t, err)
		require.Equal(t, to.Name(), owner.Name())
	}
	require.NoError(t, top.Await(ctx))
	for i := range 100 {
		require.Equal(t, strconv.Itoa(i), rdb.Get(ctx, strconv.Itoa(i)).Val())
	}
	masters, err := top.Masters(ctx)
	require.NoError(t, err)
	require.Len(t, masters, 3)
}

func TestWhatCannotStartIsAnError(t *testing.T) {
	_, err := topology.Start(t.Context(), "ring", topology.Options{})
	require.ErrorContains(t, err, "ring")
	_, err = topology.ParseKind("ring")
	require.Error(t, err)
	_, err = topology.Start(t.Context(), topology.Single, topology.Options{Binary: "/no/such/server"})
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = topology.Start(t.Context(), topology.Single, topology.Options{Args: []string{"--no-such-option", "1"}})
	require.ErrorContains(t, err, "no-such-option")
}
