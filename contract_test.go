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
	for name, lock := range map[string]func(c *holdfast.Client, name string, opts ...rlock.LockOption) rlock.Locker{
		"Lock": func(c *holdfast.Client, name string, opts ...rlock.LockOption) rlock.Locker {
			return c.Lock(name, opts...)
		},
		"FencedLock": func(c *holdfast.Client, name string, opts ...rlock.LockOption) rlock.Locker {
			return c.FencedLock(name, opts...)
		},
		"FairLock": func(c *holdfast.Client, name string, opts ...rlock.LockOption) rlock.Locker {
			return c.FairLock(name, opts...)
		},
		"SpinLock": func(c *holdfast.Client, name string, opts ...rlock.LockOption) rlock.Locker {
			return c.SpinLock(name, nil, opts...)
		},
	} {
		for suffix, opts := range map[string][]rlock.LockOption{"": nil, "NonReentrant": {rlock.NonReentrant()}} {
			t.Run(name+suffix, func(t *testing.T) {
				t.Parallel()
				clients := make(map[rlock.Locker]*holdfast.Client)
				locktest.Run(t, locktest.Kind{
					Redis:        server.Client(t),
					NonReentrant: opts != nil,
					New: func(t *testing.T, lease time.Duration) func(string) rlock.Locker {
						c := connect(t, holdfast.WithLease(lease))
						return func(name string) rlock.Locker {
							l := lock(c, name, opts...)
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
}
