// Package task owns the goroutines of a client, so that Close can wait for
// every one of them, and lets a caller leave a command that is stuck.
package task

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/errs"
)

// Group starts goroutines until it is closed, and then waits for them.
type Group struct {
	mu     sync.Mutex
	closed bool
	idle   []*worker // the last one to rest at the end
	wg     sync.WaitGroup
	ctx    context.Context //nolint:containedctx // the life of the goroutines is what a Group is
	cancel context.CancelCauseFunc
}

// NewGroup makes an open group.
func NewGroup() *Group {
	g := &Group{}
	g.ctx, g.cancel = context.WithCancelCause(context.Background())
	return g
}

// Done is closed when the group closes.
func (g *Group) Done() <-chan struct{} { return g.ctx.Done() }

// Context ends, with cause ErrClosed, when the group closes.
func (g *Group) Context() context.Context { return g.ctx }

// Go runs f on a goroutine and reports whether it did: not after Close.
func (g *Group) Go(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.wg.Go(f)
	return true
}

// Stop ends the group's context and takes no new goroutines. It doesn't wait.
func (g *Group) Stop() {
	g.mu.Lock()
	g.closed = true // under mu, so that no Go falls between this and Wait
	g.mu.Unlock()
	g.cancel(errs.ErrClosed)
}

// Wait returns when the last goroutine is gone.
func (g *Group) Wait() { g.wg.Wait() }

// WaitFor waits at most d. Wait must follow: it joins what WaitFor left.
func (g *Group) WaitFor(d time.Duration) {
	gone := make(chan struct{})
	go func() { // ends when the last goroutine is gone, which Wait waits for
		g.wg.Wait()
		close(gone)
	}()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-gone:
	case <-t.C:
	}
}

// Op is something to do whose caller may leave before it is done.
type Op interface {
	// Run does it.
	Run()
	// Abandoned is called after Run, on its goroutine, if nobody waits.
	Abandoned()
}

// Call runs op on a goroutine of the group's and returns true when it is done,
// false as soon as leave or the group is closed. In that case op goes on behind
// the caller's back, who must not touch it any more.
func (g *Group) Call(leave <-chan struct{}, op Op) bool {
	c := &call{op: op, done: make(chan struct{})}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		op.Run() // meets the end by itself, and at once
		return true
	}
	g.startLocked(c)
	g.mu.Unlock()
	select {
	case <-c.done:
		return true
	case <-leave:
	case <-g.ctx.Done():
	}
	return !c.state.CompareAndSwap(running, left)
}

// call decides who takes the result: the caller, or Abandoned.
type call struct {
	op    Op
	done  chan struct{}
	state atomic.Int32
}

const (
	running = iota
	finished
	left
)

func (c *call) run() {
	c.op.Run()
	if c.state.CompareAndSwap(running, finished) {
		close(c.done)
		return
	}
	c.op.Abandoned()
}

// Leave is Call for a function. abandoned gets its result if nobody waits; nil
// if that doesn't matter. With a nil leave, f runs on the caller's goroutine.
func Leave[T any](g *Group, leave <-chan struct{}, f func() T, abandoned func(T)) (T, bool) {
	if leave == nil {
		return f(), true
	}
	op := &function[T]{f: f, abandoned: abandoned}
	if !g.Call(leave, op) {
		var zero T
		return zero, false
	}
	return op.result, true
}

type function[T any] struct {
	f         func() T
	abandoned func(T)
	result    T
}

func (o *function[T]) Run() { o.result = o.f() }

func (o *function[T]) Abandoned() {
	if o.abandoned != nil {
		o.abandoned(o.result)
	}
}
