package rsemaphore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rsemaphore"
)

// A18, A19: requests whose reply is lost count once, and say so.
func TestA18A19LostRepliesCountOnceExpirable(t *testing.T) {
	c, proxy := through(t)
	e := c.ExpirableSemaphore(t.Name())
	set(t, e, 10)
	lose := func(call func() error) {
		t.Helper()
		f := proxy.Add(faultproxy.Rule{Match: faultproxy.Cmd("evalsha", "eval"), Times: 1, Do: faultproxy.DropReply})
		require.NoError(t, call())
		require.Equal(t, 1, f.Hits())
		f.Remove()
	}
	ctx := t.Context()
	for range 3 { // with the script loaded and without
		var ps []*rsemaphore.Permit
		lose(func() (err error) { ps, err = e.AcquireN(ctx, 4); return err })
		require.EqualValues(t, 6, available(t, e))
		require.EqualValues(t, 4, acquired(t, e))
		lose(func() error { return ps[0].Release(ctx) })
		lose(func() error { return e.Release(ctx, ps[1].ID()) })
		lose(func() error {
			n, err := e.TryRelease(ctx, ps[2].ID(), strings.Repeat("0", 32))
			require.Equal(t, 1, n)
			return err
		})
		require.EqualValues(t, 9, available(t, e))
		lose(func() error { return e.Extend(ctx, ps[3].ID(), time.Hour) })
		lose(func() error { return e.SetPermits(ctx, 12) })
		require.EqualValues(t, 11, available(t, e))
		lose(func() error { return e.AddPermits(ctx, -2) })
		require.NoError(t, ps[3].Release(ctx))
		require.EqualValues(t, 10, available(t, e))
	}
}

// A14: an acquisition that was cancelled on its way is undone, and isn't renewed.
func TestA14CancelledAcquireIsUndoneExpirable(t *testing.T) {
	c, proxy := through(t)
	e := c.ExpirableSemaphore(t.Name())
	look := connect(t).ExpirableSemaphore(t.Name())
	set(t, e, 5)
	p, err := e.Acquire(t.Context()) // the scripts are loaded
	require.NoError(t, err)
	require.NoError(t, p.Release(t.Context()))
	release := make(chan struct{})
	f := proxy.Add(faultproxy.Rule{Match: faultproxy.Cmd("evalsha", "eval"), Do: faultproxy.HoldReply(release)})
	ctx, cancel := context.WithCancel(t.Context())
	back := make(chan error, 1)
	go func() { _, err := e.AcquireN(ctx, 2); back <- err }()
	eventually(t, "they are taken", func() bool { return acquired(t, look) == 2 })
	cancel()
	require.ErrorIs(t, <-back, context.Canceled)
	f.Remove()
	close(release)
	eventually(t, "they are given back", func() bool { return acquired(t, look) == 0 && available(t, look) == 5 })
}

