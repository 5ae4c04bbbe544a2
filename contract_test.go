package holdfast_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/rlock"
)

func TestContract(t *testing.T) {
	for name, opts := range map[string][]rlock.LockOption{
		"Lock":         nil,
		"NonReentrant": {rlock.NonReentrant()},
	} {
		t.Run(name, func(t *testing.T) {
			clients := make(map[rlock.Locker]*holdfast.Client)
			locktest.Run(t, locktest.Kind{
				Redis:        server.Client(t),
				NonReentrant: opts != nil,
				New: func(t *testing.T, lease time.Duration) func(string) rlock.Locker {
					c := connect(t, holdfast.WithLease(lease))
					return func(name string) rlock.Locker {
						l := c.Lock(name, opts...)
						clients[l] = c
						return l
					}
				},
				Resume: func(l rlock.Locker, ctx context.Context, handle string) (*rlock.Hold, error) {
					return clients[l].Resume(ctx, handle)
				},
			})
		})
	}
}
