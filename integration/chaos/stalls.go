package main

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/integration/internal/history"
	"github.com/holdfast-go/holdfast/integration/internal/topology"
)

// On a machine that is busy enough a server, or the proxies in this process, may get no
// time for as long as an answer may take. What is missing then is no fault of the
// library's: so such times are looked for, and go down in history.

// sluggish is how long a server may take to answer before it counts as stalled: well
// below what the library leaves to the last question of a wait, a quarter of a second.
const sluggish = 100 * time.Millisecond

// watchStalls records stalls of this process and of the servers, until stop is called.
func watchStalls(nodes []*topology.Node, events *history.Writer) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { events.Stalls(ctx.Done(), nil) })
	for _, n := range nodes {
		all.Go(func() {
			for ctx.Err() == nil {
				asked := history.Now()
				_ = n.Admin().Ping(ctx).Err() // one that is down is in history already
				if now := history.Now(); time.Duration(now-asked) > sluggish && ctx.Err() == nil {
					events.Stalled(nil, asked, now)
				}
				sleepUntil(ctx, time.Now().Add(sluggish/2))
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}
