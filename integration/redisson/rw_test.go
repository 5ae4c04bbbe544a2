package redisson_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/redisson"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
)

const rwChannel = "redisson_rwlock:{%}"

var writeKind = kind{java: "WriteLock", channel: rwChannel, mine: func(c *holdfast.Client, n string) holdfast.Locker { return c.RWLock(n).Write() }}

var readKind = kind{java: "ReadLock", channel: rwChannel, mine: func(c *holdfast.Client, n string) holdfast.Locker { return c.RWLock(n).Read() }}

// Readers of both sides are in together and keep writers of both sides out;
// those are let in when the last reader goes, whichever side it is of.
func TestReadersOfBothSides(t *testing.T) {
	versions(t, func(t *testing.T, j *redisson.JVM) {
		for _, last := range []string{"Go", "Java"} {
			// One after the other: see TestOlderRenewsTheFirstReadLockOnly.
			t.Run("last "+last, func(t *testing.T) {
				c, _ := connect(t)
				name := t.Name()
				theirs := j.Owner(t, "reader").Object("ReadLock", name)
				theirs.Call("lock").OK()
				mine, err := c.RWLock(name).Read().Lock(t.Context())
				require.NoError(t, err)
				require.True(t, redisson.Get[bool](j.Owner(t, "another").Object("ReadLock", name).Call("tryLock")))
				j.Owner(t, "another").Object("ReadLock", name).Call("unlock").OK()

				require.False(t, redisson.Get[bool](j.Owner(t, "writer").Object("WriteLock", name).Call("tryLock")))
				_, err = c.RWLock(name).Write().TryLock(t.Context())
				require.ErrorIs(t, err, holdfast.ErrNotAcquired)

				javaWriter := j.Owner(t, "writer").Object("WriteLock", name)
				goWriter := writeKind.wait(t, c, name)
				stays(t, goWriter, "both readers are renewed")
				giveBack := []func(){
					func() { theirs.Call("unlock").OK() },
					func() { require.NoError(t, mine.Unlock(t.Context())) },
				}
				if last == "Java" {
					giveBack[0], giveBack[1] = giveBack[1], giveBack[0]
				}
				giveBack[0]()
				require.False(t, redisson.Get[bool](javaWriter.Call("tryLock")), "a reader is left")
				giveBack[1]()
				w := receive(t, goWriter, "the write lock")
				waits := javaWriter.Call("lock")
				sleeps(t, j.Owner(t, "writer"))
				require.NoError(t, w.hold.Unlock(t.Context()))
				waits.OK()
				_, err = c.RWLock(name).Read().TryLock(t.Context())
				require.ErrorIs(t, err, holdfast.ErrNotAcquired)

				// A writer's unlock lets all waiting readers of the other side in.
				var readers []<-chan result
				for i := range 3 { // one client listens once
					c, _ := connect(t)
					readers = append(readers, readKind.waitBeside(i, t, c, name))
				}
				javaWriter.Call("unlock").OK()
				var in []*holdfast.Hold
				for _, got := range readers {
					in = append(in, receive(t, got, "a read lock").hold)
				}
				for _, h := range in {
					require.NoError(t, h.Unlock(t.Context()))
				}
			})
		}
	})
}

// A Java reader waits for a Go writer, and all of them get in at its unlock.
func TestJavaReadersWaitForGo(t *testing.T) {
	versions(t, func(t *testing.T, j *redisson.JVM) {
		c, _ := connect(t)
		w, err := c.RWLock(t.Name()).Write().Lock(t.Context(), holdfast.Lease(fixed))
		require.NoError(t, err)
		var got []*redisson.Future
		for _, who := range []string{"a", "b", "c"} {
			require.False(t, redisson.Get[bool](j.Owner(t, who).Object("ReadLock", t.Name()).Call("tryLock")))
			got = append(got, j.Owner(t, who).Object("ReadLock", t.Name()).Call("lock"))
			sleeps(t, j.Owner(t, who))
		}
		require.NoError(t, w.Unlock(t.Context()))
		for _, f := range got {
			soon(t, f, "the writer is gone")
		}
		info, err := c.Inspect(t.Context(), t.Name())
		require.NoError(t, err)
		require.Len(t, info.Holders, 3)
		for _, who := range []string{"a", "b", "c"} {
			j.Owner(t, who).Object("ReadLock", t.Name()).Call("unlock").OK()
		}
	})
}

