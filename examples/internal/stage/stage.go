// Package stage is what the example programs stand on: a Redis, and names that
// no other run uses. What there is to see is in the programs.
package stage

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
)

// Stage is one run of an example.
type Stage struct {
	// URL is that of the Redis to use: $HOLDFAST_REDIS_URL, or one in memory.
	URL string
	// Prefix begins every key of this run. They are removed at its end.
	Prefix string
	// DB is where an example keeps what its locks protect. It stands for the
	// database of a real service; any will do.
	DB redis.UniversalClient
}

// Main runs an example. It ends the program with 1, and the error on stderr,
// if there is one: something that was promised didn't hold.
func Main(run func(context.Context, *Stage) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := play(ctx, run)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAILED:", err)
		os.Exit(1)
	}
}

func play(ctx context.Context, run func(context.Context, *Stage) error) (err error) {
	s := &Stage{URL: os.Getenv("HOLDFAST_REDIS_URL"), Prefix: "holdfast-example:" + rand.Text()[:8] + ":"}
	if s.URL == "" {
		server, err := holdfasttest.Start()
		if err != nil {
			return err
		}
		defer server.Close()
		s.URL = server.URL()
	}
	if s.DB, err = holdfast.Dial(s.URL); err != nil {
		return err
	}
	defer s.DB.Close()
	if err := s.DB.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("ask Redis: %w", err)
	}
	defer func() {
		if cerr := s.cleanUp(context.WithoutCancel(ctx)); err == nil {
			err = cerr
		}
	}()
	return run(ctx, s)
}

// Pod is a client as one process of a service has it. That it shares this
// process with others makes no difference to any of them.
func (s *Stage) Pod(opts ...holdfast.Option) (*holdfast.Client, error) {
	return holdfast.Open(s.URL, append([]holdfast.Option{holdfast.WithPrefix(s.Prefix)}, opts...)...)
}

// Pods are n of them, and what closes them.
func (s *Stage) Pods(n int, opts ...holdfast.Option) (pods []*holdfast.Client, stop func(), err error) {
	stop = func() {
		for _, pod := range pods {
			_ = pod.Close() // the example is over
		}
	}
	for range n {
		pod, err := s.Pod(opts...)
		if err != nil {
			stop()
			return nil, nil, err
		}
		pods = append(pods, pod)
	}
	return pods, stop, nil
}

// cleanUp removes all keys of this run.
func (s *Stage) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	remove := func(ctx context.Context, node redis.Cmdable) error {
		keys := node.Scan(ctx, 0, "*"+s.Prefix+"*", 1000).Iterator()
		for keys.Next(ctx) {
			if err := s.DB.Del(ctx, keys.Val()).Err(); err != nil {
				return err
			}
		}
		return keys.Err()
	}
	if cluster, ok := s.DB.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return remove(ctx, node) })
	}
	return remove(ctx, s.DB)
}

// Work stands for something that takes time and heeds its context.
func Work(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Say prints a line: who, and what happened.
func Say(who, format string, args ...any) {
	fmt.Println(strings.TrimRight(fmt.Sprintf("%-8s %s", who, fmt.Sprintf(format, args...)), " "))
}
