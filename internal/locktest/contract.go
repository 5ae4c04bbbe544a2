// Package locktest is the contract suite that every kind of lock passes. Only
// tests import it.
package locktest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/owner"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// Kind is one kind of lock under test.
type Kind struct {
	// New makes a client of its own, closed with the test, whose holds that
	// are renewed have this lease, and answers how it makes locks of a name.
	New func(t *testing.T, lease time.Duration) func(name string) hold.Locker
	// Redis looks at the same servers.
	Redis redis.UniversalClient
	// Resume takes up a detached hold with the client that l was made by.
	Resume func(l hold.Locker, ctx context.Context, handle string) (*hold.Hold, error)
	// NonReentrant kinds answer ErrReentry to an owner who is in.
	NonReentrant bool
	// Rival answers the lock of l's name that l's holds keep out, and whose holds
	// keep out l, where that isn't l itself: several may read, but no writer beside
	// them. nil: l itself.
	Rival func(l hold.Locker) hold.Locker
	// ReadWrite kinds are at home in the hash of a read-write lock, and not in that
	// of a plain one.
	ReadWrite bool
	// More are further servers on which the lock has the same key: what the suite
	// does to a key it does on each.
	More []redis.UniversalClient
	// Splits: contenders who try at once may keep each other out, so that none of
	// them wins.
	Splits bool
	// NoHandOver: holds can't be detached, which is ErrInvalid.
	NoHandOver bool
}

// servers are all on which the lock has its key.
func (k Kind) servers() []redis.UniversalClient {
	return append([]redis.UniversalClient{k.Redis}, k.More...)
}

func (k Kind) del(t *testing.T, key string) {
	t.Helper()
	for _, rdb := range k.servers() {
		require.NoError(t, rdb.Del(t.Context(), key).Err())
	}
}

func (k Kind) rival(l hold.Locker) hold.Locker {
	if k.Rival == nil {
		return l
	}
	return k.Rival(l)
}

const (
	lease  = 5 * time.Second  // a quorum gives each server a tenth of it to answer
	prompt = 10 * time.Second // generous: what is asserted is order, not speed
)

var names struct {
	sync.Mutex
	n int
}

// name answers a name that no other test uses.
func name(t *testing.T) string {
	names.Lock()
	defer names.Unlock()
	names.n++
	return fmt.Sprintf("%s-%d", t.Name(), names.n)
}

func as(t *testing.T, id string) context.Context {
	return owner.With(t.Context(), owner.Chosen(id))
}

// Run runs the whole suite.
func Run(t *testing.T, k Kind) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, Kind)
	}{
		{"HoldsAndFrees", holdsAndFrees},
		{"ExcludesOwnersOfOneClient", excludesOwners},
		{"ExcludesOtherClients", excludesClients},
		{"ReentersByContextOnly", reenters},
		{"EachHoldIsGivenBackOnce", givenBackOnce},
		{"UnlockByOwner", unlockByOwner},
		{"NotHeldSaysWhy", notHeldSaysWhy},
		{"NoOwner", noOwner},
		{"WaiterIsWoken", waiterIsWoken},
		{"WaitIsBounded", waitIsBounded},
		{"WaitEndsWithContext", waitEndsWithContext},
		{"FixedLeaseEnds", fixedLeaseEnds},
		{"RenewedLeaseLasts", renewedLeaseLasts},
		{"LifeIsNeverShortened", neverShortened},
		{"ForceUnlock", forceUnlock},
		{"LossIsToldAtRenewal", lossIsTold},
		{"Extend", extend},
		{"Do", do},
		{"DoFreesOnPanic", doPanics},
		{"UnlockAfterContextEnded", unlockAfterContext},
		{"OneOfTwentyWins", oneOfTwenty},
		{"BadArguments", badArguments},
		{"ForeignKeysAreLeftAlone", foreignKeys},
		{"HandOver", handOver},
		{"MutualExclusionUnderLoad", exclusionUnderLoad},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, k) })
	}
}

