package wait

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/errs"
)

func TestOneTryWithoutTimeToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var until time.Time
		b := newBench(func(_ context.Context, _ string, u time.Time) (Outcome, error) {
			until = u
			return Outcome{TTL: 7 * time.Second}, nil
		})
		for _, d := range []time.Duration{0, -1, -time.Hour} {
			err := b.Acquire(t.Context(), b.within("a", d))
			var e *errs.NotAcquiredError
			require.ErrorAs(t, err, &e)
			require.Equal(t, &errs.NotAcquiredError{Name: name, Remaining: 7 * time.Second}, e)
			require.Equal(t, b.began.Add(patience), until)
			require.Len(t, b.asked(), 1)
		}
		b.answer = replies(Outcome{}, errs.ErrUnavailable)
		err := b.Acquire(t.Context(), b.within("a", 0))
		require.ErrorIs(t, err, errs.ErrUnavailable)
		require.NotErrorIs(t, err, errs.ErrNotAcquired)
		_, made := b.subscriptions()
		require.Zero(t, made, "who doesn't wait doesn't listen")
		require.Zero(t, b.now())
		b.idle(t)
	})
}

func TestReleaseBeforeTheSubscriptionStandsIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := heldLock()
		l.ttl = time.Hour
		b := newBench(l.answer)
		b.deaf = true
		c := b.start(t.Context(), b.forever("a"))
		time.Sleep(time.Second)
		l.free() // nobody hears it
		synctest.Wait()
		require.False(t, c.done())
		require.Len(t, b.asked(), 1)

		b.confirm()
		synctest.Wait()
		require.True(t, c.done())
		require.NoError(t, c.err)
		require.Equal(t, time.Second, c.at)
		b.idle(t)
	})
}

func TestDeafWaiterPolls(t *testing.T) {
	for _, ttl := range []time.Duration{-1, -2, time.Hour, poll} {
		t.Run(fmt.Sprint(ttl), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(replies(Outcome{TTL: ttl}, nil))
				b.deaf = true
				ctx, cancel := context.WithCancel(t.Context())
				c := b.start(ctx, b.forever("a"))
				time.Sleep(4*poll + time.Second)
				synctest.Wait()
				require.Equal(t, []time.Duration{0, poll, 2 * poll, 3 * poll, 4 * poll}, times(b.asked()))
				cancel()
				synctest.Wait()
				require.ErrorIs(t, c.err, context.Canceled)
				b.idle(t)
			})
		})
	}
}

func TestRemainingTimeDrivesTheNextTry(t *testing.T) {
	for _, ttl := range []time.Duration{time.Millisecond, 700 * time.Millisecond, 3 * time.Second} {
		t.Run(fmt.Sprint(ttl), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				b := newBench(func(context.Context, string, time.Time) (Outcome, error) {
					n++
					return Outcome{TTL: ttl, Granted: n == 4}, nil
				})
				b.deaf = true
				c := b.start(t.Context(), b.forever("a"))
				time.Sleep(3*(ttl+settle) - time.Nanosecond)
				synctest.Wait()
				require.False(t, c.done())
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				require.True(t, c.done())
				require.NoError(t, c.err)
				require.Equal(t, []time.Duration{0, ttl + settle, 2 * (ttl + settle), 3 * (ttl + settle)}, times(b.asked()))
				b.idle(t)
			})
		})
	}
}

func TestNoTimeRemainingIsNoBusyLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(replies(Outcome{TTL: 0}, nil))
		c := b.start(t.Context(), b.within("a", time.Second))
		time.Sleep(time.Second)
		synctest.Wait()
		require.True(t, c.done())
		require.ErrorIs(t, c.err, errs.ErrNotAcquired)
		require.LessOrEqual(t, len(b.asked()), 502)
		b.idle(t)
	})
}

func TestTemporaryErrorsAreTriedAgainWithPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var err error
		n := 0
		b := newBench(func(context.Context, string, time.Time) (Outcome, error) {
			n++
			err = fmt.Errorf("%w: number %d", errs.ErrUnavailable, n)
			return Outcome{}, err
		})
		b.deaf = true
		why := errors.New("the request is over")
		ctx, cancel := context.WithCancelCause(t.Context())
		c := b.start(ctx, b.forever("a"))
		time.Sleep(4 * time.Second)
		synctest.Wait()
		ms := time.Millisecond
		require.Equal(t, []time.Duration{0, 50 * ms, 150 * ms, 350 * ms, 750 * ms, 1550 * ms, 2550 * ms, 3550 * ms}, times(b.asked()))

		// An answer ends the row: the next failure is the first of a new one.
		b.mu.Lock()
		failing := b.answer
		b.answer = replies(Outcome{TTL: time.Second - settle}, nil)
		b.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []time.Duration{4550 * ms}, times(b.asked()))
		b.mu.Lock()
		b.answer = failing
		b.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []time.Duration{5550 * ms, 5600 * ms, 5700 * ms, 5900 * ms}, times(b.asked()))

		cancel(why)
		synctest.Wait()
		require.True(t, c.done())
		require.ErrorIs(t, c.err, context.Canceled)
		require.ErrorIs(t, c.err, why)
		require.ErrorIs(t, c.err, errs.ErrUnavailable)
		require.ErrorIs(t, c.err, err, "the last failure is the one to tell")
		require.NotErrorIs(t, c.err, errs.ErrNotAcquired)
		b.idle(t)
	})
}

func TestRecoveryEndsInAGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lock{}
		b := newBench(replies(Outcome{}, errs.ErrUnavailable))
		c := b.start(t.Context(), b.within("a", time.Minute))
		time.Sleep(10 * time.Second)
		b.mu.Lock()
		b.answer = l.answer
		b.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		require.True(t, c.done())
		require.NoError(t, c.err)
		b.idle(t)
	})
}

func TestOtherErrorsEndTheWait(t *testing.T) {
	for _, err := range []error{errs.ErrDenied, errs.ErrInvalid, errs.ErrReentry, errors.New("whatever")} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(replies(Outcome{}, err))
			require.ErrorIs(t, b.Acquire(t.Context(), b.forever("a")), err)
			require.Len(t, b.asked(), 1)
			b.idle(t)
		})
	}
}

// "Taken" and "no answer" must stay apart, for whoever stands in line too.
func TestNoAnswerIsNeverCalledTaken(t *testing.T) {
	for what, answer := range map[string]func(n int) (Outcome, error){
		"never": func(int) (Outcome, error) { return Outcome{}, errs.ErrUnavailable },
		"not any more": func(n int) (Outcome, error) {
			if n == 1 {
				return Outcome{TTL: time.Millisecond}, nil
			}
			return Outcome{}, errs.ErrUnavailable
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				b := newBench(func(context.Context, string, time.Time) (Outcome, error) {
					n++
					return answer(n)
				})
				first := b.start(t.Context(), b.within("first", 3*time.Second))
				second := b.start(t.Context(), b.within("second", 2*time.Second))
				third := b.start(t.Context(), b.within("third", 4*time.Second))
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				fourth := b.start(ctx, b.forever("fourth"))
				time.Sleep(4 * time.Second)
				synctest.Wait()
				for i, c := range []*call{first, second, third, fourth} {
					require.True(t, c.done())
					require.ErrorIs(t, c.err, errs.ErrUnavailable)
					require.NotErrorIs(t, c.err, errs.ErrNotAcquired)
					require.Equal(t, []time.Duration{3, 2, 4, 1}[i]*time.Second, c.at)
				}
				require.ErrorIs(t, fourth.err, context.DeadlineExceeded)
				require.NotErrorIs(t, first.err, context.DeadlineExceeded, "it was not the caller's deadline")
				b.idle(t)
			})
		})
	}
}

// A try that hangs ends with the time to wait, and that isn't the context's end.
func TestHangingTryEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(func(ctx context.Context, _ string, _ time.Time) (Outcome, error) {
			<-ctx.Done()
			return Outcome{}, ctx.Err()
		})
		first := b.start(t.Context(), b.within("first", 2*time.Second))
		second := b.start(t.Context(), b.within("second", time.Second))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		for i, c := range []*call{first, second} {
			require.True(t, c.done())
			require.ErrorIs(t, c.err, errs.ErrUnavailable)
			require.NotErrorIs(t, c.err, errs.ErrNotAcquired)
			require.NotErrorIs(t, c.err, context.DeadlineExceeded)
			require.Equal(t, []time.Duration{2, 1}[i]*time.Second, c.at)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := b.Acquire(ctx, b.within("first", time.Minute))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		b.idle(t)
	})
}

// slow answers after d, unless the context ends before.
func slow(d time.Duration, out Outcome) func(context.Context, string, time.Time) (Outcome, error) {
	return func(ctx context.Context, _ string, _ time.Time) (Outcome, error) {
		select {
		case <-time.After(d):
			return out, nil
		case <-ctx.Done():
			return Outcome{}, ctx.Err()
		}
	}
}