// A writer that reads and gives the write lock back is a reader for the other
// side: its readers get in, its writers don't. Redisson publishes nothing then.
func TestDowngrade(t *testing.T) {
	versions(t, func(t *testing.T, j *redisson.JVM) {
		c, _ := connect(t)
		name := t.Name()
		w, err := c.RWLock(name).Write().Lock(t.Context(), holdfast.Lease(fixed))
		require.NoError(t, err)
		r, err := c.RWLock(name).Read().Lock(w.Context(), holdfast.Lease(fixed))
		require.NoError(t, err)
		theirs := j.Owner(t, "a").Object("ReadLock", name)
		waits := theirs.Call("lock")
		sleeps(t, j.Owner(t, "a"))
		require.NoError(t, w.Unlock(t.Context()))
		soon(t, waits, "ours tells waiters")
		require.False(t, redisson.Get[bool](j.Owner(t, "w").Object("WriteLock", name).Call("tryLock")))
		theirs.Call("unlock").OK()
		require.NoError(t, r.Unlock(t.Context()))

		jw, jr := j.Owner(t, "b").Object("WriteLock", name), j.Owner(t, "b").Object("ReadLock", name)
		jw.Call("lock").OK()
		jr.Call("lock").OK()
		got := readKind.wait(t, c, name)
		jw.Call("unlock").OK()
		mine := receive(t, got, "a read lock beside the reader that was a writer") // by the time to live
		_, err = c.RWLock(name).Write().TryLock(t.Context())
		require.ErrorIs(t, err, holdfast.ErrNotAcquired)
		jr.Call("unlock").OK()
		require.NoError(t, mine.hold.Unlock(t.Context()))
		require.Zero(t, server.Client(t).Exists(t.Context(), name).Val())
	})
}

// Redisson 3.52.0 renews the keys of its read holds for the first name of a
// batch only. The others lose theirs, though their hash lives on, and whoever
// looks next takes those readers for gone: Redisson's own scripts, and ours.
func TestOlderRenewsTheFirstReadLockOnly(t *testing.T) {
	for version, renewed := range map[string]int64{newest: 2, older: 1} {
		t.Run(version, func(t *testing.T) {
			j := redisson.Start(t, home, alone(version))
			rdb := server.Client(t)
			var holds []string
			for _, who := range []string{"a", "b"} {
				name := t.Name() + who
				j.Owner(t, who).Object("ReadLock", name).Call("lock").OK()
				holds = append(holds, "{"+name+"}:"+j.Owner(t, who).Field()+":rwlock_timeout:1")
			}
			require.EqualValues(t, 2, rdb.Exists(t.Context(), holds...).Val())
			<-time.After(watched * 3 / 2)
			require.Equal(t, renewed, rdb.Exists(t.Context(), holds...).Val())
			require.EqualValues(t, 2, rdb.Exists(t.Context(), t.Name()+"a", t.Name()+"b").Val(), "both hashes live")
		})
	}
}

// Redisson drops the message of a writer's release if its waiter isn't asleep yet: it
// wakes as many as sleep, and the one that was just refused, and goes to sleep next,
// stays there until the lease that it was told has ended. Here the answer of its try
// comes behind the message; they come on two connections.
func TestReleaseOfAWriterIsMissed(t *testing.T) {
	for _, version := range []string{newest, older} {
		t.Run(version, func(t *testing.T) {
			const lease = 30 * time.Second // of the hold that is waited for
			name := t.Name()
			proxy := faultproxy.New(t, server.Addr())
			config := alone(version)
			config.Addrs = []string{proxy.Addr()}
			j := redisson.Start(t, home, config)
			c, _ := connect(t, holdfast.WithLease(lease))
			w, err := c.RWLock(name).Write().Lock(t.Context())
			require.NoError(t, err)

			asleep := j.Owner(t, "asleep")
			woken := asleep.Field()
			got := asleep.Object("ReadLock", name).Call("lock")
			sleeps(t, asleep)

			// The second reader asks, listens already, as the first one does, and asks
			// again: that answer is held.
			answer := make(chan struct{})
			tries := 0
			id := j.Owner(t, "late").Field()
			held := proxy.Add(faultproxy.Rule{
				Match: func(cmd []string) bool {
					if slices.Contains(cmd, name) && slices.Contains(cmd, id) {
						tries++
					}
					return tries == 2
				},
				Times: 1,
				Do:    faultproxy.HoldReply(answer),
			})
			late := j.Owner(t, "late").Object("ReadLock", name).Call("lock")
			<-held.Done()
			// Not its answer: that may come on the connection where the other is held.
			again := proxy.Add(faultproxy.Rule{Match: func(cmd []string) bool {
				return slices.Contains(cmd, name) && slices.Contains(cmd, woken)
			}})
			require.NoError(t, w.Unlock(t.Context()))
			<-again.Done() // the first reader asks: so the message has come
			close(answer)
			got.OK()
			sleeps(t, j.Owner(t, "late"))
			require.True(t, redisson.Get[bool](j.Owner(t, "third").Object("ReadLock", name).Call("tryLock")), "readers may come in")
			stays(t, late.Done(), "it has heard the message")

			// The last reader's release is another message, which isn't lost.
			j.Owner(t, "third").Object("ReadLock", name).Call("unlock").OK()
			asleep.Object("ReadLock", name).Call("unlock").OK()
			late.OK()
			j.Owner(t, "late").Object("ReadLock", name).Call("unlock").OK()
		})
	}
}
