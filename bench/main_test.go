// Package bench measures what holdfast promises: `make bench`. Everything runs
// in one process against one redis-server that the run starts; rival code takes
// turns with ours, round by round, so that a busy machine slows both.
package bench

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

var server *redistest.Server

func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		os.Exit(child(role))
	}
	flag.Parse()
	srv, stop, err := redistest.StartMain()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	server = srv
	code := m.Run()
	stop()
	os.Exit(code)
}

// side is one client with a count of what it sends.
type side struct {
	*holdfast.Client
	rdb      *redis.Client
	commands *redistest.CommandCounter
}

func newSide(b testing.TB, opts *redis.Options, with ...holdfast.Option) *side {
	b.Helper()
	s := &side{rdb: redis.NewClient(opts), commands: &redistest.CommandCounter{}}
	s.rdb.AddHook(s.commands)
	c, err := holdfast.New(s.rdb, with...)
	require.NoError(b, err)
	s.Client = c
	b.Cleanup(func() {
		require.NoError(b, c.Close())
		require.NoError(b, s.rdb.Close())
	})
	return s
}

func median[T cmp.Ordered](xs []T) T {
	s := slices.Clone(xs)
	slices.Sort(s)
	return s[len(s)/2]
}

// allocs is the number of allocations of f.
func allocs(f func()) float64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs - before.Mallocs)
}

// liveHeap is the heap in use after a collection.
func liveHeap() uint64 {
	runtime.GC()
	runtime.GC() // the second one frees what finalizers held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// serverCalls counts top-level commands of a kind that clients can't count in a
// hook: those of subscription connections.
func serverCalls(b testing.TB, rdb *redis.Client, name string) (n int64) {
	b.Helper()
	info, err := rdb.InfoMap(context.Background(), "commandstats").Result()
	require.NoError(b, err)
	for _, section := range info {
		if line, ok := section["cmdstat_"+name]; ok {
			_, err := fmt.Sscanf(line, "calls=%d", &n)
			require.NoError(b, err)
		}
	}
	return n
}

func eventually(b testing.TB, within time.Duration, what string, cond func() bool) {
	b.Helper()
	redistest.Eventually(b, within, cond, "%s", what)
}
