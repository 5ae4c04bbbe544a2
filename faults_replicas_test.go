package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/keys"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rsemaphore"
)

// ackTime is how long tests wait for a replica that doesn't acknowledge.
const ackTime = 100 * time.Millisecond

// requireNotReplicated requires an error that says how many of how many.
func requireNotReplicated(t *testing.T, err error, acks, want int) {
	t.Helper()
	require.ErrorIs(t, err, holdfast.ErrNotReplicated)
	require.NotErrorIs(t, err, holdfast.ErrNotAcquired)
	var e *holdfast.NotReplicatedError
	require.ErrorAs(t, err, &e)
	require.Equal(t, [2]int{acks, want}, [2]int{e.Acks, e.Want})
	require.Contains(t, err.Error(), fmt.Sprintf("%d of %d", acks, want))
}

// confirmed takes a lock that a replica confirms: on a busy machine it takes a
// moment longer now and then.
func confirmed(t *testing.T, take func() (*holdfast.Hold, error)) *holdfast.Hold {
	t.Helper()
	for end := time.Now().Add(prompt); ; {
		h, err := take()
		if !errors.Is(err, holdfast.ErrNotReplicated) || time.Now().After(end) {
			require.NoError(t, err)
			return h
		}
	}
}

// Replicas confirm what is acquired, on the connection of the script and with one
// round trip; without the option nothing of that is sent.
func TestReplicasConfirm(t *testing.T) {
	srv := redistest.Start(t)
	srv.StartReplica(t)
	for _, n := range []int{0, 1} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var sent redistest.CommandCounter
			rdb := srv.Client(t)
			rdb.AddHook(&sent)
			var opts []holdfast.Option
			if n > 0 {
				opts = append(opts, holdfast.WithReplicas(n, time.Second))
			}
			l := newClient(t, rdb, opts...).Lock(t.Name())
			ctx := holdfast.WithOwner(t.Context())
			cycle := func() error {
				return l.Do(ctx, func(ctx context.Context) error { return l.Do(ctx, func(context.Context) error { return nil }) })
			}
			require.NoError(t, cycle()) // the server knows the scripts from now on
			sent.Reset()
			outer, err := l.Lock(ctx)
			require.NoError(t, err)
			inner, err := l.TryLock(ctx, holdfast.Wait(prompt))
			require.NoError(t, err)
			require.NoError(t, inner.Unlock(ctx))
			require.NoError(t, outer.Unlock(ctx))
			require.Equal(t, map[string]int64{"evalsha": 4, "wait": int64(2 * n)},
				map[string]int64{"evalsha": sent.Count("evalsha"), "wait": sent.Count("wait")})
			require.Equal(t, int64(4+2*n), sent.Total())
		})
	}
}

// A lock that no replica has is not held: not by the caller, and not by anybody
// when the caller learns of it.
func TestUnreplicatedAcquisitionIsUndone(t *testing.T) {
	srv := redistest.Start(t)
	replica := srv.StartReplica(t)
	rdb := srv.Client(t)
	other := newClient(t, srv.Client(t))
	cut := map[string]struct{ off, on func() }{
		"stopped":      {replica.Pause, replica.Resume},
		"disconnected": {replica.Kill, func() {}},
	}
	for _, what := range []string{"stopped", "disconnected"} {
		t.Run(what, func(t *testing.T) {
			l := newClient(t, srv.Client(t), holdfast.WithReplicas(1, ackTime)).Lock(t.Name())
			ctx := holdfast.WithOwner(t.Context())
			outer := confirmed(t, func() (*holdfast.Hold, error) { return l.Lock(ctx) })
			cut[what].off()
			bounded, cancel := context.WithTimeout(ctx, prompt)
			defer cancel()

			// A re-entry: the hold outside it is as good as before.
			_, err := l.Lock(bounded)
			requireNotReplicated(t, err, 0, 1)
			require.Equal(t, map[string]string{outer.Owner(): "1"}, rdb.HGetAll(t.Context(), t.Name()).Val())
			require.NoError(t, outer.Context().Err())
			require.NoError(t, outer.Unlock(ctx))
			require.False(t, exists(t, rdb, t.Name()))

			for how, call := range map[string]func() (*holdfast.Hold, error){
				"Lock":             func() (*holdfast.Hold, error) { return l.Lock(context.Background()) },
				"Lock, deadline":   func() (*holdfast.Hold, error) { return l.Lock(bounded) },
				"TryLock":          func() (*holdfast.Hold, error) { return l.TryLock(ctx) },
				"TryLock, waiting": func() (*holdfast.Hold, error) { return l.TryLock(ctx, holdfast.Wait(never)) },
				"TryLock, hardly":  func() (*holdfast.Hold, error) { return l.TryLock(ctx, holdfast.Wait(time.Millisecond)) },
			} {
				_, err := call()
				requireNotReplicated(t, err, 0, 1)
				require.False(t, exists(t, rdb, t.Name()), how)
			}

			// Somebody else's is refused, not unreplicated.
			theirs, err := other.Lock(t.Name()).Lock(t.Context())
			require.NoError(t, err)
			_, err = l.TryLock(ctx)
			require.ErrorIs(t, err, holdfast.ErrNotAcquired)
			require.NoError(t, theirs.Unlock(t.Context()))
			cut[what].on()
		})
	}
}

