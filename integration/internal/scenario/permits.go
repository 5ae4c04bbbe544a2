package scenario

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rlimiter"
)

// permits are what is acquired in numbers.
type permits struct {
	// take acquires one and answers how it is given back.
	take func(ctx context.Context) (giveBack func(context.Context) error, err error)
	// left is how many there are for others.
	left func(ctx context.Context) (int64, error)
	// keep: what was acquired isn't given back in A33. A limiter takes the newest
	// grants out, and that may be one which is being undone at that moment.
	keep  bool
	total int64
}

const (
	supply = 5
	rate   = 1000 // of the limiter, whose permits aren't given back
)

// supplies are all kinds of permits, each of which has permits under name.
func supplies(t *testing.T, c *holdfast.Client, look *holdfast.Client, name string) map[string]permits {
	t.Helper()
	ctx := t.Context()
	sem, exp, limiter := c.Semaphore(name+"-s"), c.ExpirableSemaphore(name+"-e"), c.RateLimiter(name+"-r")
	_, err := look.Semaphore(sem.Name()).TrySetPermits(ctx, supply)
	require.NoError(t, err)
	_, err = look.ExpirableSemaphore(exp.Name()).TrySetPermits(ctx, supply)
	require.NoError(t, err)
	require.NoError(t, look.RateLimiter(limiter.Name()).SetRate(ctx, rlimiter.Overall, rate, time.Hour))
	return map[string]permits{
		"semaphore": {
			take: func(ctx context.Context) (func(context.Context) error, error) {
				return func(ctx context.Context) error { return sem.Release(ctx, 1) }, sem.Acquire(ctx, 1)
			},
			left:  look.Semaphore(sem.Name()).Available,
			total: supply,
		},
		"expirable": {
			take: func(ctx context.Context) (func(context.Context) error, error) {
				p, err := exp.Acquire(ctx)
				if err != nil {
					return nil, err
				}
				return p.Release, nil
			},
			left:  look.ExpirableSemaphore(exp.Name()).Available,
			total: supply,
		},
		"rate limiter": {
			take: func(ctx context.Context) (func(context.Context) error, error) {
				return func(ctx context.Context) error { return limiter.Release(ctx, 1) }, limiter.Acquire(ctx, 1)
			},
			left:  look.RateLimiter(limiter.Name()).Available,
			total: rate,
			keep:  true,
		},
	}
}

// CancelledAcquiresEatNoPermit is A33: acquisitions whose contexts end around the
// moment of their success, over a slow link.
func (p Place) CancelledAcquiresEatNoPermit(t *testing.T) {
	c := p.Via(t, locktest.Link{})
	for _, x := range c.All() {
		x.SetLatency(time.Millisecond, 10*time.Millisecond)
	}
	look := p.Connect(t)
	for kind, s := range supplies(t, c.Client, look, t.Name()) {
		var got, cancelled atomic.Int32
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for range 10 {
					ctx, cancel := context.WithTimeout(t.Context(), rand.N(40*time.Millisecond))
					switch giveBack, err := s.take(ctx); {
					case err == nil:
						got.Add(1)
						if s.keep {
							break
						}
						// The context may end under it; it goes on behind.
						if err := giveBack(ctx); err != nil && !errors.Is(err, holdfast.ErrUncertain) {
							t.Error(kind, err)
						}
					case errors.Is(err, context.DeadlineExceeded):
						cancelled.Add(1)
					default:
						t.Error(kind, err)
					}
					cancel()
				}
			})
		}
		wg.Wait()
		require.NotZero(t, cancelled.Load(), kind)
		redistest.Eventually(t, 2*prompt, func() bool {
			n, err := s.left(t.Context())
			if s.keep {
				n += int64(got.Load())
			}
			return err == nil && n == s.total
		}, "%s: of %d calls that got a permit and %d that were cancelled, some ate one", kind, got.Load(), cancelled.Load())
	}
}

// PermitsCountOnce is A18 and A19 for permits: what is sent again is taken, and
// given back, once.
func (p Place) PermitsCountOnce(t *testing.T) {
	c := p.Via(t, locktest.Link{Read: 200 * time.Millisecond})
	for kind, s := range supplies(t, c.Client, p.Connect(t), t.Name()) {
		for range 2 { // the scripts are known at the second time
			giveBack, err := s.take(t.Context())
			require.NoError(t, err)
			require.NoError(t, giveBack(t.Context()))
		}
		for _, do := range []faultproxy.Action{faultproxy.DropReply, faultproxy.CloseAfterForward} {
			once := func(left int64, call func() error) {
				t.Helper()
				faults := c.Add(faultproxy.Rule{Match: faultproxy.Cmd("evalsha", "eval"), Times: 1, Do: do})
				require.NoError(t, call(), kind)
				hits := 0
				for _, f := range faults {
					hits += f.Hits()
					f.Remove()
				}
				require.NotZero(t, hits, kind)
				n, err := s.left(t.Context())
				require.NoError(t, err)
				require.Equal(t, left, n, kind)
			}
			var giveBack func(context.Context) error
			once(s.total-1, func() (err error) { giveBack, err = s.take(t.Context()); return err })
			once(s.total, func() error { return giveBack(t.Context()) })
		}
	}
}
