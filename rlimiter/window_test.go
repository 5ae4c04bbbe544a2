package rlimiter_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/rlimiter"
)

// window is what a limiter should know: a list of grants by the server's clock.
type window struct {
	rate, interval int64
	grants         []rlimiter.Grant
}

// free is how many permits there are at a moment, in ms of the server's clock.
func (w *window) free(at int64) int64 {
	n := w.rate
	for _, g := range w.grants {
		if g.At >= at-w.interval {
			n -= g.N
		}
	}
	return n
}

// giveBack takes the newest n permits out that are in the window at that moment.
func (w *window) giveBack(at, n int64) {
	for i := len(w.grants) - 1; i >= 0 && n > 0 && w.grants[i].At >= at-w.interval; i-- {
		back := min(n, w.grants[i].N)
		w.grants[i].N -= back
		n -= back
	}
	w.grants = slices.DeleteFunc(w.grants, func(g rlimiter.Grant) bool { return g.N == 0 })
}

// Random calls, each held against a model that knows the grants of the server's
// record alone: what is granted fits the window, what is refused doesn't, and the
// time that a refusal tells is the time after which it would.
func TestWindowAgainstAModel(t *testing.T) {
	const rate, interval = 20, 60
	seed := rand.Uint64()
	t.Log("seed:", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	ctx := t.Context()
	c, rdb := connect(t), rlimiter.Server().Client(t)
	l := c.RateLimiter(name(t))
	set(t, l, rate, interval*time.Millisecond)
	w := &window{rate: rate, interval: interval}
	now := func() int64 { return rdb.Time(ctx).Val().UnixMilli() }
	known := map[string]bool{}
	var granted, refused, given int
	for range 1500 {
		before := now()
		switch p := rng.IntN(100); {
		case p < 75:
			n := 1 + rng.Int64N(min(8, w.rate))
			err := l.TryAcquire(ctx, n)
			after := now()
			if err == nil {
				granted++
				grants := rlimiter.Grants(t, name(t))
				g := grants[slices.IndexFunc(grants, func(g rlimiter.Grant) bool { return !known[g.Member] })]
				known[g.Member] = true
				require.Equal(t, n, g.N)
				require.GreaterOrEqual(t, g.At, before)
				require.LessOrEqual(t, g.At, after)
				require.GreaterOrEqual(t, w.free(g.At), n, "granted what isn't free")
				w.grants = append(w.grants, g)
				slices.SortStableFunc(w.grants, func(a, b rlimiter.Grant) int { // as Redis
					return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Member, b.Member))
				})
				break
			}
			refused++
			due := remaining(t, err).Milliseconds()
			require.Less(t, w.free(before), n, "refused what is free")
			require.Positive(t, due)
			require.Less(t, w.free(before+due-1), n, "told to wait longer than it takes")
			require.GreaterOrEqual(t, w.free(after+due), n, "told to come back too early")
		case p < 85:
			given++
			n := 1 + rng.Int64N(6)
			require.NoError(t, l.Release(ctx, n))
			after := now()
			if at := after; w.edgeBetween(before, after) {
				// Which grants were still in the window can't be told: ask Redis.
				w.grants = slices.DeleteFunc(rlimiter.Grants(t, name(t)), func(g rlimiter.Grant) bool { return g.At < at-interval })
			} else {
				w.giveBack(after, n)
			}
		case p < 90:
			w.rate = 8 + rng.Int64N(rate)
			require.NoError(t, l.UpdateRate(ctx, rlimiter.Overall, w.rate, interval*time.Millisecond))
		case p < 98:
			n := available(t, l)
			require.GreaterOrEqual(t, n, max(w.free(before), 0))
			require.LessOrEqual(t, n, max(w.free(now()), 0))
		default: // idle, until all have left
			for w.free(now()) < w.rate {
			}
			require.Equal(t, w.rate, available(t, l))
		}
	}
	t.Logf("%d granted, %d refused, %d times given back", granted, refused, given)
	require.Greater(t, granted, 50)
	require.Greater(t, refused, 50)
}

// edgeBetween reports whether a grant left the window between two moments.
func (w *window) edgeBetween(before, after int64) bool {
	return slices.ContainsFunc(w.grants, func(g rlimiter.Grant) bool {
		return g.At >= before-w.interval && g.At < after-w.interval
	})
}

// Two clients with many goroutines, in bursts on the borders of windows and between
// them: in no span of the interval are there more grants than the rate, and what is
// allowed is used.
func TestA50NeverMoreThanTheRateInAnySpan(t *testing.T) {
	const rate, spans = 10, 6
	const interval = 500 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), spans*interval)
	defer cancel()
	a, b := connect(t), connect(t)
	set(t, a.RateLimiter(name(t)), rate, interval)
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		history = map[string]rlimiter.Grant{} // by member
	)
	note := func() {
		grants := rlimiter.Grants(t, name(t))
		mu.Lock()
		defer mu.Unlock()
		for _, g := range grants {
			history[g.Member] = g
		}
	}
	start := time.Now()
	for i := range 20 {
		l := []*peer{a, b}[i%2].RateLimiter(name(t))
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if i < 10 { // wait as long as it takes; the others come in bursts on the borders
					if err := l.Acquire(ctx, 1); err != nil && !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					note()
					continue
				}
				border := start.Add(time.Duration(n+1) * interval)
				select {
				case <-ctx.Done():
				case <-time.After(time.Until(border)):
					err := l.TryAcquire(ctx, 1)
					if err != nil && !errors.Is(err, holdfast.ErrNotAcquired) && !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					note()
				}
			}
		})
	}
	wg.Wait()
	note()
	var all []rlimiter.Grant
	for _, g := range history {
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b rlimiter.Grant) int { return cmp.Compare(a.At, b.At) })
	for i, first := range all {
		var n int64
		for _, g := range all[i:] {
			if g.At-first.At <= interval.Milliseconds() {
				n += g.N
			}
		}
		require.LessOrEqual(t, n, int64(rate), "from %d on", first.At)
	}
	require.GreaterOrEqual(t, len(all), rate*spans/2, fmt.Sprint("too few: ", len(all)))
}