// Who waits for the lock is woken when an acquisition was undone.
func TestUndoneForWantOfReplicasWakesWaiters(t *testing.T) {
	srv := redistest.Start(t)
	c := newClient(t, srv.Client(t), holdfast.WithReplicas(1, ackTime))
	other := newClient(t, srv.Client(t), holdfast.WithPollFallback(never))
	rdb := srv.Client(t)
	h, err := other.Lock(t.Name()).Lock(t.Context())
	require.NoError(t, err)
	waiter := async(func() (*holdfast.Hold, error) { return c.Lock(t.Name()).Lock(t.Context()) })
	awaitWaiter(t, rdb, t.Name())
	require.NoError(t, h.Unlock(t.Context()))
	r := await(t, waiter, prompt, "it fails at once")
	requireNotReplicated(t, r.err, 0, 1)
	h, err = other.Lock(t.Name()).TryLock(t.Context(), holdfast.Wait(prompt))
	require.NoError(t, err)
	require.NoError(t, h.Unlock(t.Context()))
}

// A renewal that replicas don't confirm renews nothing: it is tried again, and
// the holder is told in time if that doesn't help.
func TestUnreplicatedRenewal(t *testing.T) {
	t.Parallel() // servers of its own, and mostly waiting
	srv := redistest.Start(t)
	replica := srv.StartReplica(t)
	const lease = 6 * time.Second
	rdb := srv.Client(t)
	var sent redistest.CommandCounter
	rdb.AddHook(&sent)
	c := newClient(t, rdb, holdfast.WithReplicas(1, lease/4), holdfast.WithLease(lease))

	h := confirmed(t, func() (*holdfast.Hold, error) { return c.Lock(t.Name()).Lock(t.Context()) })
	first := h.ExpiresAt()
	replica.Pause()
	before := sent.Count("wait")
	redistest.Eventually(t, lease, func() bool { return sent.Count("wait") >= before+2 }, "a renewal is tried again")
	require.Equal(t, first, h.ExpiresAt(), "it counted a renewal that no replica has")
	replica.Resume()
	eventually(t, "it is renewed again", func() bool { return h.ExpiresAt().After(first) })
	require.NoError(t, h.Context().Err())

	replica.Pause()
	select {
	case <-h.Context().Done():
	case <-time.After(lease + prompt):
		t.Fatal("the loss isn't told")
	}
	cause := context.Cause(h.Context())
	require.ErrorIs(t, cause, holdfast.ErrLost)
	require.ErrorIs(t, cause, holdfast.ErrNotReplicated)
	require.ErrorIs(t, h.Unlock(t.Context()), holdfast.ErrLost)
	replica.Resume()
}

