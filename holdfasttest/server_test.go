package holdfasttest

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
)

func TestServersShareNothing(t *testing.T) {
	for range 2 {
		_, err := New(t).Lock("order").TryLock(t.Context())
		require.NoError(t, err)
	}
}

func TestFastForwardEndsLeases(t *testing.T) {
	s := NewServer(t)
	a, b := s.Client(), s.Client(holdfast.WithPollFallback(time.Hour))
	_, err := a.Lock("order").Lock(t.Context()) // for 30 s
	require.NoError(t, err)

	got := make(chan error, 1)
	go func() {
		_, err := b.Lock("order").Lock(t.Context())
		got <- err
	}()
	awaitSubscriber(t, s)

	s.FastForward(-time.Hour)
	s.FastForward(25 * time.Second)
	ttl, err := a.Lock("order").TTL(t.Context())
	require.NoError(t, err)
	require.InDelta(t, 5*time.Second, ttl, float64(4*time.Second))
	require.Empty(t, got, "there were 5 s left")

	s.FastForward(6 * time.Second)
	select {
	case err := <-got:
		require.NoError(t, err)
	case <-time.After(within):
		t.Fatal("the waiter wasn't woken")
	}
}

func TestFastForwardMovesTime(t *testing.T) {
	s := NewServer(t)
	s.FastForward(time.Hour)
	want := time.Now().Add(time.Hour)

	now, err := s.Redis().Time(t.Context()).Result()
	require.NoError(t, err)
	require.WithinDuration(t, want, now, within)

	script := redis.NewScript(`return redis.call('TIME')[1]`)
	sec, err := script.Run(t.Context(), s.Redis(), nil).Int64()
	require.NoError(t, err)
	require.WithinDuration(t, want, time.Unix(sec, 0), within+time.Second)
}

func TestAddresses(t *testing.T) {
	s := NewServer(t)
	require.Equal(t, "redis://"+s.Addr()+"/0", s.URL())
	require.NoError(t, s.Redis().Ping(t.Context()).Err())
	c, err := holdfast.Open(s.URL())
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Lock("order").TryLock(t.Context())
	require.NoError(t, err)
}

func TestCloseComesEarlyAndTwice(t *testing.T) {
	s := NewServer(t)
	closed := s.Client()
	require.NoError(t, closed.Close())
	c := s.Client()
	s.Close()
	s.Close()
	_, err := c.Lock("order").TryLock(t.Context())
	require.ErrorIs(t, err, holdfast.ErrClosed)
}

func TestMisuseEndsTheTest(t *testing.T) {
	bad := holdfast.WithLease(time.Millisecond)
	for name, f := range map[string]func(testing.TB){
		"option of New":    func(tb testing.TB) { New(tb, bad) },
		"option of Client": func(tb testing.TB) { NewServer(tb).Client(bad) },
		"closed server": func(tb testing.TB) {
			s := NewServer(tb)
			s.Close()
			s.Client()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := record(t, f)
			require.Contains(t, r.fatal, "holdfasttest: ")
		})
	}
}

func TestMisusePanicsWithoutATest(t *testing.T) {
	s, err := Start()
	require.NoError(t, err)
	defer s.Close()
	require.PanicsWithError(t,
		"holdfasttest: holdfast: invalid argument: WithLease(1ms): a lease below 30ms can't be renewed in time: choose a longer one",
		func() { s.Client(holdfast.WithLease(time.Millisecond)) })
}

// recorder is a test that is allowed to fail.
type recorder struct {
	testing.TB
	fatal    string
	cleanups []func()
}

func (r *recorder) Helper()          {}
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *recorder) Fatal(args ...any) {
	r.fatal = fmt.Sprint(args...)
	runtime.Goexit()
}

// record runs f as a test of its own.
func record(t *testing.T, f func(testing.TB)) *recorder {
	r := &recorder{TB: t}
	var wg sync.WaitGroup
	wg.Go(func() { f(r) })
	wg.Wait()
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
	return r
}

// Errors are those of a real server.
func TestNameThatHoldsSomethingElse(t *testing.T) {
	s := NewServer(t)
	c := s.Client()
	_, err := c.Semaphore("n").TrySetPermits(t.Context(), 3)
	require.NoError(t, err)
	_, err = c.Lock("n").TryLock(t.Context())
	require.ErrorIs(t, err, holdfast.ErrInvalid)
	require.ErrorContains(t, err, "holds a string")
}

// Code under test may ask for the address of a server that has gone.
func TestAddressOutlivesTheServer(t *testing.T) {
	s := NewServer(t)
	before := s.URL()
	s.Close()
	require.Equal(t, before, s.URL())
}
