package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/integration/internal/history"
	"github.com/holdfast-go/holdfast/integration/internal/topology"
)

// fault is one thing that goes wrong, from Begin to End. End is called in any case,
// also when Begin answered an error, and puts everything right again.
type fault interface {
	Begin(ctx context.Context, w *world) error
	End(ctx context.Context, w *world) error
}

// aimed is a fault that chooses what it happens to: before it begins, and it says
// so in the event that goes down in history.
type aimed interface {
	Aim(ctx context.Context, w *world, e *history.Event) error
}

// kind is a sort of fault.
type kind struct {
	name string
	does string // one line, for -list and the docs
	lane lane
	on   []topology.Kind // nil: everywhere

	least, most time.Duration // how long it lasts
	after       time.Duration // what the next of its lane waits for besides
	loses       bool          // acknowledged writes may be lost
	changes     bool          // others may be masters afterwards

	new func(e event) fault
}

// kindsFor are those that can happen to a topology.
func kindsFor(t topology.Kind) (some []kind) {
	for _, k := range kinds {
		if k.on == nil || slices.Contains(k.on, t) {
			some = append(some, k)
		}
	}
	return some
}

// kinds is all that the nemesis can do.
var kinds = slices.Concat(linkFaults, orderFaults, serverFaults, dataFaults, failoverFaults, slotFaults, clientFaults)

// world is what the faults happen to.
type world struct {
	top     *topology.Topology
	proxies *topology.Proxies
	fleet   *fleet
	tell    func(format string, args ...any)

	events *history.Writer
	// changing counts the faults under way that may change who is a master.
	changing atomic.Int64

	mu    sync.Mutex
	done  map[string]int // faults by kind
	wrong []string       // what the nemesis could not do, or undo
}

func (w *world) failed(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
	w.tell("    "+format, args...)
}

// master is one of the present masters.
func (w *world) master(ctx context.Context, pick uint64) (*topology.Node, error) {
	var masters []*topology.Node
	err := retry(ctx, func() (err error) {
		masters, err = w.top.Masters(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return masters[pick%uint64(len(masters))], nil
}

// onEach tells every server that holds data something. One that can't be reached, or
// is just coming back, is left out: another fault may have taken it away.
func (w *world) onEach(f func(n *topology.Node) error) error {
	var all error
	for _, n := range w.top.Nodes() {
		var said redis.Error
		if err := f(n); errors.As(err, &said) && !redis.IsLoadingError(err) {
			all = errors.Join(all, fmt.Errorf("%s: %w", n.Name(), err))
		}
	}
	return all
}

// haunt carries out a schedule: each lane in its order, at the planned moments or, if
// what came before took longer, as soon as that is over, and in a long run after a
// while of peace. What could begin only after the end of the schedule is left out. It
// returns when all faults are over.
func haunt(ctx context.Context, w *world, events []event, began time.Time, end time.Duration) {
	var wg sync.WaitGroup
	for _, l := range lanes {
		wg.Go(func() {
			var peace time.Time // until then
			for _, e := range events {
				k := kindOf(e.Kind)
				if k.lane != l {
					continue
				}
				at := began.Add(e.At)
				if at.Before(peace) {
					at = peace
				}
				if !sleepUntil(ctx, at) {
					return
				}
				if late := time.Since(began); late > end {
					w.tell("%8.3fs left out, as there is no time for it: %s", late.Seconds(), e.Kind)
					continue
				}
				w.suffer(ctx, k, e, began)
				// While masters change hardly anything is certain: what is judged are
				// the holds between.
				peace = time.Now().Add(min(2*k.after, end/100))
			}
		})
	}
	wg.Wait()
}

// patience bounds how long it may take to begin a fault, and to put it right: on a
// machine with much else to do, servers take their time.
const patience = time.Minute

// suffer lets one fault happen.
func (w *world) suffer(ctx context.Context, k kind, e event, began time.Time) {
	w.tell("%8.3fs begins %s", time.Since(began).Seconds(), e.Kind)
	f := k.new(e)
	bounded, cancel := context.WithTimeout(ctx, e.For+patience)
	defer cancel()
	note := history.Event{What: e.Kind, Loses: k.loses}
	if a, ok := f.(aimed); ok {
		// A server that is asked what there is may have no time to answer.
		if err := retry(bounded, func() error {
			note = history.Event{What: e.Kind, Loses: k.loses}
			return a.Aim(bounded, w, &note)
		}); err != nil {
			if ctx.Err() == nil {
				w.failed("nemesis: %s found nothing to happen to: %v", e.Kind, err)
			}
			return
		}
	}
	if k.changes {
		w.changing.Add(1)
		defer w.changing.Add(-1)
	}
	id := w.events.Begins(note)
	err := f.Begin(bounded, w)
	if err != nil && ctx.Err() == nil {
		w.failed("nemesis: %s could not begin: %v", e.Kind, err)
	}
	if err == nil {
		sleepUntil(ctx, time.Now().Add(e.For))
	}
	// Servers and proxies are put right even when the run was interrupted.
	bounded, cancel = context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := f.End(bounded, w); err != nil && ctx.Err() == nil {
		w.failed("nemesis: %s could not be put right: %v", e.Kind, err)
	}
	w.events.Ends(id)
	w.mu.Lock()
	w.done[e.Kind]++
	w.mu.Unlock()
	w.tell("%8.3fs ended  %s", time.Since(began).Seconds(), e.Kind)
}

func kindOf(name string) kind {
	return kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })]
}

// sleepUntil reports false if ctx ended before.
func sleepUntil(ctx context.Context, at time.Time) bool {
	t := time.NewTimer(time.Until(at))
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// every calls f at once and then at each tick until stop is called, which answers
// the errors of all calls.
func every(d time.Duration, f func() error) (stop func() error) {
	quit, done := make(chan struct{}), make(chan struct{})
	var failed error
	go func() {
		defer close(done)
		tick := time.NewTicker(d)
		defer tick.Stop()
		for {
			if err := f(); err != nil && failed == nil {
				failed = err
			}
			select {
			case <-tick.C:
			case <-quit:
				return
			}
		}
	}()
	return func() error {
		close(quit)
		<-done
		return failed
	}
}

// retry calls f until it succeeds or ctx ends.
func retry(ctx context.Context, f func() error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}
