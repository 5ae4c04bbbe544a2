package task

import (
	"slices"
	"time"
)

const (
	// maxIdle workers rest for restTime between two calls: a goroutine whose
	// stack has grown already saves a tenth of a short command.
	maxIdle  = 4
	restTime = 200 * time.Millisecond
)

// worker is a goroutine that runs calls.
type worker struct {
	next chan *call // one slot: filled by who takes the worker out of idle
}

// startLocked runs c on a worker that rests, or on a new one.
func (g *Group) startLocked(c *call) {
	if n := len(g.idle); n > 0 {
		w := g.idle[n-1]
		g.idle = g.idle[:n-1]
		w.next <- c
		return
	}
	g.wg.Go(func() { g.work(&worker{next: make(chan *call, 1)}, c) })
}

func (g *Group) work(w *worker, c *call) {
	timer := time.NewTimer(restTime)
	defer timer.Stop()
	for c != nil {
		c.run()
		timer.Reset(restTime)
		c = g.rest(w, timer.C)
	}
}

// rest answers the worker's next call, or nil if it is to end.
func (g *Group) rest(w *worker, over <-chan time.Time) *call {
	g.mu.Lock()
	if g.closed || len(g.idle) == maxIdle {
		g.mu.Unlock()
		return nil
	}
	g.idle = append(g.idle, w)
	g.mu.Unlock()
	select {
	case c := <-w.next:
		return c
	case <-over:
	case <-g.ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.idle, w)
	if i < 0 {
		return <-w.next // taken as it left
	}
	g.idle = slices.Delete(g.idle, i, i+1)
	return nil
}
