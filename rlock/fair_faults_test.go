package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rlock"
)

// connectVia makes a client behind a proxy.
func connectVia(t testing.TB, opts ...holdfast.Option) (*faultproxy.Proxy, *holdfast.Client) {
	t.Helper()
	rdb := rlock.Redis(t)
	p := faultproxy.New(t, rdb.Options().Addr)
	for _, text := range rlock.FairScripts() {
		require.NoError(t, rdb.ScriptLoad(t.Context(), text).Err())
	}
	c, err := holdfast.New(rlock.Redis(t, func(o *redis.Options) {
		o.Addr, o.ReadTimeout = p.Addr(), 150*time.Millisecond
	}), opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	t.Cleanup(p.Cut) // before Close, which would sit out a read
	return p, c
}

// sending matches the commands that send a script of the fair lock.
func sending(t testing.TB, file string) faultproxy.Match {
	t.Helper()
	text := rlock.FairScripts()[file]
	require.NotEmpty(t, text)
	names := []string{text, redis.NewScript(text).Hash()}
	return func(cmd []string) bool {
		return len(cmd) > 1 && strings.HasPrefix(strings.ToLower(cmd[0]), "eval") && slices.Contains(names, cmd[1])
	}
}

// F-A14: a caller whose context ends while the answer is held back leaves neither
// hold nor place, whether it had got in or was queued.
func TestA14FairCancelledLeavesNothing(t *testing.T) {
	for _, taken := range []bool{false, true} {
		for _, by := range []string{"cancel", "deadline"} {
			t.Run(fmt.Sprintf("taken=%v/%s", taken, by), func(t *testing.T) {
				l := newLine(t)
				p, c := connectVia(t, holdfast.WithLease(never))
				other := connect(t)
				var h *rlock.Hold
				if taken {
					h = held(t, other.FairLock(l.name))
				}
				answer := make(chan struct{})
				// Of each copy: there are several until the deadline.
				kept := p.Add(faultproxy.Rule{Match: sending(t, "acquire_fair.lua"), Do: faultproxy.HoldReply(answer)})
				ctx, cancel := context.WithCancel(t.Context())
				if by == "deadline" {
					ctx, cancel = context.WithTimeout(t.Context(), 1500*time.Millisecond) // after the script
				}
				defer cancel()
				got := make(chan error, 1)
				go func() {
					_, err := c.FairLock(l.name).Lock(ctx)
					got <- err
				}()
				<-kept.Done()
				if by == "cancel" {
					cancel()
				}
				err := <-got
				require.Error(t, ctx.Err())
				require.ErrorIs(t, err, ctx.Err())
				close(answer)
				redistest.Eventually(t, prompt, func() bool {
					return l.gone() && (taken || l.rdb.Exists(t.Context(), l.name).Val() == 0)
				}, "nothing is left")
				if taken {
					require.NoError(t, h.Unlock(t.Context()))
				}
				h, err = other.FairLock(l.name).TryLock(t.Context())
				require.NoError(t, err)
				require.NoError(t, h.Unlock(t.Context()))
			})
		}
	}
}

// F-A18, F-A19: a script whose reply was lost is sent again, and did its work
// once: one hold, one place, one release.
func TestA18A19FairRepliesLost(t *testing.T) {
	for name, fault := range map[string]faultproxy.Action{
		"reply lost": faultproxy.DropReply, "request lost": faultproxy.DropRequest,
		"closed": faultproxy.CloseAfterForward, "closed before": faultproxy.CloseBeforeForward,
	} {
		t.Run(name, func(t *testing.T) {
			l := newLine(t)
			p, c := connectVia(t, holdfast.WithLease(never))
			fair := c.FairLock(l.name)
			owner := holdfast.WithOwnerID(t.Context(), "a")
			lose := func(file string) *faultproxy.Fault {
				return p.Add(faultproxy.Rule{Match: sending(t, file), Times: 1, Do: fault})
			}
			lost := lose("acquire_fair.lua")
			h, err := fair.Lock(owner)
			require.NoError(t, err)
			<-lost.Done()
			n, err := fair.HoldCount(owner)
			require.NoError(t, err)
			require.Equal(t, 1, n)

			o := order{test: t}
			lost = lose("acquire_fair.lua") // of the one that takes a place
			o.wait("b", fair, nil)
			<-lost.Done()
			l.await(1)
			o.wait("c", fair, nil)
			l.await(2)
			require.Less(t, l.scores()[c.ID()+":c"], never+11*time.Minute, "one place adds its time once")

			ctx, cancel := context.WithCancel(t.Context())
			gone := make(chan error, 1)
			go func() {
				_, err := fair.Lock(ctx)
				gone <- err
			}()
			l.await(3)
			lost = lose("leave.lua")
			cancel()
			require.ErrorIs(t, <-gone, context.Canceled)
			<-lost.Done()
			l.await(2)

			lost = lose("release_fair.lua")
			require.NoError(t, h.Unlock(t.Context()))
			<-lost.Done()
			o.wg.Wait()
			require.Equal(t, []string{"b", "c"}, o.got)
			require.ErrorIs(t, h.Unlock(t.Context()), holdfast.ErrNotHeld)
			redistest.Eventually(t, prompt, l.gone, "nothing is left")
		})
	}
}

// scripts is how many scripts the server was told to run.
func scripts(t testing.TB, rdb *redis.Client) (calls int) {
	t.Helper()
	info, err := rdb.InfoMap(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	for _, command := range []string{"cmdstat_evalsha", "cmdstat_eval"} {
		n := 0
		if stats, ok := info["Commandstats"][command]; ok {
			_, err := fmt.Sscanf(stats, "calls=%d", &n)
			require.NoError(t, err)
		}
		calls += n
	}
	return calls
}

// A copy of an acquisition that stuck on its way, and arrives when the caller has
// long left, takes neither the lock nor a place.
func TestFairLateCopyOfWhoLeft(t *testing.T) {
	for _, taken := range []bool{false, true} {
		t.Run(fmt.Sprint("taken=", taken), func(t *testing.T) {
			l := newLine(t)
			p, c := connectVia(t, holdfast.WithLease(never))
			var h *rlock.Hold
			if taken {
				h = held(t, connect(t).FairLock(l.name))
			}
			arrives := make(chan struct{})
			stuck := p.Add(faultproxy.Rule{Match: sending(t, "acquire_fair.lua"), Times: 1, Do: faultproxy.HoldRequest(arrives)})
			_, err := c.FairLock(l.name).TryLock(t.Context(), rlock.Wait(3*time.Second))
			if taken {
				require.ErrorIs(t, err, holdfast.ErrNotAcquired)
			} else {
				require.NoError(t, err)
				_, err = c.FairLock(l.name).ForceUnlock(t.Context())
				require.NoError(t, err)
			}
			redistest.Eventually(t, prompt, l.gone, "it has left")
			<-stuck.Done()
			before := scripts(t, l.rdb)
			close(arrives)
			redistest.Eventually(t, prompt, func() bool { return scripts(t, l.rdb) > before }, "the late copy runs")
			p.Cut()
			require.True(t, l.gone())
			if taken {
				require.NoError(t, h.Unlock(t.Context()))
			}
			require.Zero(t, l.rdb.Exists(t.Context(), l.name).Val())
		})
	}
}

// F-A31: a client whose clock is years behind or ahead stands in line as the
// others do. Its clock is that of a bubble, which begins in the year 2000.
func TestA31FairClocksDiffer(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"behind": 0, "ahead": 100 * 365 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			l := newLine(t)
			c := connect(t)
			h := held(t, c.FairLock(l.name))
			o := order{test: t}
			o.wait("B", c.FairLock(l.name), nil)
			l.await(1)
			var wg sync.WaitGroup
			addr := l.rdb.Options().Addr
			failed := make(chan error, 1)
			wg.Go(func() {
				synctest.Test(t, func(*testing.T) {
					time.Sleep(ahead)
					failed <- func() error {
						skewed, err := holdfast.Open("redis://" + addr)
						if err != nil {
							return err
						}
						h, err := skewed.FairLock(l.name).Lock(holdfast.WithOwnerID(context.Background(), "C"))
						if err != nil {
							return err
						}
						o.mu.Lock()
						o.got = append(o.got, "C")
						o.mu.Unlock()
						return errors.Join(h.Unlock(context.Background()), skewed.Close())
					}()
				})
			})
			l.await(2)
			o.wait("D", c.FairLock(l.name), nil)
			l.await(3)
			for owner, kept := range l.scores() {
				require.Greater(t, kept, 4*time.Minute, owner)
				require.Less(t, kept, 20*time.Minute, owner)
			}
			require.NoError(t, h.Unlock(t.Context()))
			o.wg.Wait()
			wg.Wait()
			require.NoError(t, <-failed)
			require.Equal(t, []string{"B", "C", "D"}, o.got)
			require.True(t, l.gone())
		})
	}
}
