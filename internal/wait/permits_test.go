package wait

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/errs"
)

// stock is a server with permits. Askers say their number: "who/n".
type stock struct {
	mu   sync.Mutex
	free int64
	slow time.Duration // an answer takes so long
}

func (s *stock) answer(_ context.Context, who string, _ time.Time) (Outcome, error) {
	if s.slow > 0 {
		time.Sleep(s.slow)
	}
	var n int64
	if _, err := fmt.Sscanf(who[len(who)-1:], "%d", &n); err != nil {
		return Outcome{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free < n {
		return Outcome{TTL: -1, Free: s.free}, nil
	}
	s.free -= n
	return Outcome{Granted: true, TTL: -1}, nil
}

// add puts permits back, tells it, and returns when everybody has reacted.
func (b *bench) add(s *stock, n int64) {
	s.mu.Lock()
	s.free += n
	s.mu.Unlock()
	b.ring()
	synctest.Wait()
}

func (b *bench) wants(who string, n int64) Spec {
	spec := b.forever(fmt.Sprintf("%s/%d", who, n))
	spec.Wanted = n
	return spec
}

// Where nobody waits, callers ask side by side: none has to wait for the answer
// to another one.
func TestPermitsAreAskedForSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stock{free: 50, slow: time.Second}
		b := newBench(s.answer)
		var calls []*call
		for i := range 50 {
			calls = append(calls, b.start(t.Context(), b.wants(fmt.Sprint(i), 1)))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		for _, c := range calls {
			require.True(t, c.done())
			require.NoError(t, c.err)
		}
		_, made := b.subscriptions()
		require.Zero(t, made)
		b.idle(t)
	})
}

// Those who want the same number stand in line, so that a release costs one try
// more than it serves; those who want another number don't stand in their way.
func TestPermitsServeWhoeverCanGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stock{}
		b := newBench(s.answer)
		big := b.start(t.Context(), b.wants("big", 5))
		var ones []*call
		for i := range 10 {
			ones = append(ones, b.start(t.Context(), b.wants(fmt.Sprint("one", i), 1)))
		}
		b.asked()

		b.add(s, 3)
		require.Len(t, b.asked(), 3+1+1, "three are served, and one of each line is refused")
		for i, c := range ones {
			require.Equal(t, i < 3, c.done(), i)
		}
		require.False(t, big.done())
		b.add(s, 12)
		require.True(t, big.done())
		for _, c := range ones {
			require.True(t, c.done())
			require.NoError(t, c.err)
		}
		require.NoError(t, big.err)
		b.idle(t)
	})
}

// Who was refused before it stood in line asks again when it listens, not before.
func TestRefusedAskerListensFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stock{}
		b := newBench(s.answer)
		b.deaf = true
		c := b.start(t.Context(), b.wants("a", 1))
		require.Len(t, b.asked(), 1)
		s.mu.Lock()
		s.free = 1 // a release that nobody hears
		s.mu.Unlock()
		b.confirm()
		synctest.Wait()
		require.True(t, c.done(), "the release was missed")
		require.Len(t, b.asked(), 1)
		b.idle(t)
	})
}

// A release that isn't published pokes every line of the name, and no lock's.
func TestFreedPokesAllLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stock{}
		b := newBench(s.answer)
		one, two := b.start(t.Context(), b.wants("a", 1)), b.start(t.Context(), b.wants("b", 2))
		s.mu.Lock()
		s.free = 3
		s.mu.Unlock()
		b.Released(name, false)
		synctest.Wait()
		require.False(t, one.done())
		b.Freed(name)
		synctest.Wait()
		require.True(t, one.done())
		require.True(t, two.done())
		b.idle(t)
	})
}

// A refusal says how many were wanted and how many there were.
func TestRefusalOfPermitsSaysHowMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stock{free: 2}
		b := newBench(s.answer)
		for _, wait := range []time.Duration{0, time.Second} {
			spec := b.wants("a", 3)
			spec.Forever, spec.Wait = false, wait
			c := b.start(t.Context(), spec)
			time.Sleep(wait)
			synctest.Wait()
			require.Equal(t, &errs.NotAcquiredError{Name: name, Remaining: -1, Wanted: 3, Free: 2}, c.err)
			require.Contains(t, c.err.Error(), "wanted 3, free 2")
		}
		b.idle(t)
	})
}

// One that comes while a caller is being refused, before it stands in line, is not
// missed by it, even if it hears nothing.
func TestFreedBeforeStandingInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bench
		n := 0
		b = newBench(func(context.Context, string, time.Time) (Outcome, error) {
			n++
			if n == 1 {
				b.Freed(name) // the answer is under way already
			}
			return Outcome{TTL: time.Hour, Granted: n == 2}, nil
		})
		spec := b.wants("a", 1)
		spec.Delay = func(int) time.Duration { return time.Hour }
		c := b.start(t.Context(), spec)
		synctest.Wait()
		require.True(t, c.done(), "it sleeps until it is due")
		require.NoError(t, c.err)
		b.idle(t)
	})
}
