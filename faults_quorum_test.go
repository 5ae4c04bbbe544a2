package holdfast_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rlock"
)

// three are three servers, and a lock on each by a client of its own.
type three struct {
	servers []*redistest.Server
	proxies []*faultproxy.Proxy
	locks   []rlock.Locker
	quorum  *rlock.QuorumLock
}

func newThree(t *testing.T, opts ...holdfast.Option) *three {
	f := &three{}
	for range 3 {
		srv := redistest.Start(t)
		p, c := connectVia(t, srv, readTimeout(500*time.Millisecond), opts...)
		f.servers, f.proxies = append(f.servers, srv), append(f.proxies, p)
		f.locks = append(f.locks, c.Lock("quorum"))
	}
	f.quorum = rlock.Quorum(f.locks...)
	return f
}

// One server of three that is down, stopped or slow doesn't matter.
func TestQuorumWithoutOneServer(t *testing.T) {
	t.Parallel() // servers of its own, and mostly waiting
	for what, fault := range map[string]struct {
		make, mend func(f *three)
	}{
		"down":    {func(f *three) { f.servers[1].Kill() }, func(f *three) { f.servers[1].Restart() }},
		"stopped": {func(f *three) { f.servers[1].Pause() }, func(f *three) { f.servers[1].Resume() }},
		"slow": {
			func(f *three) { f.proxies[1].SetLatency(2*time.Second, 2*time.Second) },
			func(f *three) { f.proxies[1].SetLatency(0, 0) },
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := newThree(t, holdfast.WithLease(time.Minute))
			fault.make(f)
			for range 3 {
				start := time.Now()
				h, err := f.quorum.Lock(t.Context())
				require.NoError(t, err)
				require.Equal(t, "quorum", h.Name())
				_, err = f.quorum.TryLock(t.Context())
				require.ErrorIs(t, err, holdfast.ErrNotAcquired)
				require.NotErrorIs(t, err, holdfast.ErrUnavailable)
				held, err := f.quorum.IsHeld(h.Context())
				require.NoError(t, err)
				require.True(t, held)
				require.NoError(t, h.Context().Err())
				require.NoError(t, h.Unlock(t.Context()))
				require.Less(t, time.Since(start), prompt)
			}
			fault.mend(f)
			for _, i := range []int{0, 2} {
				requireNoKeys(t, f.servers[i].Client(t), "quorum")
			}
			eventually(t, "what was sent to the third is undone, too", func() bool {
				return len(leftKeys(t, f.servers[1].Client(t), "quorum")) == 0
			})
		})
	}
}

// Without a majority of servers nobody has it; that isn't the same as taken.
func TestQuorumWithoutMajority(t *testing.T) {
	t.Parallel() // servers of its own, and mostly waiting
	for what, fault := range map[string]func(s *redistest.Server){
		"down": (*redistest.Server).Kill, "stopped": (*redistest.Server).Pause,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := newThree(t, holdfast.WithLease(time.Minute))
			h, err := f.quorum.Lock(t.Context())
			require.NoError(t, err)
			fault(f.servers[0])
			fault(f.servers[1])
			for _, wait := range []time.Duration{0, 300 * time.Millisecond} {
				_, err := f.quorum.TryLock(t.Context(), holdfast.Wait(wait))
				require.ErrorIs(t, err, holdfast.ErrUnavailable)
				require.NotErrorIs(t, err, holdfast.ErrNotAcquired)
			}
			_, err = f.quorum.IsLocked(t.Context())
			require.ErrorIs(t, err, holdfast.ErrUnavailable)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_, err = f.quorum.Lock(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorIs(t, err, holdfast.ErrUnavailable)
			require.NotErrorIs(t, err, holdfast.ErrNotAcquired)
			require.Error(t, h.Unlock(t.Context()))
			if what == "stopped" {
				f.servers[0].Resume()
				f.servers[1].Resume()
			}
			requireNoKeys(t, f.servers[2].Client(t), "quorum")
		})
	}
}

// A hold is lost with its majority, not before.
func TestQuorumIsLostWithItsMajority(t *testing.T) {
	t.Parallel() // servers of its own, and mostly waiting
	const lease = 3 * time.Second
	f := newThree(t, holdfast.WithLease(lease))
	h, err := f.quorum.Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, f.servers[0].Client(t).Del(t.Context(), "quorum").Err())
	eventually(t, "the first member is given up", func() bool {
		held, err := f.locks[0].IsHeld(h.Context())
		return err == nil && !held
	})
	throughout(t, lease, "lost with a majority left", func() bool { return h.Context().Err() == nil && !h.ExpiresAt().IsZero() })
	require.NoError(t, f.servers[2].Client(t).Del(t.Context(), "quorum").Err())
	locktest.RequireLost(t, h)
	requireNoKeys(t, f.servers[1].Client(t), "quorum")
}

// Members that would fail together are no quorum.
func TestQuorumInvalid(t *testing.T) {
	c, sibling := connect(t), newClient(t, server.Client(t, func(o *redis.Options) { o.DB = 1 }))
	n := t.Name()
	for what, ls := range map[string][]rlock.Locker{
		"none": {}, "nil": {c.Lock(n), nil}, "one client": {c.Lock(n), c.Lock(n + "2")}, "one server": {c.Lock(n), sibling.Lock(n)},
		"bad name": {c.Lock("a{")}, "one twice": {alone{c.Lock(n)}, alone{c.Lock(n)}},
	} {
		if what == "one twice" {
			ls[1] = ls[0]
		}
		_, err := rlock.Quorum(ls...).Lock(t.Context())
		require.ErrorIs(t, err, holdfast.ErrInvalid, what)
		require.ErrorIs(t, rlock.Quorum(ls...).Unlock(holdfast.WithOwner(t.Context())), holdfast.ErrInvalid, what)
	}
	require.Empty(t, leftKeys(t, server.Client(t), n))
}