func holdsAndFrees(t *testing.T, k Kind) {
	l := k.New(t, lease)(name(t))
	ctx := as(t, "a")
	locked, err := l.IsLocked(ctx)
	require.NoError(t, err)
	require.False(t, locked)
	ttl, err := l.TTL(ctx)
	require.NoError(t, err)
	require.Zero(t, ttl)

	h, err := l.Lock(ctx)
	require.NoError(t, err)
	require.Equal(t, l.Name(), h.Name())
	require.True(t, h.ExpiresAt().After(time.Now()))
	require.NoError(t, h.Context().Err())
	locked, err = l.IsLocked(ctx)
	require.NoError(t, err)
	require.True(t, locked)
	held, err := l.IsHeld(ctx)
	require.NoError(t, err)
	require.True(t, held)
	held, err = l.IsHeld(as(t, "b"))
	require.NoError(t, err)
	require.False(t, held)
	ttl, err = l.TTL(ctx)
	require.NoError(t, err)
	require.Positive(t, ttl)
	require.LessOrEqual(t, ttl, lease)

	require.NoError(t, h.Unlock(ctx))
	require.ErrorIs(t, h.Context().Err(), context.Canceled)
	require.ErrorIs(t, context.Cause(h.Context()), errs.ErrReleased)
	locked, err = l.IsLocked(ctx)
	require.NoError(t, err)
	require.False(t, locked)
}

// Answered asks up to four times, until somebody answers: on a machine that stands
// still, nobody may in the time that a call has.
func Answered(ask func() error) error {
	for range 3 {
		if err := ask(); !errors.Is(err, errs.ErrUnavailable) {
			return err
		}
	}
	return ask()
}

func refused(t *testing.T, l hold.Locker, ctx context.Context) {
	t.Helper()
	err := Answered(func() error {
		_, err := l.TryLock(ctx)
		return err
	})
	require.ErrorIs(t, err, errs.ErrNotAcquired)
	var e *errs.NotAcquiredError
	require.ErrorAs(t, err, &e)
	require.Equal(t, l.Name(), e.Name)
	require.Positive(t, e.Remaining)
}

func excludesOwners(t *testing.T, k Kind) {
	l := k.New(t, lease)(name(t))
	h, err := l.Lock(as(t, "a"))
	require.NoError(t, err)
	rival := k.rival(l)
	refused(t, rival, as(t, "b"))
	refused(t, rival, t.Context()) // a fresh owner is somebody else
	require.NoError(t, h.Unlock(t.Context()))
	h, err = rival.TryLock(as(t, "b"))
	require.NoError(t, err)
	refused(t, l, as(t, "a"))
	require.NoError(t, h.Unlock(t.Context()))
}

func excludesClients(t *testing.T, k Kind) {
	n := name(t)
	l1, l2 := k.New(t, lease)(n), k.New(t, lease)(n)
	h, err := l1.Lock(as(t, "a"))
	require.NoError(t, err)
	refused(t, k.rival(l2), as(t, "a")) // the same id in another client is another owner
	require.ErrorIs(t, l2.Unlock(as(t, "a")), errs.ErrNotHeld)
	held, err := l1.IsHeld(as(t, "a"))
	require.NoError(t, err)
	require.True(t, held, "a wrong owner's unlock freed the lock")
	require.NoError(t, h.Unlock(t.Context()))
}

func reenters(t *testing.T, k Kind) {
	lock := k.New(t, lease)
	n := name(t)
	l := lock(n)
	outer, err := l.Lock(t.Context())
	require.NoError(t, err)
	inner, err := lock(n).Lock(outer.Context()) // another object of the same name
	if k.NonReentrant {
		require.ErrorIs(t, err, errs.ErrReentry)
		require.NoError(t, outer.Unlock(t.Context()))
		return
	}
	require.NoError(t, err)
	count, err := l.HoldCount(outer.Context())
	require.NoError(t, err)
	require.Equal(t, 2, count)

	require.NoError(t, inner.Unlock(t.Context()))
	require.NoError(t, outer.Context().Err())
	refused(t, k.rival(l), as(t, "b"))
	count, err = l.HoldCount(outer.Context())
	require.NoError(t, err)
	require.Equal(t, 1, count)
	require.NoError(t, outer.Unlock(t.Context()))
	locked, err := l.IsLocked(t.Context())
	require.NoError(t, err)
	require.False(t, locked)
}

func givenBackOnce(t *testing.T, k Kind) {
	l := k.New(t, lease)(name(t))
	h, err := l.Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, h.Unlock(t.Context()))
	other, err := k.rival(l).Lock(as(t, "b"))
	require.NoError(t, err)
	require.ErrorIs(t, h.Unlock(t.Context()), errs.ErrNotHeld)
	held, err := k.rival(l).IsHeld(as(t, "b"))
	require.NoError(t, err)
	require.True(t, held, "a second unlock freed somebody else's hold")
	require.NoError(t, other.Unlock(t.Context()))
}

func unlockByOwner(t *testing.T, k Kind) {
	l := k.New(t, lease)(name(t))
	ctx := owner.With(t.Context(), owner.Mint())
	_, err := l.TryLock(ctx)
	require.NoError(t, err)
	require.NoError(t, l.Unlock(ctx))
	require.ErrorIs(t, l.Unlock(ctx), errs.ErrNotHeld)
	locked, err := l.IsLocked(ctx)
	require.NoError(t, err)
	require.False(t, locked)
}

