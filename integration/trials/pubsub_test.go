package trials

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// fallback is the default of WithPollFallback.
const fallback = 5 * time.Second

// handOffs has two clients give a lock to and fro, on several names at once, and
// answers how long each took: from the call of Unlock to the other's grant.
func handOffs(tb testing.TB, srv *redistest.Server, names, each int) (all spread) {
	ctx := context.Background()
	clients := []*party{newParty(tb, srv.Client(tb)), newParty(tb, srv.Client(tb))}
	defer leaveAll(clients...)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for n := range names {
		name := fmt.Sprint("handed-", n)
		wg.Go(func() {
			h, err := clients[0].Lock(name).Lock(ctx)
			if err != nil {
				tb.Error(err)
				return
			}
			for i := range each {
				next := clients[(i+1)%2].Lock(name)
				type grant struct {
					hold *holdfast.Hold
					at   time.Time
				}
				granted := make(chan grant, 1)
				go func() {
					limit, cancel := context.WithTimeout(ctx, hang)
					defer cancel()
					h, err := next.Lock(limit)
					if err != nil {
						tb.Error("a hand-off that never came: ", err)
					}
					granted <- grant{h, time.Now()}
				}()
				pause(rand.N(30 * time.Millisecond)) // waiting or not yet
				from := time.Now()
				if err := h.Unlock(ctx); err != nil {
					tb.Error(err)
				}
				g := <-granted
				if g.hold == nil {
					return
				}
				h = g.hold
				mu.Lock()
				all = append(all, g.at.Sub(from))
				mu.Unlock()
			}
			if err := h.Unlock(ctx); err != nil {
				tb.Error(err)
			}
		})
	}
	wg.Wait()
	return all
}

// killPubSub ends all pub/sub connections of a server, again and again, and
// answers how many by then.
func killPubSub(tb testing.TB, srv *redistest.Server, every time.Duration) (stop func() int64) {
	admin := srv.Client(tb)
	over, done := make(chan struct{}), make(chan struct{})
	var killed int64
	go func() {
		defer close(done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				n, err := admin.ClientKillByFilter(context.Background(), "type", "pubsub").Result()
				if err != nil {
					tb.Error(err)
					return
				}
				killed += n
			case <-over:
				return
			}
		}
	}()
	return func() int64 { close(over); <-done; return killed }
}

// However often the connections die that tell of releases, each waiter gets in.
func TestHandOffsWhilePubSubDies(t *testing.T) {
	srv := redistest.Start(t)
	stop := killPubSub(t, srv, 100*time.Millisecond)
	took := handOffs(t, srv, 4, 25)
	t.Logf("%d connections killed; hand-offs: median %v, longest %v", stop(), took.median(), took.max())
	require.Len(t, took, 100)
}

// Bar: pub/sub connections killed every 100 ms, 1000 hand-offs: every one done,
// none takes longer than the fallback poll.
func BenchmarkPubSubKilled1000(b *testing.B) {
	const names, each = 2, 500
	for b.Loop() {
		srv := redistest.Start(b)
		stop := killPubSub(b, srv, 100*time.Millisecond)
		took := handOffs(b, srv, names, each)
		b.ReportMetric(float64(stop()), "connections_killed")
		b.ReportMetric(float64(len(took)), "hand-offs")
		b.ReportMetric(ms(took.at(0.99)), "ms_hand-off_p99")
		took.report(b, "hand-off")
		if len(took) != names*each || took.max() > fallback {
			b.Errorf("%d of %d hand-offs, the longest took %v", len(took), names*each, took.max())
		}
	}
	b.ReportMetric(0, "ns/op")
}
