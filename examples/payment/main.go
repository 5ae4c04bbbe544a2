// Payment takes the callbacks of a payment provider, which sends each of them
// until it hears an answer: here three times at once, to three pods. The
// idempotency key says whether it was booked; the lock makes looking and booking
// one thing. All three get the same receipt.
//
//	go run ./examples/payment
//	go run ./examples/payment -without-lock   books it more than once, and says so
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/examples/internal/stage"
)

// callback is what the provider sends.
type callback struct {
	Key    string // the same in every copy
	Amount int64
}

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

	paid := callback{Key: "pay_7f3a", Amount: 25}
	receipts := make([]string, len(pods))
	var copies errgroup.Group
	for i, pod := range pods {
		till := &till{Stage: s, who: fmt.Sprint("pod ", i+1)}
		book := till.book
		if !*withoutLock {
			book = holdfast.Guard(pod, func(c callback) string { return "payment:" + c.Key }, till.book, holdfast.Wait(20*time.Second))
		}
		copies.Go(func() (err error) {
			receipts[i], err = book(ctx, paid)
			return err
		})
	}
	if err := copies.Wait(); err != nil {
		return err
	}

	balance, err := s.DB.Get(ctx, s.Prefix+"balance").Int64()
	if err != nil {
		return err
	}
	stage.Say("", "%d paid, %d booked", paid.Amount, balance)
	if balance != paid.Amount {
		return fmt.Errorf("%d were paid, and %d are booked", paid.Amount, balance)
	}
	for _, r := range receipts {
		if r != receipts[0] {
			return fmt.Errorf("one payment has two receipts, %s and %s", receipts[0], r)
		}
	}
	return nil
}

// till is a pod's part.
type till struct {
	*stage.Stage
	who string
}

// book books a payment once, and answers its receipt each time.
func (t *till) book(ctx context.Context, c callback) (receipt string, err error) {
	booked := t.Prefix + "booked:" + c.Key
	receipt, err = t.DB.Get(ctx, booked).Result()
	if err == nil {
		stage.Say(t.who, "has seen it: %s", receipt)
		return receipt, nil
	}
	if !errors.Is(err, redis.Nil) {
		return "", err
	}
	if err := stage.Work(ctx, 50*time.Millisecond); err != nil { // checks the signature, writes to the books
		return "", err
	}
	receipt = c.Key + " booked by " + t.who
	// Both or none, should this pod die here. A copy that comes later finds out.
	_, err = t.DB.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		tx.IncrBy(ctx, t.Prefix+"balance", c.Amount)
		tx.Set(ctx, booked, receipt, 24*time.Hour)
		return nil
	})
	stage.Say(t.who, "takes %d: %s", c.Amount, receipt)
	return receipt, err
}