// A33: acquisitions that are cancelled at any moment eat no permit.
func TestA33CancelledAcquiresEatNoPermitExpirable(t *testing.T) {
	c, proxy := through(t)
	proxy.SetLatency(time.Millisecond, 10*time.Millisecond)
	e := c.ExpirableSemaphore(t.Name())
	set(t, e, 5)
	var wg sync.WaitGroup
	for g := range 20 {
		wg.Go(func() {
			for i := range 20 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration((g*7+i*3)%25)*time.Millisecond)
				switch p, err := e.Acquire(ctx); {
				case err == nil:
					if err := p.Release(ctx); err != nil && !errors.Is(err, holdfast.ErrUncertain) {
						t.Error(err)
					}
				case !errors.Is(err, context.DeadlineExceeded):
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	require.NoError(t, c.Shutdown(t.Context()), "which waits for what goes on behind the callers")
	require.True(t, taken(t, t.Name(), "5"))
	require.Zero(t, members(t, t.Name()))
}

// A49: a context that has ended doesn't keep permits from being given back.
func TestA49ReleaseWithAnEndedContextExpirable(t *testing.T) {
	e := connect(t).ExpirableSemaphore(t.Name())
	set(t, e, 2)
	ctx, cancel := context.WithCancel(t.Context())
	ps, err := e.AcquireN(ctx, 2)
	require.NoError(t, err)
	cancel()
	require.ErrorIs(t, ps[0].Context().Err(), context.Canceled)
	require.EqualValues(t, 2, acquired(t, e), "the end of the context gives nothing back")
	require.NoError(t, ps[0].Release(ctx))
	require.NoError(t, e.Release(ctx, ps[1].ID()))
	require.EqualValues(t, 2, available(t, e))
}

// Shutdown gives permits back; Close leaves them to their leases.
func TestShutdownAndCloseOfPermits(t *testing.T) {
	ctx := t.Context()
	look := connect(t).ExpirableSemaphore(t.Name())
	set(t, look, 10)
	c := connect(t)
	ps, err := c.ExpirableSemaphore(t.Name()).AcquireN(ctx, 4)
	require.NoError(t, err)
	require.NoError(t, c.Shutdown(ctx))
	require.EqualValues(t, 10, available(t, look))
	require.ErrorIs(t, context.Cause(ps[0].Context()), holdfast.ErrReleased)
	require.ErrorIs(t, ps[0].Release(ctx), holdfast.ErrNotHeld)
	_, err = c.ExpirableSemaphore(t.Name()).Acquire(ctx)
	require.ErrorIs(t, err, holdfast.ErrClosed)

	c = connect(t)
	ps, err = c.ExpirableSemaphore(t.Name()).AcquireN(ctx, 4)
	require.NoError(t, err)
	permit := ps[0].Context()
	require.NoError(t, c.Close())
	require.ErrorIs(t, context.Cause(permit), holdfast.ErrClosed)
	require.ErrorIs(t, ps[0].Release(ctx), holdfast.ErrClosed)
	require.EqualValues(t, 6, available(t, look))
}

// book is a log that tests read.
type book struct{ redistest.Diary }

func (b *book) has(text string) bool { return strings.Contains(b.String(), text) }

// A permit that nobody can give back any more is renewed no more, and logged; one
// whose context is in use goes on.
func TestDroppedPermitsComeBack(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context()) // a parent that outlives them
	defer cancel()
	log := &book{}
	e := connect(t, holdfast.WithLease(watched), holdfast.WithLogger(slog.New(slog.NewTextHandler(log, nil)))).ExpirableSemaphore(t.Name())
	set(t, e, 3)
	var id string
	kept := func() context.Context {
		ps, err := e.AcquireN(ctx, 3)
		require.NoError(t, err)
		_ = ps[1].Context()
		id = ps[1].ID()
		return ps[0].Context()
	}()
	redistest.Eventually(t, watched+prompt, func() bool {
		runtime.GC()
		return available(t, e) == 2
	}, "the dropped ones come back")
	require.NoError(t, kept.Err())
	require.True(t, log.has(id))
	runtime.KeepAlive(kept)
}

// A permit passes from process to process, once.
func TestPermitIsHandedOver(t *testing.T) {
	ctx := t.Context()
	p1 := connect(t, holdfast.WithLease(watched))
	p2, p3 := connect(t, holdfast.WithLease(watched)), connect(t)
	e := p1.ExpirableSemaphore(t.Name())
	set(t, e, 1)
	p, err := e.Acquire(ctx)
	require.NoError(t, err)
	handle, err := p.Detach()
	require.NoError(t, err)
	require.ErrorIs(t, context.Cause(p.Context()), holdfast.ErrReleased)
	require.ErrorIs(t, p.Release(ctx), holdfast.ErrNotHeld)
	require.EqualValues(t, 1, acquired(t, e))
	require.NoError(t, p1.Shutdown(ctx), "it isn't this client's any more")

	_, err = p2.Resume(ctx, handle)
	require.ErrorIs(t, err, holdfast.ErrInvalid)
	_, err = p2.ExpirableSemaphore("other").Resume(ctx, handle)
	require.ErrorIs(t, err, holdfast.ErrInvalid)
	got, err := p2.ExpirableSemaphore(t.Name()).Resume(ctx, handle)
	require.NoError(t, err)
	_, err = p3.ExpirableSemaphore(t.Name()).Resume(ctx, handle)
	require.ErrorIs(t, err, holdfast.ErrNotHeld)
	require.ErrorIs(t, err, holdfast.ErrLost)
	require.ErrorIs(t, p3.ExpirableSemaphore(t.Name()).Release(ctx, p.ID()), holdfast.ErrNotHeld, "the old id is no good")
	was := got.ExpiresAt()
	redistest.Eventually(t, watched+prompt, func() bool { return got.ExpiresAt().Sub(was) > watched }, "it is renewed there")
	require.EqualValues(t, 1, acquired(t, p3.ExpirableSemaphore(t.Name())))

	// By its id, from a client that still renews it.
	taken, err := p3.ExpirableSemaphore(t.Name()).Resume(ctx, got.ID(), rsemaphore.Lease(time.Minute))
	require.NoError(t, err)
	select {
	case <-got.Context().Done():
		require.ErrorIs(t, context.Cause(got.Context()), holdfast.ErrLost)
	case <-time.After(prompt):
		t.Fatal("the former holder isn't told")
	}
	require.NoError(t, taken.Release(ctx))
	require.EqualValues(t, 1, available(t, p3.ExpirableSemaphore(t.Name())))
}

// A resumption that is cancelled leaves the handle good; one whose reply is lost
// works.
func TestResumeUnderFaults(t *testing.T) {
	c, proxy := through(t)
	e := c.ExpirableSemaphore(t.Name())
	set(t, e, 1)
	for range 2 { // with the script loaded and without
		p, err := e.Acquire(t.Context())
		require.NoError(t, err)
		handle, err := p.Detach()
		require.NoError(t, err)
		f := proxy.Add(faultproxy.Rule{Match: faultproxy.Cmd("evalsha", "eval"), Times: 1, Do: faultproxy.DropReply})
		p, err = e.Resume(t.Context(), handle)
		require.NoError(t, err)
		require.Equal(t, 1, f.Hits())
		require.NoError(t, p.Release(t.Context()))
	}
	p, err := e.Acquire(t.Context())
	require.NoError(t, err)
	handle, err := p.Detach()
	require.NoError(t, err)
	release := make(chan struct{})
	f := proxy.Add(faultproxy.Rule{Match: faultproxy.Cmd("evalsha"), Do: faultproxy.HoldReply(release)})
	ctx, cancel := context.WithCancel(t.Context())
	back := make(chan error, 1)
	go func() { _, err := e.Resume(ctx, handle); back <- err }()
	look := connect(t).ExpirableSemaphore(t.Name())
	eventually(t, "it is passed on", func() bool {
		_, err := look.LeaseOf(t.Context(), p.ID())
		return errors.Is(err, holdfast.ErrNotHeld)
	})
	cancel()
	require.ErrorIs(t, <-back, context.Canceled)
	f.Remove()
	close(release)
	eventually(t, "the handle is good again", func() bool {
		_, err := look.LeaseOf(t.Context(), p.ID())
		return err == nil
	})
	p, err = e.Resume(t.Context(), handle)
	require.NoError(t, err)
	require.NoError(t, p.Release(t.Context()))
}

// Who left a resumption makes the handle good again behind: until that is done
// other calls with it, or with the permit's id, wait.
func TestResumeLeftAndTriedAgain(t *testing.T) {
	proxy := faultproxy.New(t, rsemaphore.Server().Addr())
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: time.Minute})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	c := newClient(t, rdb, holdfast.WithCommandTimeout(time.Minute))
	t.Cleanup(proxy.Cut) // before the client's Close, which would sit out a read
	e := c.ExpirableSemaphore(t.Name())
	set(t, e, 1)
	p, err := e.Acquire(t.Context())
	require.NoError(t, err)
	p, err = e.Resume(t.Context(), p.ID()) // from now on the server knows the script
	require.NoError(t, err)
	id := p.ID()
	handle, err := p.Detach()
	require.NoError(t, err)

	arrives := make(chan struct{})
	held := proxy.Add(faultproxy.Rule{Match: faultproxy.Cmd("evalsha"), Times: 1, Do: faultproxy.HoldReply(arrives)})
	ctx, cancel := context.WithCancel(t.Context())
	back := make(chan error, 1)
	go func() { _, err := e.Resume(ctx, handle); back <- err }()
	<-held.Done()
	cancel()
	require.ErrorIs(t, <-back, context.Canceled)

	for _, text := range []string{handle, id} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err = e.Resume(ctx, text)
		require.ErrorIs(t, err, context.DeadlineExceeded, "nobody has it for good")
	}
	go func() {
		var err error
		p, err = e.Resume(t.Context(), handle)
		back <- err
	}()
	close(arrives)
	require.NoError(t, <-back)
	_, err = e.Resume(t.Context(), handle)
	require.ErrorIs(t, err, holdfast.ErrLost, "it works once")
	require.NoError(t, p.Release(t.Context()))
	down := make(chan error, 1)
	go func() { down <- c.Shutdown(t.Context()) }()
	select {
	case err := <-down:
		require.NoError(t, err)
	case <-time.After(prompt):
		t.Fatal("something is left that a shutdown waits for")
	}
}

