// Batch starts on four pods at once, and on none before all four are ready: each
// loads its part of the data, counts the latch down, and waits for it to open.
// Nobody is in charge: who comes first sets the count.
//
//	go run ./examples/batch
//	go run ./examples/batch -without-latch   starts too early, and says so
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

const pods = 4

var withoutLatch = flag.Bool("without-latch", false, "show what happens without")

func main() {
	flag.Parse()
	stage.Main(run)
}

func run(ctx context.Context, s *stage.Stage) error {
	clients, stop, err := s.Pods(pods)
	if err != nil {
		return err
	}
	defer stop()
	b := &batch{}
	all, ctx := errgroup.WithContext(ctx) // else a pod that fails would keep the others waiting
	for i, client := range clients {
		all.Go(func() error { return b.pod(ctx, client, i+1) })
	}
	if err := all.Wait(); err != nil {
		return err
	}
	stage.Say("", "%d pods started, each of them when all were ready", pods)
	return nil
}

type batch struct{ ready atomic.Int64 }

func (b *batch) pod(ctx context.Context, client *holdfast.Client, number int) error {
	who := fmt.Sprint("pod ", number)
	allReady := client.Latch("batch-30-nov:ready")
	if _, err := allReady.TrySetCount(ctx, pods); err != nil {
		return err
	}

	if err := stage.Work(ctx, time.Duration(number)*100*time.Millisecond); err != nil { // loads its data
		return err
	}
	b.ready.Add(1)
	stage.Say(who, "is ready")

	if !*withoutLatch {
		if err := allReady.CountDown(ctx); err != nil {
			return err
		}
		if err := allReady.Await(ctx); err != nil {
			return err
		}
	}
	ready := b.ready.Load()
	stage.Say(who, "starts")
	if ready != pods {
		return fmt.Errorf("%s started when %d of %d were ready", who, ready, pods)
	}
	return nil
}
