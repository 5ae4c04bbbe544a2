package bench

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/rlimiter"
)

const (
	limiterRate      = 100
	limiterFor       = 20 * time.Second
	limiterProcesses = 4
)

// limiterChild takes permits with many goroutines for as long as the measurement
// lasts, and says how many commands that took.
func limiterChild(url string) int {
	c, err := holdfast.Open(url)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	l := c.RateLimiter(os.Args[len(os.Args)-1])
	ctx, cancel := context.WithTimeout(context.Background(), limiterFor+2*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	failed := make(chan error, 16)
	for range 16 {
		wg.Go(func() {
			for {
				switch err := l.Acquire(ctx, 1); {
				case errors.Is(err, context.DeadlineExceeded):
					return
				case err != nil:
					failed <- err
					return
				}
			}
		})
	}
	wg.Wait()
	if len(failed) > 0 {
		fmt.Println(<-failed)
		return 1
	}
	if err := c.Close(); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// grants reads those of a name until done is closed, often enough to miss none: they
// stay in Redis for an interval. The answer is in ms of the server's clock.
func grants(b *testing.B, rdb *redis.Client, name string, done <-chan struct{}) []int64 {
	b.Helper()
	seen := map[string]int64{}
	for end := false; !end; {
		select {
		case <-done:
			end = true
		case <-time.After(50 * time.Millisecond):
		}
		zs, err := rdb.ZRangeWithScores(context.Background(), "{"+name+"}:permits", 0, -1).Result()
		require.NoError(b, err)
		for _, z := range zs {
			seen[z.Member.(string)] = int64(z.Score)
		}
	}
	at := make([]int64, 0, len(seen))
	for _, ms := range seen {
		at = append(at, ms)
	}
	slices.Sort(at)
	return at
}

// Bar: four processes on a limiter of 100 a second, for 20 s: by the server's clock
// never more than 100 grants in any span of a second, and at least 97 % of what is
// allowed.
func BenchmarkLimiter(b *testing.B) {
	rdb := server.Client(b)
	for i := 0; b.Loop(); i++ {
		name := fmt.Sprint("limiter-", i)
		s := newSide(b, server.Options())
		set, err := s.RateLimiter(name).TrySetRate(b.Context(), rlimiter.Overall, limiterRate, time.Second)
		require.NoError(b, err)
		require.True(b, set)
		scripts := serverCalls(b, rdb, "evalsha")
		done := make(chan struct{})
		var wg sync.WaitGroup
		for range limiterProcesses {
			cmd := exec.Command(os.Args[0], name)
			cmd.Env = append(os.Environ(), childRole+"=limiter "+server.URL())
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			require.NoError(b, err)
			require.NoError(b, cmd.Start())
			wg.Go(func() {
				for said := bufio.NewScanner(out); said.Scan(); {
					b.Error(said.Text())
				}
				if err := cmd.Wait(); err != nil {
					b.Error(err)
				}
			})
		}
		go func() {
			wg.Wait()
			close(done)
		}()
		at := grants(b, rdb, name, done)
		require.NotEmpty(b, at)

		most := 0
		for i, from := range at {
			after, _ := slices.BinarySearchFunc(at[i:], from+1000, func(a, end int64) int { return cmp.Or(cmp.Compare(a, end), -1) })
			most = max(most, after)
		}
		used, _ := slices.BinarySearch(at, at[0]+limiterFor.Milliseconds())
		allowed := limiterRate * int(limiterFor/time.Second)
		b.ReportMetric(float64(most), "most_in_a_second")
		b.ReportMetric(100*float64(used)/float64(allowed), "%_used")
		b.ReportMetric(float64(serverCalls(b, rdb, "evalsha")-scripts)/float64(len(at)), "commands/grant")
		if most > limiterRate || used < allowed*97/100 {
			b.Errorf("%d of %d grants, at most %d in a second", used, allowed, most)
		}
		// Nobody waits now: an acquisition is one command.
		require.NoError(b, s.RateLimiter(name).SetRate(b.Context(), rlimiter.Overall, 1000000, time.Second))
		require.NoError(b, s.RateLimiter(name).Acquire(b.Context(), 1))
		s.commands.Reset()
		for range 1000 {
			require.NoError(b, s.RateLimiter(name).Acquire(b.Context(), 1))
		}
		b.ReportMetric(float64(s.commands.Total())/1000, "commands/acquire")
		if s.commands.Total() != 1000 {
			b.Errorf("1000 acquisitions sent %d commands", s.commands.Total())
		}
	}
	b.ReportMetric(0, "ns/op")
}
