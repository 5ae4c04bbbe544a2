package suites

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/internal/scenario"
	"github.com/holdfast-go/holdfast/integration/internal/topology"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/rlock"
)

// quiet is a time to be taken for dead that is long enough for a busy machine, in
// tests where nothing dies.
const quiet = 5 * time.Second

func start(t *testing.T, kind topology.Kind) (*topology.Topology, scenario.Place) {
	t.Helper()
	top := topology.Run(t, kind, topology.Options{DownAfter: quiet})
	return top, scenario.On(top)
}

func TestTopologies(t *testing.T) {
	for _, kind := range topology.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			top, p := start(t, kind)
			t.Run("side by side", func(t *testing.T) {
				for _, l := range scenario.Locks() {
					t.Run("Contract"+l.Name, func(t *testing.T) { t.Parallel(); p.Contract(t, l) })
				}
				for _, l := range scenario.Locks() {
					switch l.Name {
					case "Lock", "FairLock", "FencedLock", "ReadLock", "WriteLock":
						t.Run("Faults"+l.Name, func(t *testing.T) { t.Parallel(); p.Faults(t, l) })
					}
				}
				t.Run("Smoke", func(t *testing.T) { t.Parallel(); p.Smoke(t) })
				t.Run("A15Stopped", func(t *testing.T) { t.Parallel(); p.Stopped(t) })
				t.Run("A18A19PermitsCountOnce", func(t *testing.T) { t.Parallel(); p.PermitsCountOnce(t) })
				t.Run("A33CancelledAcquiresEatNoPermit", func(t *testing.T) { t.Parallel(); p.CancelledAcquiresEatNoPermit(t) })
				t.Run("A36MultiInterruptedHalfWay", func(t *testing.T) { t.Parallel(); p.MultiInterruptedHalfWay(t) })
				if kind == topology.Cluster {
					t.Run("A17ThousandsOfHolds", func(t *testing.T) { t.Parallel(); p.ThousandsOfHolds(t, 2000) })
					t.Run("A45SlotMovesPlain", func(t *testing.T) { t.Parallel(); scenario.SlotMovesWhileSomeoneWaits(t, top, holdfast.Off) })
					t.Run("A45SlotMovesSharded", func(t *testing.T) { t.Parallel(); scenario.SlotMovesWhileSomeoneWaits(t, top, holdfast.On) })
				}
			})
			// These are alone with the servers.
			if kind == topology.Cluster {
				t.Run("A43ScriptsAreFlushed", func(t *testing.T) { scenario.ScriptsAreFlushed(t, top) })
				t.Run("A44NamesOfAllKinds", func(t *testing.T) { p.NamesOfAllKinds(t) })
			}
			t.Run("A15Evicted", func(t *testing.T) { p.Evicted(t) })
		})
	}
}

// A quorum of servers that are run in different ways. It gives each a part of the
// lease to answer, so nothing runs beside it.
func TestContractQuorum(t *testing.T) {
	var ps []scenario.Place
	var rdbs []redis.UniversalClient
	for _, kind := range []topology.Kind{topology.Single, topology.Sentinel, topology.Cluster} {
		_, p := start(t, kind)
		ps = append(ps, p)
		rdbs = append(rdbs, p.Redis(t))
	}
	locktest.Run(t, locktest.Kind{
		Redis: rdbs[0], More: rdbs[1:],
		Splits: true, NoHandOver: true,
		New: func(t *testing.T, lease time.Duration) func(string) rlock.Locker {
			var cs []*holdfast.Client
			for _, p := range ps {
				cs = append(cs, p.With(t, locktest.Link{Lease: lease}))
			}
			return func(name string) rlock.Locker {
				return rlock.Quorum(cs[0].Lock(name), cs[1].Lock(name), cs[2].Lock(name))
			}
		},
	})
}