func reason(t *testing.T, err error) errs.Reason {
	t.Helper()
	require.ErrorIs(t, err, errs.ErrNotHeld)
	var e *errs.NotHeldError
	require.ErrorAs(t, err, &e)
	require.Equal(t, e.Reason == errs.Lost, errors.Is(err, errs.ErrLost))
	return e.Reason
}

func notHeldSaysWhy(t *testing.T, k Kind) {
	l := k.New(t, lease)(name(t))
	ctx := owner.With(t.Context(), owner.Mint())
	require.Equal(t, errs.NeverHeld, reason(t, l.Unlock(ctx)))

	h, err := l.Lock(ctx)
	require.NoError(t, err)
	require.NoError(t, l.Unlock(ctx))
	require.Equal(t, errs.GivenBack, reason(t, l.Unlock(ctx)))
	require.Equal(t, errs.GivenBack, reason(t, h.Unlock(ctx)))

	h, err = l.Lock(ctx, hold.Lease(200*time.Millisecond)) // enough for several servers, one by one
	require.NoError(t, err)
	<-h.Context().Done()
	require.Equal(t, errs.Lost, reason(t, h.Unlock(ctx)))
	require.Equal(t, errs.Lost, reason(t, l.Unlock(ctx)))
}

func noOwner(t *testing.T, k Kind) {
	l := k.New(t, lease)(name(t))
	require.ErrorIs(t, l.Unlock(t.Context()), errs.ErrNoOwner)
	_, err := l.IsHeld(t.Context())
	require.ErrorIs(t, err, errs.ErrNoOwner)
	_, err = l.HoldCount(t.Context())
	require.ErrorIs(t, err, errs.ErrNoOwner)
}

func waiterIsWoken(t *testing.T, k Kind) {
	n := name(t)
	l1, l2 := k.New(t, time.Minute)(n), k.New(t, time.Minute)(n)
	h, err := l1.Lock(t.Context())
	require.NoError(t, err)
	got := make(chan error, 1)
	go func() {
		h, err := k.rival(l2).TryLock(as(t, "b"), hold.Wait(time.Minute))
		if err == nil {
			err = h.Unlock(t.Context())
		}
		got <- err
	}()
	held, err := k.rival(l2).IsHeld(as(t, "b"))
	require.NoError(t, err)
	require.False(t, held, "a waiter is no holder")
	require.NoError(t, h.Unlock(t.Context()))
	select {
	case err := <-got:
		require.NoError(t, err)
	case <-time.After(prompt):
		t.Fatal("the waiter slept through the release")
	}
}

func waitIsBounded(t *testing.T, k Kind) {
	n := name(t)
	l := k.New(t, time.Minute)(n)
	h, err := l.Lock(t.Context())
	require.NoError(t, err)
	for _, wait := range []time.Duration{-1, 0, time.Millisecond, 50 * time.Millisecond} {
		err := Answered(func() error {
			start := time.Now()
			_, err := k.rival(l).TryLock(as(t, "b"), hold.Wait(wait))
			require.GreaterOrEqual(t, time.Since(start), wait)
			return err
		})
		require.ErrorIs(t, err, errs.ErrNotAcquired)
		err = Answered(func() error {
			_, err := k.rival(l).Lock(as(t, "b"), hold.Wait(wait))
			return err
		})
		require.ErrorIs(t, err, errs.ErrNotAcquired)
	}
	require.NoError(t, h.Unlock(t.Context()))
}

