// Package trials breaks things many times and measures what comes of it: whether
// a holder is told before somebody else gets in, what a failover costs with and
// without replicas that confirm, and how soon work goes on. docs/reliability.md
// holds the figures.
//
// Each trial has two forms. As a test it is short and requires what must hold on
// any machine; as a benchmark it is long, requires its bar and prints what it saw:
//
//	go test -run '^$' -bench . -benchtime 1x -timeout 60m ./integration/trials
package trials

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// server is shared by what doesn't disturb it.
var server *redistest.Server

func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		os.Exit(child(role))
	}
	redis.SetLogger(silent{}) // it tells of every connection that we break
	redistest.Main(m, func(s *redistest.Server) { server = s })
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

const (
	// prompt is how long what happens "at once" may take on a busy machine.
	prompt = 10 * time.Second
	// hang is how long a call may take that only has to end.
	hang = 30 * time.Second
)

// party is a holdfast client on a go-redis client of its own. Parties of a trial
// go before the servers of the next one come.
type party struct {
	*holdfast.Client
	rdb redis.UniversalClient
}

func newParty(tb testing.TB, rdb redis.UniversalClient, opts ...holdfast.Option) *party {
	tb.Helper()
	c, err := holdfast.New(rdb, opts...)
	require.NoError(tb, err)
	p := &party{Client: c, rdb: rdb}
	tb.Cleanup(p.leave)
	return p
}

// leave closes both clients; again, it does nothing.
func (p *party) leave() {
	_ = p.Close()     // what is left to expire is no error
	_ = p.rdb.Close() // closed before, or connections that were broken
}

func leaveAll(parties ...*party) {
	var wg sync.WaitGroup
	for _, p := range parties {
		wg.Go(p.leave)
	}
	wg.Wait()
}

// spread are durations of one kind.
type spread []time.Duration

func (s spread) sorted() spread {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
}

func (s spread) min() time.Duration    { return s.at(0) }
func (s spread) median() time.Duration { return s.at(0.5) }
func (s spread) max() time.Duration    { return s.at(1) }

// at is the value below which a part of the others lies.
func (s spread) at(part float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	return s.sorted()[int(part*float64(len(s)-1))]
}

// report tells a benchmark's reader of s in milliseconds.
func (s spread) report(b *testing.B, what string) {
	b.ReportMetric(ms(s.median()), "ms_"+what+"_median")
	b.ReportMetric(ms(s.max()), "ms_"+what+"_max")
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

// millis is a duration as the tables show it.
func millis(d time.Duration) string {
	if d < 10*time.Millisecond && d > -10*time.Millisecond {
		return fmt.Sprintf("%.1f ms", ms(d))
	}
	return fmt.Sprintf("%.0f ms", ms(d))
}

// printTable prints rows as markdown, the first one as the head.
func printTable(rows [][]string) {
	fmt.Println()
	for i, row := range rows {
		fmt.Println("| " + strings.Join(row, " | ") + " |")
		if i == 0 {
			fmt.Println("|" + strings.Repeat("---|", len(row)))
		}
	}
	fmt.Println()
}

func eventually(tb testing.TB, within time.Duration, what string, cond func() bool) {
	tb.Helper()
	redistest.Eventually(tb, within, cond, "%s", what)
}
