package scenario

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

const (
	prompt = 10 * time.Second // generous: what is asserted is order, not speed
	never  = 10 * time.Minute
)

// Evicted is A15 for a server that runs out of memory: all holds go, and their
// holders learn of it by the next renewal. It needs servers of its own.
func (p Place) Evicted(t *testing.T) {
	const lease = 3 * time.Second
	rdb := p.Redis(t)
	configure := func(key, value string) {
		t.Helper()
		require.NoError(t, redistest.EachMaster(t.Context(), rdb, func(ctx context.Context, m redis.UniversalClient) error {
			return m.ConfigSet(ctx, key, value).Err()
		}))
	}
	configure("maxmemory-policy", "volatile-lru")
	c := p.With(t, locktest.Link{Lease: lease})
	type held struct {
		kind string
		ends func() time.Time
		ctx  context.Context
		over func(context.Context) error
	}
	var all []held
	for _, l := range Locks() {
		h, err := l.Make(c, t.Name()+l.Name).Lock(t.Context())
		require.NoError(t, err)
		all = append(all, held{l.Name, h.ExpiresAt, h.Context(), h.Unlock})
	}
	redistest.Eventually(t, prompt, func() bool {
		configure("maxmemory", "1")
		keys, err := redistest.Keys(t.Context(), rdb, t.Name())
		n := 0
		for _, k := range keys { // fencing tokens have no expiry
			if ttl, err := rdb.PTTL(t.Context(), k).Result(); err != nil || ttl > 0 {
				n++
			}
		}
		return err == nil && n == 0
	}, "keys are not evicted")
	configure("maxmemory", "0")
	var wg sync.WaitGroup
	for _, h := range all {
		wg.Go(func() {
			select {
			case <-h.ctx.Done():
			case <-time.After(prompt):
				t.Errorf("the holder of %s wasn't told", h.kind)
			}
		})
	}
	wg.Wait()
	for _, h := range all {
		require.ErrorIs(t, context.Cause(h.ctx), holdfast.ErrLost, h.kind)
		require.ErrorIs(t, h.over(t.Context()), holdfast.ErrLost, h.kind)
	}
}