// What is gone on the master is gone, whoever confirms that.
func TestUnreplicatedRenewalOfWhatIsGone(t *testing.T) {
	srv := redistest.Start(t)
	replica := srv.StartReplica(t)
	c := newClient(t, srv.Client(t), holdfast.WithReplicas(1, ackTime), holdfast.WithLease(6*time.Second))
	h := confirmed(t, func() (*holdfast.Hold, error) { return c.Lock(t.Name()).Lock(t.Context()) })
	replica.Pause()
	ends := h.ExpiresAt()
	require.NoError(t, srv.Client(t).Del(t.Context(), t.Name()).Err())
	<-h.Context().Done()
	require.True(t, time.Now().Before(ends), "the lease had to run out before it was told")
	require.NotErrorIs(t, context.Cause(h.Context()), holdfast.ErrNotReplicated)
	replica.Resume()
}

// A copy that is sent because the first reply was lost asks the replicas too,
// although it has nothing to write that the first hasn't written; WAIT on a
// connection that wrote nothing is answered at once by all of them.
func TestResendsAskReplicas(t *testing.T) {
	srv := redistest.Start(t)
	replica := srv.StartReplica(t)
	for lost := range 3 {
		for _, up := range []bool{true, false} {
			t.Run(fmt.Sprintf("lost=%d/replica=%v", lost, up), func(t *testing.T) {
				acks := time.Second
				if !up {
					acks = ackTime
				}
				p, c := connectVia(t, srv, readTimeout(acks+200*time.Millisecond), holdfast.WithReplicas(1, acks), holdfast.WithCommandTimeout(time.Minute))
				if lost > 0 {
					p.Add(faultproxy.Rule{Match: sending(t, "acquire.lua"), Times: lost, Do: faultproxy.DropReply})
				}
				if !up {
					replica.Pause()
					defer replica.Resume()
				}
				h, err := c.Lock(t.Name()).Lock(t.Context())
				if !up {
					requireNotReplicated(t, err, 0, 1)
					require.False(t, exists(t, srv.Client(t), t.Name()))
					return
				}
				require.NoError(t, err)
				require.Equal(t, map[string]string{h.Owner(): "1"}, srv.Client(t).HGetAll(t.Context(), t.Name()).Val())
				require.NoError(t, h.Unlock(t.Context()))
			})
		}
	}
}

// The script was answered and WAIT was not: the request isn't answered, and is
// sent again.
func TestLostAnswerOfReplicas(t *testing.T) {
	srv := redistest.Start(t)
	srv.StartReplica(t)
	p, c := connectVia(t, srv, readTimeout(1200*time.Millisecond), holdfast.WithReplicas(1, time.Second))
	drop := p.Add(faultproxy.Rule{Match: faultproxy.Cmd("wait"), Times: 1, Do: faultproxy.DropReply})
	h, err := c.Lock(t.Name()).Lock(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, drop.Hits())
	require.Equal(t, map[string]string{h.Owner(): "1"}, srv.Client(t).HGetAll(t.Context(), t.Name()).Val())
	require.NoError(t, h.Unlock(t.Context()))
}

// Without the right to WAIT nothing is acquired, and the error says why.
func TestReplicasWithoutTheRightToWait(t *testing.T) {
	srv := redistest.Start(t)
	admin := srv.Client(t)
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "app", "on", ">pw", "~*", "&*", "+@all", "-wait").Err())
	rdb := srv.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "pw" })
	_, err := newClient(t, rdb, holdfast.WithReplicas(1, ackTime)).Lock(t.Name()).Lock(t.Context())
	require.ErrorIs(t, err, holdfast.ErrDenied)
	require.Contains(t, err.Error(), "wait")
	eventually(t, "it is undone", func() bool { return !exists(t, admin, t.Name()) })
}

// A hold that is resumed is acquired too: if replicas don't have it the handle
// stays good.
func TestUnreplicatedResume(t *testing.T) {
	srv := redistest.Start(t)
	replica := srv.StartReplica(t)
	c := newClient(t, srv.Client(t), holdfast.WithReplicas(1, ackTime))
	h := confirmed(t, func() (*holdfast.Hold, error) { return c.Lock(t.Name()).Lock(t.Context()) })
	replica.Pause()
	err := h.Extend(t.Context(), time.Minute)
	require.ErrorIs(t, err, holdfast.ErrUncertain)
	requireNotReplicated(t, err, 0, 1)
	require.True(t, h.ExpiresAt().Before(time.Now().Add(40*time.Second)), "the old lease counts")

	handle, err := h.Detach()
	require.NoError(t, err)
	_, err = c.Resume(t.Context(), handle)
	requireNotReplicated(t, err, 0, 1)
	replica.Resume()
	var resumed *holdfast.Hold
	eventually(t, "the handle is good again", func() bool {
		resumed, err = c.Resume(t.Context(), handle)
		return !errors.Is(err, holdfast.ErrLost) && !errors.Is(err, holdfast.ErrNotReplicated)
	})
	require.NoError(t, err)
	require.NoError(t, resumed.Unlock(t.Context()))
}

