package trials

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

const (
	// restartLease is the lease of those who hold when the server dies.
	restartLease = 3 * time.Second
	// goesOn is how soon work has to go on after the servers do.
	goesOn = 2 * time.Second
)

// restarted is what came of one restart.
type restarted struct {
	proceeded spread // from the server's first answer to each waiter's grant
	told      spread // to the end of each old holder's context
}

// restart has each of several names held and waited for by every client, kills the
// server and starts it again, empty, and waits until all have had their turn and
// all old holders know.
func restart(tb testing.TB, srv *redistest.Server, clients []*party, names int, down time.Duration) (r restarted) {
	ctx := context.Background()
	waiting, cancel := context.WithTimeout(ctx, hang)
	defer cancel()
	var old []*holdfast.Hold
	type event struct {
		at   time.Time
		told bool
	}
	waiters := names * len(clients)
	events := make(chan event, names+waiters)
	var wg sync.WaitGroup
	for n := range names {
		name := fmt.Sprint("restarted-", n)
		h, err := clients[n%len(clients)].Lock(name).Lock(ctx)
		require.NoError(tb, err)
		old = append(old, h)
		wg.Go(func() {
			<-h.Context().Done()
			events <- event{time.Now(), true}
		})
		for _, c := range clients {
			wg.Go(func() {
				h, err := c.Lock(name).Lock(waiting)
				if err != nil {
					tb.Errorf("a waiter was left behind: %v", err)
					return
				}
				events <- event{time.Now(), false}
				if err := h.Unlock(ctx); err != nil {
					tb.Errorf("a new hold was lost: %v", err)
				}
			})
		}
	}
	admin := srv.Client(tb)
	eventually(tb, prompt, "all wait", func() bool {
		chans, err := admin.PubSubChannels(ctx, "*restarted-*").Result()
		return err == nil && len(chans) == names
	})
	require.NoError(tb, admin.Close())
	srv.Kill()
	pause(down)
	srv.Restart()
	up := time.Now()
	wg.Wait()
	close(events)
	for e := range events {
		if e.told {
			r.told = append(r.told, e.at.Sub(up))
		} else {
			r.proceeded = append(r.proceeded, e.at.Sub(up))
		}
	}
	for _, h := range old {
		if err := h.Unlock(ctx); err == nil {
			tb.Error("an old holder gave back what it had lost")
		}
	}
	return r
}

// A server that comes back empty lets all waiters in, and old holders are told.
func TestServerRestartedEmpty(t *testing.T) {
	srv := redistest.Start(t)
	var clients []*party
	for range 4 {
		clients = append(clients, newParty(t, srv.Client(t), holdfast.WithLease(restartLease)))
	}
	defer leaveAll(clients...)
	for range 2 {
		r := restart(t, srv, clients, 5, 200*time.Millisecond)
		t.Logf("waiters proceed after %v to %v, old holders are told until %v", r.proceeded.min(), r.proceeded.max(), r.told.max())
	}
}

// Bar: the server is killed and restarted empty, 20 times, with 200 waiters: all
// proceed within 2 s of the restart; old holders are told.
func BenchmarkRestart20(b *testing.B) {
	const times, names, parties = 20, 50, 4
	for b.Loop() {
		srv := redistest.Start(b)
		var clients []*party
		for range parties {
			clients = append(clients, newParty(b, srv.Client(b), holdfast.WithLease(restartLease)))
		}
		var proceeded, told spread
		for i := range times {
			// From a blink to longer than a lease.
			r := restart(b, srv, clients, names, time.Duration(i)*restartLease/10)
			proceeded, told = append(proceeded, r.proceeded...), append(told, r.told...)
		}
		leaveAll(clients...)
		b.ReportMetric(float64(len(proceeded))/times, "waiters")
		proceeded.report(b, "until_a_waiter_proceeds")
		told.report(b, "until_a_holder_is_told")
		if len(proceeded) != times*names*parties || proceeded.max() > goesOn {
			b.Errorf("%d of %d waiters proceeded, the last one after %v", len(proceeded), times*names*parties, proceeded.max())
		}
	}
	b.ReportMetric(0, "ns/op")
}
