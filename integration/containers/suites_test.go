package containers

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/internal/scenario"
	"github.com/holdfast-go/holdfast/integration/internal/topology"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

const never = 10 * time.Minute

func single(s *server) scenario.Place {
	return scenario.Place{
		Endpoint: topology.Endpoint{Kind: topology.Single, Addrs: []string{s.addr()}},
		Addrs:    []string{s.addr()},
	}
}

func TestSingle(t *testing.T) {
	s := run(t)
	p := single(s)
	t.Run("side by side", func(t *testing.T) {
		t.Run("Contract", func(t *testing.T) { t.Parallel(); p.Contract(t, scenario.Locks()[0]) })
		t.Run("Faults", func(t *testing.T) { t.Parallel(); p.Faults(t, scenario.Locks()[0]) })
		t.Run("Smoke", func(t *testing.T) { t.Parallel(); p.Smoke(t) })
		t.Run("A15Stopped", func(t *testing.T) { t.Parallel(); p.Stopped(t) })
	})
	t.Run("Paused", func(t *testing.T) { paused(t, s) })
	t.Run("StoppedAndKilled", func(t *testing.T) { restarted(t, s) })
}

// While the container stands still calls wait for it, and go on with it; a hold whose
// lease ran out meanwhile is lost.
func paused(t *testing.T, s *server) {
	p := single(s)
	short, long := p.With(t, locktest.Link{Lease: time.Second}), p.With(t, locktest.Link{Lease: never})
	lost, err := short.Lock("paused-short").Lock(t.Context())
	require.NoError(t, err)
	kept, err := long.Lock("paused-long").Lock(t.Context())
	require.NoError(t, err)
	s.pause(t)
	got := make(chan error, 1)
	go func() { got <- long.Lock("paused-new").Do(t.Context(), func(context.Context) error { return nil }) }()
	<-lost.Context().Done() // by the clock, no answer says so
	require.ErrorIs(t, context.Cause(lost.Context()), holdfast.ErrLost)
	select {
	case err := <-got:
		t.Fatal("a call has ended: ", err)
	default:
	}
	s.unpause(t)
	require.NoError(t, <-got)
	require.NoError(t, kept.Context().Err())
	require.NoError(t, kept.Unlock(t.Context()))
}

// A server that was stopped or killed comes back empty: waiters go on, and whoever
// held something is told.
func restarted(t *testing.T, s *server) {
	p := single(s)
	for what, down := range map[string]func(){
		"stopped": func() { require.NoError(t, s.Stop(t.Context(), nil)) },
		"killed":  func() { s.kill(t) },
	} {
		a, b := p.With(t, locktest.Link{Lease: 10 * time.Second}), p.With(t, locktest.Link{Lease: never})
		h, err := a.Lock(what).Lock(t.Context())
		require.NoError(t, err)
		got := make(chan error, 1)
		go func() {
			h, err := b.Lock(what).Lock(t.Context())
			if err == nil {
				err = h.Unlock(t.Context())
			}
			got <- err
		}()
		redistest.Eventually(t, time.Minute, func() bool {
			channels, err := redistest.Channels(t.Context(), s.admin, what)
			return err == nil && len(channels) == 1
		}, "nobody waits")
		down()
		// A container that was killed may not be known as down yet.
		redistest.Eventually(t, time.Minute, func() bool {
			state, err := s.State(t.Context())
			return err == nil && !state.Running
		}, "it runs on")
		require.NoError(t, s.Start(t.Context()))
		s.await(t)
		require.NoError(t, <-got, what)
		<-h.Context().Done()
		require.ErrorIs(t, context.Cause(h.Context()), holdfast.ErrLost, what)
	}
}

// The container of the master is killed: work goes on at the replica that takes its
// place.
func TestSentinel(t *testing.T) {
	servers, e := replicated(t)
	p := scenario.Place{Endpoint: e, Addrs: e.Addrs}
	for _, s := range servers {
		p.Addrs = append(p.Addrs, s.addr())
	}
	t.Run("Smoke", func(t *testing.T) { p.Smoke(t) })

	c := p.With(t, locktest.Link{Lease: never}, holdfast.WithReplicas(2, 3*time.Second))
	h, err := c.Lock("failover").Lock(t.Context())
	require.NoError(t, err)
	other := p.With(t, locktest.Link{Lease: never})
	got := make(chan error, 1)
	go func() {
		h, err := other.Lock("failover").Lock(t.Context())
		if err == nil {
			err = h.Unlock(t.Context())
		}
		got <- err
	}()
	servers[0].kill(t)
	redistest.Eventually(t, time.Minute, func() bool {
		for _, s := range servers[1:] {
			if info, err := s.admin.InfoMap(t.Context(), "replication").Result(); err == nil && info["Replication"]["role"] == "master" {
				return true
			}
		}
		return false
	}, "nothing fails over")
	held, err := other.Lock("failover").IsLocked(t.Context())
	require.NoError(t, err)
	require.True(t, held, "all replicas had it, and one of them is the master")
	require.NoError(t, h.Context().Err())
	require.NoError(t, h.Unlock(t.Context()))
	require.NoError(t, <-got)
}