// On a cluster WAIT goes where the script went: to the master of the key. A slot
// that moves takes its locks along.
func TestReplicasOnACluster(t *testing.T) {
	t.Parallel() // a cluster of its own
	cluster := redistest.StartCluster(t, 2)
	nodes := cluster.Nodes()
	replicas := []*redistest.Server{cluster.StartReplica(t, nodes[0]), cluster.StartReplica(t, nodes[1])}
	const lease = 9 * time.Second
	c := newClient(t, cluster.Client(t), holdfast.WithReplicas(1, time.Second), holdfast.WithLease(lease))
	names := [2]string{}
	for i := 0; names[0] == "" || names[1] == ""; i++ {
		name := fmt.Sprintf("%s-%d", t.Name(), i)
		names[keys.Slot(name)*2/16384] = name
	}
	var holds []*holdfast.Hold
	for _, name := range names {
		holds = append(holds, confirmed(t, func() (*holdfast.Hold, error) { return c.Lock(name).Lock(t.Context(), holdfast.Wait(prompt)) }))
	}
	replicas[1].Pause()
	_, err := c.Lock(names[1]).Lock(holds[1].Context())
	requireNotReplicated(t, err, 0, 1)
	inner := confirmed(t, func() (*holdfast.Hold, error) { return c.Lock(names[0]).Lock(holds[0].Context()) }) // the other master has one
	require.NoError(t, inner.Unlock(t.Context()))
	replicas[1].Resume()
	for _, h := range holds {
		ends := h.ExpiresAt()
		eventually(t, "it is renewed", func() bool { return h.ExpiresAt().After(ends) })
	}

	// The slot moves while the lock is held: first the key, then the word of it.
	from, to := nodes[0].Client(t), nodes[1].Client(t)
	ids := make([]string, 2)
	for i, node := range []*redis.Client{from, to} {
		ids[i] = node.ClusterMyID(t.Context()).Val()
	}
	slot := keys.Slot(names[0])
	require.NoError(t, to.Do(t.Context(), "cluster", "setslot", slot, "importing", ids[0]).Err())
	require.NoError(t, from.Do(t.Context(), "cluster", "setslot", slot, "migrating", ids[1]).Err())
	host, port, _ := strings.Cut(nodes[1].Addr(), ":")
	inSlot := from.ClusterGetKeysInSlot(t.Context(), slot, 100).Val()
	require.Contains(t, inSlot, names[0])
	for _, key := range inSlot {
		require.NoError(t, from.Migrate(t.Context(), host, port, key, 0, prompt).Err())
	}
	ends := holds[0].ExpiresAt()
	eventually(t, "it is renewed while the slot moves", func() bool { return holds[0].ExpiresAt().After(ends) })
	for _, node := range []*redis.Client{to, from} {
		require.NoError(t, node.Do(t.Context(), "cluster", "setslot", slot, "node", ids[1]).Err())
	}
	inner = confirmed(t, func() (*holdfast.Hold, error) {
		return c.Lock(names[0]).Lock(holds[0].Context(), holdfast.Wait(prompt))
	})
	require.NoError(t, inner.Unlock(t.Context()))
	for _, h := range holds {
		require.NoError(t, h.Context().Err())
		require.NoError(t, h.Unlock(t.Context()))
	}
}

