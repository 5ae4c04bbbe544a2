package wait

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/errs"
)

func TestLineIsServedInOrderAndOnlyItsFirstAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := heldLock()
		b := newBench(l.answer)
		var calls []*call
		for i := range 50 {
			calls = append(calls, b.start(t.Context(), b.forever(fmt.Sprint(i))))
		}
		time.Sleep(time.Minute - time.Second)
		synctest.Wait()
		asks := b.asked()
		require.Equal(t, []string{"0"}, askers(asks))
		require.Len(t, asks, 2+11, "one, one when the subscription stood, and the polls")

		for i, c := range calls {
			require.False(t, c.done())
			b.release(l)
			require.True(t, c.done(), "%d was passed over", i)
			require.NoError(t, c.err)
			require.Equal(t, []ask{{fmt.Sprint(i), b.now()}}, b.asked(), "one question a release")
			time.Sleep(time.Second)
		}
		_, made := b.subscriptions()
		require.Equal(t, 1, made, "a line needs one subscription")
		b.idle(t)
	})
}

func TestWithoutLineEveryoneAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := heldLock()
		b := newBench(l.answer)
		var calls []*call
		for _, who := range []string{"a", "b", "c"} {
			s := b.forever(who)
			s.Line = ""
			calls = append(calls, b.start(t.Context(), s))
		}
		open, _ := b.subscriptions()
		require.Equal(t, 3, open)
		b.asked()
		for range calls {
			b.release(l)
		}
		for _, c := range calls {
			require.True(t, c.done())
			require.NoError(t, c.err)
		}
		require.Len(t, b.asked(), 3+2+1)
		b.idle(t)
	})
}

// Whoever leaves the head of the line may have had the wake-up in hand: the
// next one has to look for itself.
func TestLeaverHandsOnItsTurn(t *testing.T) {
	for what, leave := range map[string]func(b *bench, ctx context.Context) (*call, func()){
		"cancelled": func(b *bench, ctx context.Context) (*call, func()) {
			ctx, cancel := context.WithCancel(ctx)
			return b.start(ctx, b.forever("first")), cancel
		},
		"late": func(b *bench, ctx context.Context) (*call, func()) {
			return b.start(ctx, b.within("first", time.Second)), func() { time.Sleep(time.Second) }
		},
		"past its deadline": func(b *bench, ctx context.Context) (*call, func()) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			return b.start(ctx, b.forever("first")), func() { time.Sleep(time.Second); cancel() }
		},
		"refused for good": func(b *bench, ctx context.Context) (*call, func()) {
			c := b.start(ctx, b.forever("first"))
			old := b.answer
			b.answer = func(ctx context.Context, who string, u time.Time) (Outcome, error) {
				if who == "first" {
					return Outcome{}, errs.ErrDenied
				}
				return old(ctx, who, u)
			}
			return c, func() { b.ring(); synctest.Wait() }
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := heldLock()
				b := newBench(l.answer)
				first, leave := leave(b, t.Context())
				second := b.start(t.Context(), b.forever("second"))
				b.asked()
				l.free() // the message goes to the one who leaves
				leave()
				synctest.Wait()
				require.True(t, first.done())
				require.Error(t, first.err)
				require.True(t, second.done(), "the wake-up was lost with the one who left")
				require.NoError(t, second.err)
				require.Equal(t, first.at, second.at)
				b.idle(t)
			})
		})
	}
}

// A waiter whose wake-up and end come together takes either, and no wake-up is
// lost by it. select chooses at random, hence the repeats.
func TestWakeUpAndEndTogether(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			l := heldLock()
			b := newBench(l.answer)
			ctx, cancel := context.WithCancel(t.Context())
			first := b.start(ctx, b.forever("first"))
			second := b.start(t.Context(), b.forever("second"))
			l.free()
			cancel()
			b.ring()
			synctest.Wait()
			require.True(t, first.done())
			if first.err == nil {
				require.False(t, second.done())
				b.release(l)
			} else {
				require.ErrorIs(t, first.err, context.Canceled)
			}
			require.True(t, second.done(), "the first one's answer: %v", first.err)
			require.NoError(t, second.err)
			b.idle(t)
		})
	}
}

func TestLeaversInTheMiddleAndAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := heldLock()
		b := newBench(l.answer)
		var calls []*call
		var cancels []func()
		for i := range 5 {
			ctx, cancel := context.WithCancel(t.Context())
			cancels = append(cancels, cancel)
			calls = append(calls, b.start(ctx, b.forever(fmt.Sprint(i))))
		}
		b.asked()
		for _, i := range []int{2, 4, 1} {
			cancels[i]()
			synctest.Wait()
			require.True(t, calls[i].done())
			require.ErrorIs(t, calls[i].err, context.Canceled)
		}
		require.Empty(t, b.asked(), "who isn't first leaves without a question")
		late := b.start(t.Context(), b.forever("late"))
		for _, c := range []*call{calls[0], calls[3], late} {
			require.False(t, c.done())
			b.release(l)
			require.True(t, c.done())
			require.NoError(t, c.err)
		}
		for _, cancel := range cancels {
			cancel()
		}
		b.idle(t)
	})
}

// After a grant the next in line knows that the name is taken, and by whom.
func TestNextInLineDoesNotAskWhatItKnows(t *testing.T) {
	for what, c := range map[string]struct {
		lease time.Duration // of the first
		event func(b *bench, l *lock)
		after time.Duration
	}{
		"until a message": {time.Hour, func(b *bench, l *lock) { b.release(l) }, 0},
		"until the lease has ended": {3 * time.Second, func(_ *bench, l *lock) {
			time.Sleep(time.Second)
			l.free()
		}, 3*time.Second + settle},
		"until the poll":                  {time.Hour, func(_ *bench, l *lock) { l.free() }, poll},
		"until the poll, without a lease": {-1, func(_ *bench, l *lock) { l.free() }, poll},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := heldLock()
				l.lease = c.lease
				b := newBench(l.answer)
				first := b.start(t.Context(), b.forever("first"))
				second := b.start(t.Context(), b.forever("second"))
				time.Sleep(time.Second)
				b.release(l)
				require.True(t, first.done())
				b.asked()
				granted := b.now()

				c.event(b, l)
				time.Sleep(granted + c.after - time.Nanosecond - b.now())
				synctest.Wait()
				if c.after > 0 {
					require.Empty(t, b.asked())
					require.False(t, second.done())
				}
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				require.True(t, second.done())
				require.NoError(t, second.err)
				require.Len(t, b.asked(), 1)
				b.idle(t)
			})
		})
	}
}

// What the one before knew may be out of date if no subscription stood when it
// was granted.
func TestNextInLineAsksIfNobodyListened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := heldLock()
		b := newBench(l.answer)
		b.deaf = true
		first := b.start(t.Context(), b.forever("first"))
		second := b.start(t.Context(), b.forever("second"))
		l.free()
		time.Sleep(poll)
		synctest.Wait()
		require.True(t, first.done())
		require.False(t, second.done())
		require.Equal(t, []ask{{"first", 0}, {"first", poll}, {"second", poll}}, b.asked())

		l.free()
		b.confirm() // what was published in between is lost
		synctest.Wait()
		require.True(t, second.done())
		require.NoError(t, second.err)
		require.Equal(t, poll, second.at)
		b.idle(t)
	})
}

// What one caller may not do says nothing about the name.
func TestRefusalOfOneIsNotTheNextOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var denied bool
		b := newBench(func(ctx context.Context, who string, _ time.Time) (Outcome, error) {
			switch {
			case who == "second":
				<-ctx.Done()
				return Outcome{}, ctx.Err()
			case denied:
				return Outcome{}, errs.ErrDenied
			}
			return Outcome{TTL: time.Hour}, nil
		})
		first := b.start(t.Context(), b.forever("first"))
		ctx, cancel := context.WithCancel(t.Context())
		second := b.start(ctx, b.forever("second"))
		third := b.start(t.Context(), b.within("third", time.Second))
		denied = true
		b.ring()
		time.Sleep(time.Second)
		synctest.Wait()
		require.ErrorIs(t, first.err, errs.ErrDenied)
		require.ErrorIs(t, third.err, errs.ErrNotAcquired)
		require.NotErrorIs(t, third.err, errs.ErrDenied)
		cancel()
		synctest.Wait()
		require.ErrorIs(t, second.err, context.Canceled)
		b.idle(t)
	})
}

func TestShortWaitInLineTakesWhatIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(func(ctx context.Context, who string, until time.Time) (Outcome, error) {
			if who == "second" {
				return Outcome{Granted: true, TTL: time.Hour}, nil
			}
			return slow(100*time.Millisecond, Outcome{TTL: time.Hour})(ctx, who, until)
		})
		first := b.start(t.Context(), b.within("first", time.Millisecond))
		second := b.start(t.Context(), b.within("second", time.Millisecond))
		time.Sleep(time.Second)
		synctest.Wait()
		require.NoError(t, second.err)
		require.Equal(t, time.Millisecond, second.at)
		require.ErrorIs(t, first.err, errs.ErrNotAcquired)
		b.idle(t)
	})
}

// An owner's call must not stand behind those whom the owner keeps out: when
// another of its calls got in, it asks for itself.
func TestWhoseOwnerGotInLeavesTheLine(t *testing.T) {
	for _, place := range []int{0, 1, 2} {
		t.Run(fmt.Sprint("from place ", place), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := heldLock()
				b := newBench(l.answer)
				var calls []*call
				var specs []Spec
				for i := range 3 {
					specs = append(specs, b.forever(fmt.Sprint(i)))
					calls = append(calls, b.start(t.Context(), specs[i]))
				}
				b.asked()
				b.mu.Lock()
				b.answer = func(ctx context.Context, who string, until time.Time) (Outcome, error) {
					if who == fmt.Sprint(place) {
						return Outcome{Granted: true, TTL: time.Hour}, nil
					}
					return l.answer(ctx, who, until)
				}
				b.mu.Unlock()
				enter(specs[place])
				require.True(t, calls[place].done())
				require.NoError(t, calls[place].err)

				// The others stand as before.
				for i, c := range calls {
					if i != place {
						require.False(t, c.done())
						b.release(l)
						require.True(t, c.done())
						require.NoError(t, c.err)
					}
				}
				require.Zero(t, b.now())
				b.idle(t)
			})
		})
	}
}

// Refused although its owner was in (it has just left), it waits on its own.
func TestWhoLeftTheLineWaitsOnItsOwn(t *testing.T) {
	for _, place := range []int{0, 1} {
		t.Run(fmt.Sprint("from place ", place), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := heldLock()
				b := newBench(l.answer)
				var calls []*call
				var specs []Spec
				for i := range 2 {
					specs = append(specs, b.forever(fmt.Sprint(i)))
					calls = append(calls, b.start(t.Context(), specs[i]))
				}
				enter(specs[place])
				open, _ := b.subscriptions()
				require.Equal(t, 2, open, "one for the line, one for the one outside")
				b.asked()
				b.release(l)
				b.release(l)
				for _, c := range calls {
					require.True(t, c.done())
					require.NoError(t, c.err)
				}
				require.LessOrEqual(t, len(b.asked()), 3)
				b.idle(t)
			})
		})
	}
}

func TestReleaseByThisClientPokes(t *testing.T) {
	for what, c := range map[string]struct {
		deaf, heard bool
		key         string
		woken       bool
	}{
		"nobody publishes":                {false, false, name, true},
		"published, but nothing listens":  {true, true, name, true},
		"neither":                         {true, false, name, true},
		"published, and the line listens": {false, true, name, false}, // the message does it
		"another name":                    {true, false, "other", false},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := heldLock()
				b := newBench(l.answer)
				b.deaf = c.deaf
				first := b.start(t.Context(), b.forever("first"))
				second := b.start(t.Context(), b.forever("second"))
				b.asked()
				l.free()
				b.Released(c.key, c.heard)
				synctest.Wait()
				require.Equal(t, c.woken, first.done())
				if !c.woken {
					require.Empty(t, b.asked())
					b.ring()
					b.Released(name, false)
					synctest.Wait()
				}
				require.NoError(t, first.err)
				require.False(t, second.done())
				l.free()
				b.Released(name, false)
				synctest.Wait()
				require.True(t, second.done())
				require.NoError(t, second.err)
				require.Zero(t, b.now())
				b.idle(t)
			})
		})
	}
}

// A release that falls into the first try comes before there is anything to
// poke.
func TestReleaseDuringTheFirstTryIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := heldLock()
		b := newBench(nil)
		n := 0
		b.answer = func(ctx context.Context, who string, until time.Time) (Outcome, error) {
			out, err := l.answer(ctx, who, until)
			if n++; n == 1 {
				l.free()
				b.Released(name, false)
			}
			return out, err
		}
		b.deaf = true
		c := b.start(t.Context(), b.forever("a"))
		require.True(t, c.done())
		require.NoError(t, c.err)
		require.Len(t, b.asked(), 2)
		b.idle(t)
	})
}
