package rrwlock_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rrwlock"
)

// sending matches the commands that send a script, by its hash or as text.
func sending(t testing.TB, file string) faultproxy.Match {
	t.Helper()
	text, ok := rrwlock.Sources()[file]
	require.True(t, ok, file)
	names := []string{text, redis.NewScript(text).Hash()}
	return func(cmd []string) bool {
		return len(cmd) > 1 && strings.HasPrefix(strings.ToLower(cmd[0]), "eval") && slices.Contains(names, cmd[1])
	}
}

// connectVia makes a client on the shared server through a proxy of its own. The
// server knows the scripts, so that no first copy meets NOSCRIPT.
func connectVia(t testing.TB, readTimeout time.Duration, opts ...holdfast.Option) (*faultproxy.Proxy, *holdfast.Client) {
	t.Helper()
	rdb := look(t)
	for _, text := range rrwlock.Sources() {
		require.NoError(t, rdb.ScriptLoad(t.Context(), text).Err())
	}
	p := faultproxy.New(t, rdb.Options().Addr)
	via := redis.NewClient(&redis.Options{Addr: p.Addr(), ReadTimeout: readTimeout})
	t.Cleanup(func() { require.NoError(t, via.Close()) })
	c, err := holdfast.New(via, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	t.Cleanup(p.Cut) // before the client's Close, which would sit out a read
	return p, c
}

var sides = map[string]func(*rrwlock.RWLock) rrwlock.Locker{
	"read":  (*rrwlock.RWLock).Read,
	"write": (*rrwlock.RWLock).Write,
}

// A caller that leaves while its grant is on the way leaves nothing behind.
func TestA14CallerLeavesDuringTheGrant(t *testing.T) {
	for mode, side := range sides {
		t.Run(mode, func(t *testing.T) {
			p, c := connectVia(t, time.Minute)
			answer := make(chan struct{})
			granted := p.Add(faultproxy.Rule{Match: sending(t, "acquire_"+mode+".lua"), Times: 1, Do: faultproxy.HoldReply(answer)})
			ctx, cancel := context.WithCancel(t.Context())
			call := locking(ctx, side(c.RWLock(t.Name())))
			<-granted.Done()
			require.True(t, locked(t, side(connect(t).RWLock(t.Name()))), "the server has granted it")
			cancel()
			r := <-call
			require.ErrorIs(t, r.err, context.Canceled)
			require.Nil(t, r.hold)
			close(answer)
			nothingLeft(t, look(t), t.Name())
		})
	}
}

// One request counts once, whatever becomes of its first reply: A18 of the
// acquisition, A19 of the release.
func TestA18A19LostRepliesCountOnce(t *testing.T) {
	for mode, side := range sides {
		for _, do := range []struct {
			name  string
			fault faultproxy.Action
		}{{"reply dropped", faultproxy.DropReply}, {"request dropped", faultproxy.DropRequest}} {
			t.Run(mode+"/"+do.name, func(t *testing.T) {
				p, c := connectVia(t, 200*time.Millisecond)
				l := side(c.RWLock(t.Name()))
				ctx := as(t, "a")
				lose := func(script string) {
					p.Add(faultproxy.Rule{Match: sending(t, script+"_"+mode+".lua"), Times: 1, Do: do.fault})
				}
				for i := range 2 {
					lose("acquire")
					take(t, l, ctx)
					require.Equal(t, i+1, count(t, l, ctx))
				}
				for i := range 2 {
					lose("release")
					require.NoError(t, l.Unlock(ctx))
					require.Equal(t, 1-i, count(t, l, ctx))
				}
				require.ErrorIs(t, l.Unlock(ctx), holdfast.ErrNotHeld)
				nothingLeft(t, look(t), t.Name())
			})
		}
	}
}

// Every reader is renewed, and none by another.
func TestA16ReadersAreRenewedOneByOne(t *testing.T) {
	const lease = 3 * time.Second
	clients := []*holdfast.Client{connect(t, holdfast.WithLease(lease)), connect(t, holdfast.WithLease(lease))}
	writer := connect(t).RWLock(t.Name()).Write()
	var holds []*rrwlock.Hold
	for i := range 50 {
		holds = append(holds, take(t, clients[i%2].RWLock(t.Name()).Read(), as(t, fmt.Sprint(i))))
	}
	refused(t, writer, as(t, "w"), rrwlock.Wait(lease*3/2))
	for i, h := range holds {
		require.NoError(t, h.Context().Err(), i)
		unlock(t, h)
		require.ErrorIs(t, h.Unlock(t.Context()), holdfast.ErrNotHeld)
		if i < len(holds)-1 {
			refused(t, writer, as(t, "w"))
		}
	}
	unlock(t, got(t, locking(as(t, "w"), writer), "the last reader is gone"))
	nothingLeft(t, look(t), t.Name())
}

// A reader that died is gone within its lease, however long others read on.
func TestCrashedReaderGoesWithinItsLease(t *testing.T) {
	const lease = time.Second
	dead, live := connect(t, holdfast.WithLease(lease)), connect(t, holdfast.WithLease(never))
	rw, rdb := live.RWLock(t.Name()), look(t)
	crashed := take(t, dead.RWLock(t.Name()).Read(), as(t, "crashed"))
	h := take(t, rw.Read(), as(t, "live"))
	require.NoError(t, dead.Close()) // held locks are left to expire
	key := "{" + t.Name() + "}:" + crashed.Owner() + ":rwlock_timeout:1"
	redistest.Eventually(t, prompt, func() bool { return rdb.Exists(t.Context(), key).Val() == 0 }, "its own lease ends")
	refused(t, connect(t).RWLock(t.Name()).Write(), as(t, "w"))
	require.NoError(t, h.Context().Err())
	unlock(t, h)
	unlock(t, take(t, connect(t).RWLock(t.Name()).Write(), as(t, "w"))) // at once
	nothingLeft(t, rdb, t.Name())
}

// A waiter learns of a dead reader's end from its lease: nobody says so.
func TestWriterWaitsOutADeadReader(t *testing.T) {
	const lease = 3 * time.Second
	dead, c := connect(t, holdfast.WithLease(lease)), silent(t)
	take(t, dead.RWLock(t.Name()).Read(), as(t, "crashed"))
	w := locking(as(t, "w"), c.RWLock(t.Name()).Write())
	waiting(t, look(t), t.Name(), "writers", 1)
	require.NoError(t, dead.Close())
	unlock(t, gotWithin(t, lease+prompt, w, "the lease is over"))
	nothingLeft(t, look(t), t.Name())
}

// Loss of a read hold is told like that of any other: the key of the hold is gone,
// though the hash is there.
func TestLostReadHoldIsTold(t *testing.T) {
	c, rdb := connect(t, holdfast.WithLease(3*time.Second)), look(t)
	rw := c.RWLock(t.Name())
	a, b := take(t, rw.Read(), as(t, "a")), take(t, rw.Read(), as(t, "b"))
	require.NoError(t, rdb.Del(t.Context(), "{"+t.Name()+"}:"+a.Owner()+":rwlock_timeout:1").Err())
	select {
	case <-a.Context().Done():
	case <-time.After(prompt):
		require.FailNow(t, "not told")
	}
	require.ErrorIs(t, context.Cause(a.Context()), holdfast.ErrLost)
	require.NoError(t, b.Context().Err())
	unlock(t, b)
	nothingLeft(t, rdb, t.Name())
}

// Shutdown gives both modes back, and waiters leave nothing.
func TestShutdownGivesBack(t *testing.T) {
	c, rdb := connect(t, holdfast.WithLease(never)), look(t)
	other := silent(t)
	rw := c.RWLock(t.Name())
	take(t, rw.Write(), as(t, "a"))
	take(t, rw.Read(), as(t, "a"))
	w, r := locking(as(t, "b"), rw.Write()), locking(as(t, "c"), rw.Read())
	waiting(t, rdb, t.Name(), "writers", 1)
	waiting(t, rdb, t.Name(), "readers", 1)
	after := locking(as(t, "d"), other.RWLock(t.Name()).Write())
	require.NoError(t, c.Shutdown(t.Context()))
	require.ErrorIs(t, (<-w).err, holdfast.ErrClosed)
	require.ErrorIs(t, (<-r).err, holdfast.ErrClosed)
	unlock(t, got(t, after, "it was all given back"))
	nothingLeft(t, rdb, t.Name())
}