func TestReplicasThatMakeNoSense(t *testing.T) {
	rdb := server.Client(t)
	hasty := server.Client(t, func(o *redis.Options) { o.ReadTimeout = 200 * time.Millisecond })
	for what, c := range map[string]struct {
		rdb  redis.UniversalClient
		opts []holdfast.Option
	}{
		"none":              {rdb, []holdfast.Option{holdfast.WithReplicas(0, time.Second)}},
		"fewer":             {rdb, []holdfast.Option{holdfast.WithReplicas(-1, time.Second)}},
		"no time":           {rdb, []holdfast.Option{holdfast.WithReplicas(1, 0)}},
		"less":              {rdb, []holdfast.Option{holdfast.WithReplicas(1, -time.Second)}},
		"longer than leave": {rdb, []holdfast.Option{holdfast.WithReplicas(1, time.Second), holdfast.WithLease(2 * time.Second)}},
		"longer than reads": {hasty, []holdfast.Option{holdfast.WithReplicas(1, 200*time.Millisecond)}},
	} {
		_, err := holdfast.New(c.rdb, c.opts...)
		require.ErrorIs(t, err, holdfast.ErrInvalid, what)
		require.Contains(t, err.Error(), "WithReplicas", what)
	}
	_, err := holdfast.Open(server.URL()+"?read_timeout=1s", holdfast.WithReplicas(1, time.Second))
	require.ErrorIs(t, err, holdfast.ErrInvalid)
	c, err := holdfast.Open(server.URL()+"?read_timeout=1s", holdfast.WithReplicas(1, time.Nanosecond))
	require.NoError(t, err)
	require.NoError(t, c.Close())
}

// Permits and locks that are taken together keep to the option, too.
func TestUnreplicatedPermitsAndMultiLocks(t *testing.T) {
	srv := redistest.Start(t) // which has no replica
	rdb := srv.Client(t)
	c := newClient(t, srv.Client(t), holdfast.WithReplicas(1, ackTime))
	_, err := c.MultiLock(c.Lock(t.Name()+"-1"), c.Lock(t.Name()+"-2")).TryLock(t.Context())
	requireNotReplicated(t, err, 0, 1)
	require.False(t, exists(t, rdb, t.Name()+"-1") || exists(t, rdb, t.Name()+"-2"), "it was told before it was undone")

	rw := c.RWLock(t.Name() + "-rw")
	for what, l := range map[string]holdfast.Locker{
		"read": rw.Read(), "write": rw.Write(), "fair": c.FairLock(t.Name() + "-fair"), "fenced": c.FencedLock(t.Name() + "-fenced"),
	} {
		_, err := l.TryLock(t.Context())
		requireNotReplicated(t, err, 0, 1)
		locked, err := l.IsLocked(t.Context())
		require.NoError(t, err)
		require.False(t, locked, what)
	}

	plain, expirable := c.Semaphore(t.Name()+"-plain"), c.ExpirableSemaphore(t.Name()+"-expirable")
	_, err = plain.TrySetPermits(t.Context(), 3)
	require.NoError(t, err)
	requireNotReplicated(t, plain.TryAcquire(t.Context(), 2), 0, 1)
	free, err := plain.Available(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(3), free)
	_, err = expirable.TrySetPermits(t.Context(), 3)
	require.NoError(t, err)
	_, err = expirable.TryAcquire(t.Context())
	requireNotReplicated(t, err, 0, 1)
	free, err = expirable.Available(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(3), free)
}

// A permit's lease that replicas don't have is no longer than before.
func TestUnreplicatedExtensionOfAPermit(t *testing.T) {
	srv := redistest.Start(t)
	replica := srv.StartReplica(t)
	s := newClient(t, srv.Client(t), holdfast.WithReplicas(1, ackTime)).ExpirableSemaphore(t.Name())
	_, err := s.TrySetPermits(t.Context(), 1)
	require.NoError(t, err)
	var p *rsemaphore.Permit
	eventually(t, "a replica confirms the permit", func() bool {
		p, err = s.TryAcquire(t.Context())
		return err == nil
	})
	replica.Pause()
	err = s.Extend(t.Context(), p.ID(), time.Minute)
	require.ErrorIs(t, err, holdfast.ErrUncertain)
	requireNotReplicated(t, err, 0, 1)
	require.True(t, p.ExpiresAt().Before(time.Now().Add(40*time.Second)), "the old lease counts")
	replica.Resume()
	require.NoError(t, p.Release(t.Context()))
}
