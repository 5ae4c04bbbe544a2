package watchdog_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/task"
	"github.com/holdfast-go/holdfast/watchdog"
)

// printer is a holder that says what it is told.
type printer struct{ told chan struct{} }

func (p printer) LeaseEnded(_ *lease.Lease, why error) {
	fmt.Println(why)
	close(p.told)
}

func (printer) Orphaned() bool { return false }

// A client gives its watchdog a way to renew, and leases to keep. Here the
// first renewal finds that the key is gone.
func ExampleWatchdog() {
	tasks := task.NewGroup()
	w := watchdog.New(watchdog.Config{
		Lease: 60 * time.Millisecond,
		Batch: 100,
		Renew: func(_ context.Context, ls []*lease.Lease) []lease.Result {
			return []lease.Result{{Verdict: lease.Gone}}
		},
		Tasks: tasks,
		Log:   slog.New(slog.DiscardHandler),
	})
	p := printer{make(chan struct{})}
	l := &lease.Lease{Subject: &lease.Subject{Name: "order:42"}, Renew: &lease.Renewal{}, Holder: p}
	l.Extend(time.Now(), time.Minute)
	w.Keep(l)
	<-p.told
	tasks.Stop()
	tasks.Wait()
	fmt.Println("kept:", w.Len())
	// Output:
	// holdfast: hold lost: "order:42": the key is gone or belongs to another owner
	// kept: 0
}