// A31: leases are judged by the server's clock alone. What a client's clock says
// isn't sent: nothing but lengths of time is.
func TestA31ScriptsSendNoClock(t *testing.T) {
	proxy := faultproxy.New(t, rsemaphore.Server().Addr())
	var mu sync.Mutex
	var sent []string
	proxy.Add(faultproxy.Rule{Match: func(cmd []string) bool {
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, cmd...)
		return false
	}, Do: faultproxy.Pass})
	c, err := holdfast.Open("redis://" + proxy.Addr())
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	e := c.ExpirableSemaphore(t.Name())
	set(t, e, 2)
	p, err := e.Acquire(t.Context(), rsemaphore.Lease(2*time.Second))
	require.NoError(t, err)
	require.NoError(t, e.Extend(t.Context(), p.ID(), 3*time.Second))
	require.NoError(t, p.Release(t.Context()))
	require.EqualValues(t, 2, available(t, e))
	mu.Lock()
	defer mu.Unlock()
	epoch := fmt.Sprint(time.Now().UnixMilli() / 1_000_000) // the digits that stay for a quarter of an hour
	for _, word := range sent {
		require.False(t, strings.HasPrefix(word, epoch) && len(word) == 13, "%q looks like a clock", word)
	}
}

// Each Acquired is followed by one Released or one HoldLost.
func TestPermitsAreObserved(t *testing.T) {
	ctx := t.Context()
	var mu sync.Mutex
	balance, counts := map[string]int{}, map[string]int{}
	c := connect(t, holdfast.WithLease(watched), holdfast.WithObserver(func(e holdfast.Event) {
		mu.Lock()
		defer mu.Unlock()
		counts[fmt.Sprintf("%T", e)]++
		switch e.(type) {
		case holdfast.Acquired:
			balance[e.About().Owner]++
		case holdfast.Released, holdfast.HoldLost:
			balance[e.About().Owner]--
		}
	}))
	e := c.ExpirableSemaphore(t.Name())
	set(t, e, 6)
	ps, err := e.AcquireN(ctx, 6)
	require.NoError(t, err)
	_, err = e.TryAcquire(ctx)
	require.ErrorIs(t, err, holdfast.ErrNotAcquired)
	require.NoError(t, ps[0].Release(ctx))
	require.NoError(t, e.Release(ctx, ps[1].ID()))
	_, err = ps[2].Detach()
	require.NoError(t, err)
	require.NoError(t, connect(t).ExpirableSemaphore(t.Name()).Release(ctx, ps[3].ID(), ps[4].ID()))
	require.ErrorIs(t, ps[3].Release(ctx), holdfast.ErrLost)
	<-ps[4].Context().Done()
	require.NoError(t, c.Shutdown(ctx))
	mu.Lock()
	defer mu.Unlock()
	for id, n := range balance {
		require.Zero(t, n, id)
	}
	require.Len(t, balance, 6)
	require.Equal(t, [4]int{6, 1, 4, 2}, [4]int{counts["event.Acquired"], counts["event.Refused"], counts["event.Released"], counts["event.HoldLost"]})
	require.Positive(t, counts["event.Renewed"])
}

