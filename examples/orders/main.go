// Orders is a shop on three pods that share one shelf: nine customers want the
// last two tickets. Reading the stock, taking the money and writing the stock
// is one thing, under one lock, whichever pod does it.
//
//	go run ./examples/orders
//	go run ./examples/orders -without-lock   sells more than there is, and says so
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
	tickets   = 2
	customers = 9
)

var withoutLock = flag.Bool("without-lock", false, "show what happens without")

func main() {
	flag.Parse()
	stage.Main(run)
}

func run(ctx context.Context, s *stage.Stage) error {
	pods, stop, err := s.Pods(3)
	if err != nil {
		return err
	}
	defer stop()
	shop := &shop{Stage: s}
	if err := s.DB.Set(ctx, shop.stock(), tickets, 0).Err(); err != nil {
		return err
	}

	var all errgroup.Group
	for customer := range customers {
		pod := customer % len(pods)
		all.Go(func() error { return shop.order(ctx, pods[pod], fmt.Sprint("pod ", pod+1), customer+1) })
	}
	if err := all.Wait(); err != nil {
		return err
	}

	stage.Say("", "%d tickets, %d sold", tickets, shop.sold.Load())
	if sold := shop.sold.Load(); sold != tickets {
		return fmt.Errorf("%d tickets were there, and %d were sold", tickets, sold)
	}
	return nil
}

type shop struct {
	*stage.Stage
	sold atomic.Int64
}

func (s *shop) stock() string { return s.Prefix + "tickets" }

// order serves one customer, after those who came before.
func (s *shop) order(ctx context.Context, pod *holdfast.Client, who string, customer int) error {
	sell := func(ctx context.Context) error { return s.sell(ctx, who, customer) }
	if *withoutLock {
		return sell(ctx)
	}
	// ErrNotAcquired after the wait, ErrUnavailable if Redis doesn't answer: in
	// both cases nothing was sold.
	return pod.Lock("shelf").Do(ctx, sell, holdfast.Wait(20*time.Second))
}

// sell is what many a shop does: read, check, take the money, write.
func (s *shop) sell(ctx context.Context, who string, customer int) error {
	left, err := s.DB.Get(ctx, s.stock()).Int()
	if err != nil {
		return err
	}
	if left == 0 {
		stage.Say(who, "customer %d comes too late", customer)
		return nil
	}
	if err := stage.Work(ctx, 50*time.Millisecond); err != nil { // the payment
		return err // also when the lock is lost: ctx is the hold's
	}
	if err := s.DB.Set(ctx, s.stock(), left-1, 0).Err(); err != nil {
		return err
	}
	s.sold.Add(1)
	stage.Say(who, "customer %d buys a ticket, %d left", customer, left-1)
	return nil
}
