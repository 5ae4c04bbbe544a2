package bench

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

// Bar: 64 goroutines of one client on one name, 2000 acquisitions: at most 3
// commands each, all served, one at a time.
func BenchmarkContended64(b *testing.B) {
	const goroutines, acquisitions = 64, 2000
	s := newSide(b, server.Options())
	l := s.Lock("contended")
	for b.Loop() {
		s.commands.Reset()
		var wg sync.WaitGroup
		inside, served := 0, 0 // guarded by the lock
		todo := make(chan struct{}, acquisitions)
		for range acquisitions {
			todo <- struct{}{}
		}
		close(todo)
		start := time.Now()
		for range goroutines {
			wg.Go(func() {
				for range todo {
					h, err := l.Lock(context.Background())
					if err != nil {
						b.Error(err)
						return
					}
					inside++
					if inside != 1 {
						b.Errorf("%d inside", inside)
					}
					inside--
					served++
					if err := h.Unlock(context.Background()); err != nil {
						b.Error(err)
					}
				}
			})
		}
		wg.Wait()
		require.Equal(b, acquisitions, served)
		b.ReportMetric(float64(s.commands.Total())/acquisitions, "commands/acquisition")
		b.ReportMetric(float64(time.Since(start).Microseconds())/acquisitions, "µs/acquisition")
	}
	b.ReportMetric(0, "ns/op")
}

// Bar: 1000 goroutines wait on 1000 names: one pub/sub connection, at most 100
// SUBSCRIBE commands, all woken within a second of the releases.
func BenchmarkWaiters1000(b *testing.B) {
	const names = 1000
	for b.Loop() {
		srv := redistest.Start(b)
		holder, waiter := newSide(b, srv.Options()), newSide(b, srv.Options())
		look := srv.Client(b)
		ctx := context.Background()
		holds := make([]*holdfast.Hold, names)
		for i := range holds {
			h, err := holder.Lock(fmt.Sprint("waiters-", i)).Lock(ctx)
			require.NoError(b, err)
			holds[i] = h
		}
		got := make(chan time.Time, names)
		var wg sync.WaitGroup
		for i := range names {
			wg.Go(func() {
				h, err := waiter.Lock(fmt.Sprint("waiters-", i)).Lock(ctx)
				if err != nil {
					b.Error(err)
					return
				}
				got <- time.Now()
				if err := h.Unlock(ctx); err != nil {
					b.Error(err)
				}
			})
		}
		eventually(b, 20*time.Second, "all subscribed", func() bool {
			chans, err := look.PubSubChannels(ctx, "*waiters-*").Result()
			return err == nil && len(chans) == names
		})
		// Each has to try once more after its confirmation.
		eventually(b, 20*time.Second, "all parked", func() bool {
			return waiter.commands.Count("evalsha") >= 2*names
		})
		list, err := look.Do(ctx, "client", "list", "type", "pubsub").Text()
		require.NoError(b, err)
		lines := 0
		for _, c := range list {
			if c == '\n' {
				lines++
			}
		}
		subscribes := serverCalls(b, look, "subscribe")

		start := time.Now()
		for _, h := range holds {
			require.NoError(b, h.Unlock(ctx))
		}
		released := time.Now()
		wg.Wait()
		close(got)
		var last time.Duration
		for at := range got {
			last = max(last, at.Sub(released))
		}
		b.ReportMetric(float64(lines), "pubsub_connections")
		b.ReportMetric(float64(subscribes), "SUBSCRIBEs")
		b.ReportMetric(float64(released.Sub(start).Milliseconds()), "ms_releasing")
		b.ReportMetric(float64(last.Milliseconds()), "ms_last_woken")
	}
	b.ReportMetric(0, "ns/op")
}
