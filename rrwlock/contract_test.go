package rrwlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/rrwlock"
)

// connect makes a client on the shared server, closed with the test.
func connect(t testing.TB, opts ...holdfast.Option) *holdfast.Client {
	t.Helper()
	c, err := holdfast.New(look(t), opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// look answers a plain client on the shared server.
func look(t testing.TB) *redis.Client {
	t.Helper()
	opts, err := redis.ParseURL(rrwlock.URL())
	require.NoError(t, err)
	rdb := redis.NewClient(opts)
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	return rdb
}

func TestContract(t *testing.T) {
	for name, side := range map[string]func(*rrwlock.RWLock) rrwlock.Locker{
		"Read":  (*rrwlock.RWLock).Read,
		"Write": (*rrwlock.RWLock).Write,
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			locks := make(map[rrwlock.Locker]*rrwlock.RWLock)
			clients := make(map[rrwlock.Locker]*holdfast.Client)
			k := locktest.Kind{
				Redis: look(t),
				New: func(t *testing.T, lease time.Duration) func(string) rrwlock.Locker {
					c := connect(t, holdfast.WithLease(lease))
					return func(name string) rrwlock.Locker {
						rw := c.RWLock(name)
						l := side(rw)
						mu.Lock()
						defer mu.Unlock()
						locks[l], clients[l] = rw, c
						return l
					}
				},
				Resume: func(l rrwlock.Locker, ctx context.Context, handle string) (*rrwlock.Hold, error) {
					return clients[l].Resume(ctx, handle)
				},
				ReadWrite: true,
			}
			if name == "Read" {
				k.Rival = func(l rrwlock.Locker) rrwlock.Locker { return locks[l].Write() }
			}
			locktest.Run(t, k)
		})
	}
}