// Who waits for a millisecond wants to know whether the name is taken.
func TestShortWaitGetsAnAnswer(t *testing.T) {
	for range 20 { // select takes any of what is due
		synctest.Test(t, func(t *testing.T) {
			const trip = firstTry - 100*time.Millisecond
			b := newBench(slow(trip, Outcome{TTL: time.Hour}))
			first := b.start(t.Context(), b.within("first", time.Millisecond))
			second := b.start(t.Context(), b.within("second", time.Millisecond)) // in line behind it
			alone := b.within("alone", time.Millisecond)
			alone.Line = ""
			third := b.start(t.Context(), alone)
			time.Sleep(2 * firstTry)
			synctest.Wait()
			for i, c := range []*call{first, second, third} {
				require.True(t, c.done())
				require.ErrorIs(t, c.err, errs.ErrNotAcquired)
				require.Equal(t, trip+[]time.Duration{0, time.Millisecond, 0}[i], c.at)
			}
			require.Len(t, b.asked(), 3)
			b.idle(t)

			// With no answer at all it isn't long either, and isn't called taken.
			b.began, b.answer = time.Now(), slow(time.Hour, Outcome{})
			first = b.start(t.Context(), b.within("first", time.Millisecond))
			second = b.start(t.Context(), b.within("second", time.Millisecond))
			third = b.start(t.Context(), alone)
			time.Sleep(2 * firstTry)
			synctest.Wait()
			for _, c := range []*call{first, second, third} {
				require.True(t, c.done())
				require.ErrorIs(t, c.err, errs.ErrUnavailable)
				require.NotErrorIs(t, c.err, errs.ErrNotAcquired)
				require.Equal(t, firstTry, c.at)
			}
			b.idle(t)
		})
	}
}

// A try that the end of the wait cuts off says nothing about Redis, which had
// answered all along: neither to its own waiter nor to those in line behind.
func TestTryCutOffByTheEndOfTheWait(t *testing.T) {
	for _, line := range []string{"", name} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(slow(10*time.Millisecond, Outcome{TTL: time.Hour}))
			spec := b.within("a", time.Second)
			spec.Line = line
			var calls []*call
			for range 3 {
				calls = append(calls, b.start(t.Context(), spec))
			}
			later := b.start(t.Context(), b.within("b", time.Second+time.Millisecond))
			time.Sleep(time.Second - 5*time.Millisecond)
			b.ring()
			time.Sleep(time.Second)
			synctest.Wait()
			for _, c := range append(calls, later) {
				require.True(t, c.done())
				require.ErrorIs(t, c.err, errs.ErrNotAcquired)
				var e *errs.NotAcquiredError
				require.ErrorAs(t, c.err, &e)
				require.Equal(t, time.Hour, e.Remaining)
				require.LessOrEqual(t, c.at, time.Second+time.Millisecond+laterTry)
			}
			b.idle(t)
		})
	}
}

func TestClosed(t *testing.T) {
	for range 20 { // select takes any of what is due
		synctest.Test(t, func(t *testing.T) {
			b := newBench(replies(Outcome{TTL: -1}, nil))
			calls := []*call{
				b.start(t.Context(), b.forever("first")),
				b.start(t.Context(), b.within("second", time.Hour)),
				b.start(t.Context(), b.forever("third")),
			}
			time.Sleep(time.Second)
			b.asked()
			close(b.closed)
			synctest.Wait()
			for _, c := range calls {
				require.True(t, c.done())
				require.ErrorIs(t, c.err, errs.ErrClosed)
				require.NotErrorIs(t, c.err, errs.ErrNotAcquired)
				require.Equal(t, time.Second, c.at)
			}
			for _, s := range []Spec{b.forever("a"), b.within("a", time.Second), b.within("a", 0)} {
				require.ErrorIs(t, b.Acquire(t.Context(), s), errs.ErrClosed)
			}
			require.Empty(t, b.asked(), "nothing is sent after Close")
			b.idle(t)
		})
	}
}

// Those in line needn't wait for a first whose try hangs.
func TestClosedWhileTheFirstHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		b := newBench(func(context.Context, string, time.Time) (Outcome, error) {
			<-gate
			return Outcome{}, errs.ErrUnavailable
		})
		first := b.start(t.Context(), b.forever("first"))
		second := b.start(t.Context(), b.forever("second"))
		close(b.closed)
		synctest.Wait()
		require.False(t, first.done())
		require.True(t, second.done())
		require.ErrorIs(t, second.err, errs.ErrClosed)
		close(gate)
		synctest.Wait()
		require.True(t, first.done())
		require.ErrorIs(t, first.err, errs.ErrClosed)
		require.ErrorIs(t, first.err, errs.ErrUnavailable)
		b.idle(t)
	})
}

func TestContextThatIsOverAsksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(replies(Outcome{Granted: true}, nil))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, s := range []Spec{b.forever("a"), b.within("a", time.Second), b.within("a", 0)} {
			require.ErrorIs(t, b.Acquire(ctx, s), context.Canceled)
		}
		require.Empty(t, b.asked())
		b.idle(t)
	})
}

func TestEndOfADeafWaitLooksOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := heldLock()
		b := newBench(l.answer)
		b.deaf = true
		c := b.start(t.Context(), b.within("a", 2*time.Second))
		time.Sleep(time.Second)
		l.free() // unheard
		time.Sleep(time.Second)
		synctest.Wait()
		require.True(t, c.done())
		require.NoError(t, c.err, "a free lock was called taken")
		require.Equal(t, []time.Duration{0, 2 * time.Second}, times(b.asked()))
		b.idle(t)

		// Who heard everything knows enough.
		l, b.began = heldLock(), time.Now()
		b.deaf, b.answer = false, l.answer
		c = b.start(t.Context(), b.within("a", 2*time.Second))
		require.Len(t, b.asked(), 2)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.True(t, c.done())
		require.ErrorIs(t, c.err, errs.ErrNotAcquired)
		require.Empty(t, b.asked())
		b.idle(t)
	})
}

func TestLastLookIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		b := newBench(func(ctx context.Context, _ string, _ time.Time) (Outcome, error) {
			if n++; n == 1 {
				return Outcome{TTL: time.Hour}, nil
			}
			<-ctx.Done()
			return Outcome{}, ctx.Err()
		})
		b.deaf = true
		c := b.start(t.Context(), b.within("a", time.Second))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.True(t, c.done())
		require.Equal(t, time.Second+laterTry, c.at)
		require.ErrorIs(t, c.err, errs.ErrUnavailable)
		require.NotErrorIs(t, c.err, errs.ErrNotAcquired)
		b.idle(t)
	})
}

// The confirmation may come at the very end of the wait: what was released
// before it is still unseen then.
func TestConfirmedAtTheVeryEnd(t *testing.T) {
	for range 20 { // select takes any of what is due
		synctest.Test(t, func(t *testing.T) {
			l := heldLock()
			b := newBench(l.answer)
			b.Loop.Subscribe = func(channel string) Subscription {
				time.Sleep(time.Second) // so that both are due
				return b.subscribe(channel)
			}
			c := b.start(t.Context(), b.within("a", time.Second))
			l.free() // unheard
			time.Sleep(time.Second)
			synctest.Wait()
			require.True(t, c.done())
			require.NoError(t, c.err, "a free lock was called taken")
			b.idle(t)

			l.ttl = time.Hour
			b.asked()
			c = b.start(t.Context(), b.within("a", time.Second))
			time.Sleep(time.Second)
			synctest.Wait()
			require.True(t, c.done())
			require.ErrorIs(t, c.err, errs.ErrNotAcquired)
			require.Len(t, b.asked(), 2)
			b.idle(t)
		})
	}
}

func TestLastLookThatFailsIsNotCalledTaken(t *testing.T) {
	for _, failure := range []error{errs.ErrUnavailable, errs.ErrDenied} {
		synctest.Test(t, func(t *testing.T) {
			n := 0
			b := newBench(func(context.Context, string, time.Time) (Outcome, error) {
				if n++; n == 1 {
					return Outcome{TTL: time.Hour}, nil
				}
				return Outcome{}, failure
			})
			b.deaf = true
			c := b.start(t.Context(), b.within("a", time.Second))
			time.Sleep(time.Second)
			synctest.Wait()
			require.True(t, c.done())
			require.ErrorIs(t, c.err, failure)
			require.NotErrorIs(t, c.err, errs.ErrNotAcquired)
			b.idle(t)
		})
	}
}

// A burst of messages while a try is under way is one more try, not many.
func TestMessagesMergeWhileATryIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		l := heldLock()
		b := newBench(l.answer)
		c := b.start(t.Context(), b.forever("a"))
		b.asked()
		b.mu.Lock()
		b.answer = func(ctx context.Context, who string, until time.Time) (Outcome, error) {
			<-gate
			return l.answer(ctx, who, until)
		}
		b.mu.Unlock()
		b.ring()
		synctest.Wait()
		for range 1000 {
			b.ring()
		}
		close(gate)
		synctest.Wait()
		require.Len(t, b.asked(), 2)
		b.release(l)
		require.True(t, c.done())
		b.idle(t)
	})
}
