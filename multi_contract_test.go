package holdfast_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rlock"
)

// alone hides what a lock is, as a type of the user's own around it does: a multi
// lock asks it through its methods.
type alone struct{ rlock.Locker }

func TestContractMultiLock(t *testing.T) {
	plain := func(c *holdfast.Client, name string) rlock.Locker { return c.Lock(name) }
	for name, members := range map[string]func(c *holdfast.Client, name string) []rlock.Locker{
		"OneCall": func(c *holdfast.Client, name string) []rlock.Locker {
			return []rlock.Locker{plain(c, name), plain(c, name+":2"), plain(c, name+":3")}
		},
		"OneByOne": func(c *holdfast.Client, name string) []rlock.Locker {
			return []rlock.Locker{alone{plain(c, name)}, alone{plain(c, name+":2")}}
		},
		"Mixed": func(c *holdfast.Client, name string) []rlock.Locker {
			return []rlock.Locker{plain(c, name+":0"), alone{plain(c, name)}, plain(c, name+":2"), c.MultiLock(plain(c, name+":3"), plain(c, name+":4"))}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clients := make(map[rlock.Locker]*holdfast.Client)
			locktest.Run(t, locktest.Kind{
				Redis: server.Client(t),
				New: func(t *testing.T, lease time.Duration) func(string) rlock.Locker {
					c := connect(t, holdfast.WithLease(lease))
					return func(name string) rlock.Locker {
						l := c.MultiLock(members(c, name)...)
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

func TestContractQuorum(t *testing.T) {
	servers := []*redistest.Server{server, redistest.Start(t), redistest.Start(t)}
	locktest.Run(t, locktest.Kind{
		Redis:      server.Client(t),
		More:       []redis.UniversalClient{servers[1].Client(t), servers[2].Client(t)},
		Splits:     true,
		NoHandOver: true,
		New: func(t *testing.T, lease time.Duration) func(string) rlock.Locker {
			var cs []*holdfast.Client
			for _, s := range servers {
				cs = append(cs, newClient(t, s.Client(t), holdfast.WithLease(lease)))
			}
			return func(name string) rlock.Locker {
				return rlock.Quorum(cs[0].Lock(name), cs[1].Lock(name), cs[2].Lock(name))
			}
		},
	})
}
