package task

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

type op struct {
	run       func()
	abandoned chan struct{}
}

func newOp(run func()) *op { return &op{run, make(chan struct{})} }
func (o *op) Run()         { o.run() }
func (o *op) Abandoned()   { close(o.abandoned) }
func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestCallerLeavesAndTheRestGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup()
		leave, stuck := make(chan struct{}), make(chan struct{})
		o := newOp(func() { <-stuck })
		time.AfterFunc(time.Second, func() { close(leave) })
		require.False(t, g.Call(leave, o))
		synctest.Wait()
		require.False(t, isClosed(o.abandoned), "it isn't done yet")
		close(stuck)
		synctest.Wait()
		require.True(t, isClosed(o.abandoned))

		done := newOp(func() {})
		require.True(t, g.Call(make(chan struct{}), done))
		synctest.Wait()
		require.False(t, isClosed(done.abandoned), "its caller has the result")
		g.Stop()
		g.Wait()
	})
}

// Stop lets callers go; Wait returns when the last goroutine is gone.
func TestStopAndWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup()
		stuck := make(chan struct{})
		o := newOp(func() { <-stuck })
		left := make(chan bool)
		go func() { left <- g.Call(make(chan struct{}), o) }()
		synctest.Wait()
		g.Stop()
		require.False(t, <-left)
		g.WaitFor(time.Second) // comes back although o is stuck
		require.False(t, isClosed(o.abandoned))
		close(stuck)
		g.Wait()
		require.True(t, isClosed(o.abandoned))
		require.False(t, g.Go(func() { t.Error("ran after Stop") }))
		ran := false
		require.True(t, g.Call(make(chan struct{}), newOp(func() { ran = true })))
		require.True(t, ran, "on the caller's own goroutine")
	})
}

// A worker rests for a moment, is used again, and then goes.
func TestWorkersRestAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup()
		resting := func() int {
			g.mu.Lock()
			defer g.mu.Unlock()
			return len(g.idle)
		}
		for range 100 {
			require.True(t, g.Call(make(chan struct{}), newOp(func() {})))
			synctest.Wait()
			require.Equal(t, 1, resting())
		}
		time.Sleep(restTime)
		synctest.Wait()
		require.Zero(t, resting())

		release := make(chan struct{})
		done := make(chan struct{})
		for range 10 {
			go func() {
				g.Call(make(chan struct{}), newOp(func() { <-release }))
				done <- struct{}{}
			}()
		}
		synctest.Wait()
		close(release)
		for range 10 {
			<-done
		}
		synctest.Wait()
		require.LessOrEqual(t, resting(), maxIdle)
		g.Stop()
		g.Wait()
	})
}
