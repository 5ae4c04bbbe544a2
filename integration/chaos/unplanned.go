package main

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/integration/internal/history"
	"github.com/holdfast-go/holdfast/integration/internal/topology"
)

// On a machine that is busy enough a master may be silent for so long that the
// others replace it though nobody wanted that. It is as good a failover as any, and
// loses as much: so it is looked for, and goes down in history.

var unplanned = kind{name: "unplanned-failover"}

// lookout notes masters that change while no fault changes them.
type lookout struct {
	w    *world
	stop context.CancelFunc
	wg   sync.WaitGroup
	seen []history.Event // read after close
}

// stale is how long before a change was seen the old master may have lost its
// replicas.
const stale = 2*downAfter + time.Second

func watchMasters(ctx context.Context, w *world) *lookout {
	ctx, stop := context.WithCancel(ctx)
	l := &lookout{w: w, stop: stop}
	if w.top.Kind() != topology.Single {
		l.wg.Go(func() { l.watch(ctx) })
	}
	return l
}

func (l *lookout) watch(ctx context.Context) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	before := ""
	for {
		now, ours := l.masters(ctx), l.w.changing.Load() != 0
		switch {
		case ours:
			before = "" // whatever it is next
		case now == "":
		case before != "" && now != before:
			l.w.tell("         a failover that nobody asked for: %s, now %s", before, now)
			e := history.Event{What: unplanned.name, Loses: true, Begin: history.After(history.Now(), -stale)}
			bounded, cancel := context.WithTimeout(ctx, patience)
			err := l.w.top.Await(bounded)
			cancel()
			if err != nil && ctx.Err() == nil {
				l.w.failed("nemesis: after a failover that nobody asked for the servers don't come to rest: %v", err)
			}
			e.End = history.Now()
			l.seen = append(l.seen, e)
			before = ""
		default:
			before = now
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// masters are the names of the masters, "" if that isn't clear.
func (l *lookout) masters(ctx context.Context) string {
	masters, err := l.w.top.Masters(ctx)
	if err != nil {
		return ""
	}
	names := make([]string, len(masters))
	for i, m := range masters {
		names[i] = m.Name()
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// close ends the watch, and answers what was seen.
func (l *lookout) close() []history.Event {
	l.stop()
	l.wg.Wait()
	return l.seen
}