func oneOfTwenty(t *testing.T, k Kind) {
	l := k.New(t, time.Minute)(name(t))
	var wg sync.WaitGroup
	wins := make(chan *hold.Hold, 20)
	for range 20 {
		wg.Go(func() {
			h, err := l.TryLock(t.Context())
			if err == nil {
				wins <- h
				return
			}
			if !errors.Is(err, errs.ErrNotAcquired) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	switch {
	case k.Splits:
		require.LessOrEqual(t, len(wins), 1)
	case k.Rival == nil:
		require.Len(t, wins, 1)
	default:
		require.Len(t, wins, 20, "they may all hold it")
		refused(t, k.rival(l), as(t, "b"))
	}
	close(wins)
	for h := range wins {
		require.NoError(t, h.Unlock(t.Context()))
	}
}

func badArguments(t *testing.T, k Kind) {
	lock := k.New(t, lease)
	for _, n := range []string{"", "a{", "}{", "{}", "a}b", string(make([]byte, 64<<10))} {
		l := lock(n)
		_, err := l.Lock(t.Context())
		require.ErrorIs(t, err, errs.ErrInvalid, "%.20q", n)
		_, err = l.TryLock(t.Context())
		require.ErrorIs(t, err, errs.ErrInvalid)
		require.ErrorIs(t, l.Unlock(as(t, "a")), errs.ErrInvalid)
		_, err = l.ForceUnlock(t.Context())
		require.ErrorIs(t, err, errs.ErrInvalid)
		_, err = l.IsLocked(t.Context())
		require.ErrorIs(t, err, errs.ErrInvalid)
		_, err = l.TTL(t.Context())
		require.ErrorIs(t, err, errs.ErrInvalid)
	}
	l := lock(name(t))
	for _, d := range []time.Duration{0, -1} {
		_, err := l.Lock(t.Context(), hold.Lease(d))
		require.ErrorIs(t, err, errs.ErrInvalid)
	}
	for _, id := range []string{"", "x:write"} {
		_, err := l.Lock(as(t, id))
		require.ErrorIs(t, err, errs.ErrInvalid)
		require.ErrorIs(t, l.Unlock(as(t, id)), errs.ErrInvalid)
	}
	locked, err := l.IsLocked(t.Context())
	require.NoError(t, err)
	require.False(t, locked)
}

func foreignKeys(t *testing.T, k Kind) {
	lock := k.New(t, lease)
	foreign := map[string]func(ctx context.Context, rdb redis.UniversalClient, key string) error{
		"string": func(ctx context.Context, rdb redis.UniversalClient, key string) error {
			return rdb.Set(ctx, key, "{}", 0).Err()
		},
		"list": func(ctx context.Context, rdb redis.UniversalClient, key string) error {
			return rdb.RPush(ctx, key, "a").Err()
		},
		"number": func(ctx context.Context, rdb redis.UniversalClient, key string) error {
			return rdb.Set(ctx, key, 3, 0).Err()
		},
		"hash": func(ctx context.Context, rdb redis.UniversalClient, key string) error {
			return rdb.HSet(ctx, key, "a", 1, "b", 2).Err()
		},
	}
	if k.ReadWrite {
		foreign["plain lock"] = func(ctx context.Context, rdb redis.UniversalClient, key string) error {
			return rdb.HSet(ctx, key, "x:1", 1).Err()
		}
	} else {
		foreign["read-write lock"] = func(ctx context.Context, rdb redis.UniversalClient, key string) error {
			return rdb.HSet(ctx, key, "mode", "read", "x:1", 1).Err()
		}
	}
	for what, put := range foreign {
		t.Run(what, func(t *testing.T) {
			n := name(t)
			var before []string
			for _, rdb := range k.servers() {
				require.NoError(t, put(t.Context(), rdb, n))
				before = append(before, rdb.Dump(t.Context(), n).Val())
			}
			l := lock(n)
			_, err := l.TryLock(t.Context())
			require.ErrorIs(t, err, errs.ErrInvalid)
			_, err = l.Lock(t.Context())
			require.ErrorIs(t, err, errs.ErrInvalid)
			_, err = l.ForceUnlock(t.Context())
			require.ErrorIs(t, err, errs.ErrInvalid)
			require.ErrorIs(t, l.Unlock(as(t, "a")), errs.ErrNotHeld)
			for i, rdb := range k.servers() {
				require.Equal(t, before[i], rdb.Dump(t.Context(), n).Val(), "it was touched")
			}
		})
	}
}

func exclusionUnderLoad(t *testing.T, k Kind) {
	n := name(t)
	a, b := k.New(t, 10*time.Second)(n), k.New(t, 10*time.Second)(n)
	inside, done := 0, 0 // guarded by the lock alone: the race detector watches
	var wg sync.WaitGroup
	for i := range 16 {
		l := a
		if i%2 == 1 {
			l = b
		}
		shares := k.Rival != nil && i%4 > 1 // beside others of its kind; the rest keeps them out
		if !shares {
			l = k.rival(l)
		}
		wg.Go(func() {
			for range 20 {
				h, err := l.Lock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if shares {
					if inside != 0 {
						t.Errorf("beside %d that keep it out", inside)
					}
				} else {
					if inside++; inside != 1 {
						t.Errorf("%d inside", inside)
					}
					inside--
					done++
				}
				if err := h.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if k.Rival == nil {
		require.Equal(t, 320, done)
	} else {
		require.Equal(t, 160, done)
	}
	redistest.Eventually(t, 2*time.Second, func() bool {
		left, err := redistest.Channels(t.Context(), k.Redis, n)
		return err == nil && len(left) == 0
	}, "channels are left")
}
