// Api calls a partner's interface that takes 5 calls in half a second, from all
// pods together: three pods with 20 calls to make share a rate limiter, and wait
// until it is their turn.
//
//	go run ./examples/api
//	go run ./examples/api -without-limiter   calls too often, and says so
package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/examples/internal/stage"
	"github.com/holdfast-go/holdfast/rlimiter"
)

const (
	calls = 20
	rate  = 5
	per   = 500 * time.Millisecond
)

var withoutLimiter = flag.Bool("without-limiter", false, "show what happens without")

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
	// Each pod may do this: the first one sets the rate, the others find it set.
	if _, err := pods[0].RateLimiter("partner").TrySetRate(ctx, rlimiter.Overall, rate, per); err != nil {
		return err
	}

	began := time.Now()
	var all errgroup.Group
	for n := range calls {
		pod := n % len(pods)
		all.Go(func() error { return call(ctx, pods[pod], fmt.Sprint("pod ", pod+1), began) })
	}
	if err := all.Wait(); err != nil {
		return err
	}

	// The last of them can't be before three whole intervals have passed.
	took := time.Since(began)
	if least := (calls/rate - 1) * per; took < least {
		return fmt.Errorf("%d calls took %v: at %d per %v they take %v at least", calls, took, rate, per, least)
	}
	stage.Say("", "%d calls, %d in any %v", calls, rate, per)
	return nil
}

// call waits for its turn and calls.
func call(ctx context.Context, pod *holdfast.Client, who string, began time.Time) error {
	if !*withoutLimiter {
		if err := pod.RateLimiter("partner").Acquire(ctx, 1); err != nil {
			return err
		}
	}
	stage.Say(who, "calls after %4d ms", time.Since(began).Milliseconds())
	return nil
}