// Where PUBLISH is refused, those of this client who wait learn of its releases all
// the same.
func TestPermitGivenBackUnheard(t *testing.T) {
	admin := rsemaphore.Server().Client(t)
	user := t.Name()
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", user, "on", ">pw", "~*", "resetchannels", "+@all").Err())
	rdb := rsemaphore.Server().Client(t, func(o *redis.Options) { o.Username, o.Password = user, "pw" })
	e := newClient(t, rdb, holdfast.WithPollFallback(time.Hour)).ExpirableSemaphore(t.Name())
	_, err := e.TrySetPermits(t.Context(), 1)
	require.NoError(t, err)
	p, err := e.Acquire(t.Context())
	require.NoError(t, err)
	var sent redistest.CommandCounter
	rdb.AddHook(&sent)
	// A fixed time to wait, so that the holder's lease isn't what ends it.
	got := make(chan error, 1)
	go func() {
		_, err := e.Acquire(t.Context(), rsemaphore.Wait(20*time.Second))
		got <- err
	}()
	redistest.Eventually(t, 10*time.Second, func() bool { return sent.Count("evalsha") > 0 }, "nobody asked")
	began := time.Now()
	require.NoError(t, p.Release(t.Context()))
	require.NoError(t, <-got)
	require.Less(t, time.Since(began), 10*time.Second, "it waited for the lease")
}
