package holdfast_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rlock"
)

// The scenarios that are the same for any lock and on any servers, here for the
// plain lock on a single one; module integration plays them for all kinds, on all.
func TestFaults(t *testing.T) {
	srv := redistest.Start(t)
	locktest.RunFaults(t, locktest.Place{
		Redis: srv.Client(t),
		Quiet: true,
		Connect: func(t *testing.T, l locktest.Link) locktest.Party {
			var opts []holdfast.Option
			if l.Lease > 0 {
				opts = append(opts, holdfast.WithLease(l.Lease))
			}
			if l.Poll > 0 {
				opts = append(opts, holdfast.WithPollFallback(l.Poll))
			}
			p := faultproxy.New(t, srv.Addr())
			rdb := srv.Client(t, func(o *redis.Options) {
				o.Addr = p.Addr()
				o.ReadTimeout = l.Read
				o.PoolSize = 30
			})
			sent := &redistest.CommandCounter{}
			rdb.AddHook(sent)
			c := newClient(t, rdb, opts...)
			t.Cleanup(p.Cut) // before the client's Close, which would sit out a read
			return locktest.Party{
				Lock:    func(name string) rlock.Locker { return c.Lock(name) },
				Proxies: []*faultproxy.Proxy{p},
				Sent:    sent,
			}
		},
		Guard: func(t *testing.T, p locktest.Party) func() {
			before := goroutines(t, p.Lock)
			return func() { requireGoroutines(t, before) }
		},
	})
}
