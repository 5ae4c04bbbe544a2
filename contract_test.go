package holdfast_test

import (
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
			locktest.Run(t, locktest.Kind{
				Redis:        server.Client(t),
				NonReentrant: opts != nil,
				New: func(t *testing.T, lease time.Duration) func(string) rlock.Locker {
					c := connect(t, holdfast.WithLease(lease))
					return func(name string) rlock.Locker { return c.Lock(name, opts...) }
				},
			})
		})
	}
}
