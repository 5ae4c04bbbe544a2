// Nightly is a job that every one of three pods has in its schedule, and that
// has to run once: who gets the lock runs it, who doesn't steps aside. A pod
// whose clock is late finds the lock free, and the work done.
//
//	go run ./examples/nightly
//	go run ./examples/nightly -without-lock   runs it more than once, and says so
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/examples/internal/stage"
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
	job := &job{Stage: s}

	var midnight errgroup.Group
	for i, pod := range pods {
		midnight.Go(func() error { return job.due(ctx, pod, fmt.Sprint("pod ", i+1)) })
	}
	if err := midnight.Wait(); err != nil {
		return err
	}
	if err := job.due(ctx, pods[2], "late pod"); err != nil {
		return err
	}

	if runs := job.runs.Load(); runs != 1 {
		return fmt.Errorf("the report was made %d times", runs)
	}
	stage.Say("", "one report was made")
	return nil
}

type job struct {
	*stage.Stage
	runs atomic.Int64
}

// due is what the schedule of a pod calls.
func (j *job) due(ctx context.Context, pod *holdfast.Client, who string) error {
	if *withoutLock {
		return j.make(ctx, who)
	}
	hold, err := pod.Lock("nightly-report").TryLock(ctx)
	if errors.Is(err, holdfast.ErrNotAcquired) { // never said when Redis fails
		stage.Say(who, "steps aside: %v", err)
		return nil
	}
	if err != nil {
		return err
	}
	defer hold.Unlock(ctx)
	return j.make(hold.Context(), who)
}

// make makes the report, unless that was done.
func (j *job) make(ctx context.Context, who string) error {
	done := j.Prefix + "report-of-30-nov"
	switch n, err := j.DB.Exists(ctx, done).Result(); {
	case err != nil:
		return err
	case n == 1:
		stage.Say(who, "finds it done")
		return nil
	}
	stage.Say(who, "makes the report")
	if err := stage.Work(ctx, 300*time.Millisecond); err != nil {
		return err
	}
	j.runs.Add(1)
	return j.DB.Set(ctx, done, who, 0).Err()
}
