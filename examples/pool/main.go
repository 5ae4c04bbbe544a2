// Pool shares out the connections of a database that takes three, over the pods
// of a service: a permit for each. A pod that dies with a permit in its hand gives
// it back when its lease runs out.
//
//	go run ./examples/pool
//	go run ./examples/pool -without-permits   opens too many, and says so
package main

import (
	"context"
	"flag"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/examples/internal/stage"
)

const (
	connections = 3
	queries     = 10
)

var withoutPermits = flag.Bool("without-permits", false, "show what happens without")

func main() {
	flag.Parse()
	stage.Main(run)
}

func run(ctx context.Context, s *stage.Stage) error {
	pods, stop, err := s.Pods(3, holdfast.WithLease(3*time.Second))
	if err != nil {
		return err
	}
	defer stop()
	db := &database{}
	pool := pods[0].ExpirableSemaphore("connections")
	if _, err := pool.TrySetPermits(ctx, connections); err != nil {
		return err
	}

	if _, err := pods[2].ExpirableSemaphore("connections").Acquire(ctx); err != nil {
		return err
	}
	if err := pods[2].Close(); err != nil { // nothing is given back, as in a crash
		return err
	}
	stage.Say("pod 3", "takes a permit, and dies")

	var all errgroup.Group
	for n := range queries {
		pod := n % 2
		all.Go(func() error { return db.query(ctx, pods[pod], fmt.Sprint("pod ", pod+1), n+1) })
	}
	if err := all.Wait(); err != nil {
		return err
	}

	// All together: also the one that was lost.
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	permits, err := pool.AcquireN(ctx, connections)
	if err != nil {
		return fmt.Errorf("the permit of the dead pod didn't come back: %w", err)
	}
	for _, p := range permits {
		if err := p.Release(ctx); err != nil {
			return err
		}
	}
	stage.Say("", "%d queries, never more than %d at a time; all %d permits are back", queries, connections, connections)
	return nil
}

// database stands for one with a limit.
type database struct{ open atomic.Int64 }

func (db *database) query(ctx context.Context, pod *holdfast.Client, who string, n int) error {
	if !*withoutPermits {
		permit, err := pod.ExpirableSemaphore("connections").Acquire(ctx)
		if err != nil {
			return err
		}
		defer permit.Release(ctx)
		ctx = permit.Context() // ends if the permit is lost
	}
	open := db.open.Add(1)
	defer db.open.Add(-1)
	if open > connections {
		return fmt.Errorf("too many connections: %d are open, %d are allowed", open, connections)
	}
	stage.Say(who, "query %d, %d open", n, open)
	return stage.Work(ctx, 100*time.Millisecond)
}
