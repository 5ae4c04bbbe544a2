package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

const (
	semaphorePermits   = 10
	semaphoreProcesses = 4
	semaphoreCallers   = 16 // goroutines a process
	semaphoreCalls     = 20_000
)

// semaphoreRole starts the role of a process of BenchmarkSemaphore; the rest is the
// address of the proxy and that of the server.
const semaphoreRole = "semaphore "

// Bar: a semaphore of 10, 64 goroutines in 4 processes, 20,000 acquisitions, a
// tenth of them cancelled, 5 % of the replies dropped: never more than 10 at once,
// and exactly 10 free at the end.
func BenchmarkSemaphore(b *testing.B) {
	for b.Loop() {
		srv := redistest.Start(b)
		proxy := faultproxy.New(b, srv.Addr())
		proxy.Add(faultproxy.Rule{Match: faultproxy.All(faultproxy.Cmd("evalsha"), faultproxy.Prob(0.05, 1)), Do: faultproxy.DropReply})
		look, ctx := srv.Client(b), context.Background()
		require.NoError(b, look.Set(ctx, "semaphore", semaphorePermits, 0).Err())
		start := time.Now()
		var outs []*bufio.Scanner
		var cmds []*exec.Cmd
		for range semaphoreProcesses {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), childRole+"="+semaphoreRole+proxy.Addr()+" "+srv.Addr())
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			require.NoError(b, err)
			require.NoError(b, cmd.Start())
			b.Cleanup(func() { _ = cmd.Process.Kill() }) // it has ended, if all went well
			outs, cmds = append(outs, bufio.NewScanner(out)), append(cmds, cmd)
		}
		var served, cancelled, uncertain, most int
		for i, out := range outs {
			require.True(b, out.Scan(), "a process has ended: %v", out.Err())
			var s, c, u, m int
			_, err := fmt.Sscan(out.Text(), &s, &c, &u, &m)
			require.NoError(b, err, out.Text())
			served, cancelled, uncertain, most = served+s, cancelled+c, uncertain+u, max(most, m)
			require.NoError(b, cmds[i].Wait())
		}
		took := time.Since(start)
		free, err := look.Get(ctx, "semaphore").Int()
		require.NoError(b, err)
		require.LessOrEqual(b, most, semaphorePermits, "more than there are at once")
		require.Equal(b, semaphorePermits, free, "permits were lost or minted")
		b.ReportMetric(float64(served), "served")
		b.ReportMetric(float64(cancelled), "cancelled")
		b.ReportMetric(float64(uncertain), "uncertain")
		b.ReportMetric(float64(most), "most_at_once")
		b.ReportMetric(float64(free), "free_at_the_end")
		b.ReportMetric(float64(served)/took.Seconds(), "served/s")
	}
	b.ReportMetric(0, "ns/op")
}

// semaphoreChild is one process: it prints how many calls were served, cancelled and
// uncertain, and the most that it has seen inside at once, over all processes.
func semaphoreChild(role string) int {
	proxy, direct, _ := strings.Cut(strings.TrimPrefix(role, semaphoreRole), " ")
	rdb := redis.NewClient(&redis.Options{Addr: proxy, ReadTimeout: 100 * time.Millisecond, PoolSize: 100})
	count := redis.NewClient(&redis.Options{Addr: direct})
	c, err := holdfast.New(rdb)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	s := c.Semaphore("semaphore")
	var served, cancelled, uncertain, most, failed atomic.Int64
	var wg sync.WaitGroup
	for range semaphoreCallers {
		wg.Go(func() {
			for i := range semaphoreCalls/semaphoreProcesses/semaphoreCallers + 1 {
				ctx, cancel := context.WithCancel(context.Background())
				if i%10 == 0 {
					time.AfterFunc(rand.N(20*time.Millisecond), cancel)
				}
				err := s.Acquire(ctx, 1)
				switch {
				case errors.Is(err, context.Canceled):
					cancelled.Add(1)
					cancel()
					continue
				case err != nil:
					fmt.Fprintln(os.Stderr, err)
					failed.Add(1)
					cancel()
					return
				}
				served.Add(1)
				n, err := count.Incr(context.Background(), "inside").Result()
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					failed.Add(1)
				}
				for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
				}
				<-time.After(rand.N(time.Millisecond)) // so that there is something to see
				if err := count.Decr(context.Background(), "inside").Err(); err != nil {
					fmt.Fprintln(os.Stderr, err)
					failed.Add(1)
				}
				switch err := s.Release(ctx, 1); {
				case errors.Is(err, holdfast.ErrUncertain):
					uncertain.Add(1) // it goes on behind
				case err != nil:
					fmt.Fprintln(os.Stderr, err)
					failed.Add(1)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if err := c.Shutdown(context.Background()); err != nil { // waits for what goes on behind
		fmt.Fprintln(os.Stderr, err)
		failed.Add(1)
	}
	fmt.Println(served.Load(), cancelled.Load(), uncertain.Load(), most.Load())
	return int(min(failed.Load(), 1))
}
