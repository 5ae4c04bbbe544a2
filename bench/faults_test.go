package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// left counts the keys of a server without the markers of requests, which have
// a time to live.
func left(b testing.TB, rdb *redis.Client) (n int) {
	b.Helper()
	keys, err := rdb.Keys(context.Background(), "*").Result()
	require.NoError(b, err)
	for _, k := range keys {
		if !strings.Contains(k, ":holdfast:req:") {
			n++
		}
	}
	return n
}

// ours counts the goroutines of the client: go-redis and the proxy have theirs.
func ours() (n int) {
	buf := make([]byte, 16<<20)
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(stack, "holdfast/internal/task.") || strings.Contains(stack, "holdfast/internal/hold.") {
			n++
		}
	}
	return n
}

// Bar: 10,000 acquisitions cancelled at random moments on a link with 0 to 3 ms
// of delay: a second later no key, goroutine or subscription is left; every call
// is back within 50 ms of its cancel.
func BenchmarkCancelled10000(b *testing.B) {
	const calls, goroutines = 10_000, 50
	for b.Loop() {
		srv := redistest.Start(b)
		proxy := faultproxy.New(b, srv.Addr())
		proxy.SetLatency(0, 3*time.Millisecond)
		s := newSide(b, &redis.Options{Addr: proxy.Addr(), PoolSize: 100})
		look := srv.Client(b)
		pair(context.Background(), b, s.Lock("warm-up"))
		before := ours()

		var slowest, granted atomic.Int64
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() {
				for range calls / goroutines {
					ctx, cancel := context.WithCancel(context.Background())
					var cancelled atomic.Int64
					timer := time.AfterFunc(rand.N(8*time.Millisecond), func() {
						cancelled.Store(time.Now().UnixNano())
						cancel()
					})
					h, err := s.Lock(fmt.Sprint("cancelled-", g%10)).Lock(ctx)
					back := time.Now().UnixNano()
					if at := cancelled.Load(); at > 0 && back > at {
						for late := back - at; late > slowest.Load(); {
							slowest.Store(late)
						}
					}
					switch {
					case err == nil:
						granted.Add(1)
						if err := h.Unlock(context.Background()); err != nil {
							b.Error(err)
						}
					case !errors.Is(err, context.Canceled):
						b.Error(err)
					}
					timer.Stop()
					cancel()
				}
			})
		}
		wg.Wait()
		<-time.After(time.Second) // the bar: what is left one second later
		chans, err := look.PubSubChannels(context.Background(), "*").Result()
		require.NoError(b, err)
		b.ReportMetric(float64(left(b, look)), "keys_left")
		b.ReportMetric(float64(len(chans)), "subscriptions_left")
		b.ReportMetric(float64(max(ours()-before, 0)), "goroutines_more")
		b.ReportMetric(float64(slowest.Load())/1e6, "ms_slowest_return")
		b.ReportMetric(float64(granted.Load()), "granted")
	}
	b.ReportMetric(0, "ns/op")
}

// Bar: 20,000 pairs with 5 % of the replies dropped, ReadTimeout 100 ms: no wrong
// count, no false 'not held', no double hold. ErrUncertain is counted apart.
func BenchmarkDroppedReplies20000(b *testing.B) {
	const pairs, goroutines = 20_000, 100
	for b.Loop() {
		srv := redistest.Start(b)
		proxy := faultproxy.New(b, srv.Addr())
		s := newSide(b, &redis.Options{Addr: proxy.Addr(), ReadTimeout: 100 * time.Millisecond, PoolSize: 200})
		look := srv.Client(b)
		pair(context.Background(), b, s.Lock("warm-up"))
		proxy.Add(faultproxy.Rule{Match: faultproxy.Prob(0.05, 1), Do: faultproxy.DropReply})

		var wrongCount, notHeld, double, uncertain atomic.Int64
		inside := make([]atomic.Int64, goroutines/2)
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() {
				n := g % len(inside) // two goroutines a name
				l := s.Lock(fmt.Sprint("dropped-", n))
				for range pairs / goroutines {
					h, err := l.Lock(context.Background())
					if err != nil {
						b.Error(err)
						return
					}
					if inside[n].Add(1) != 1 {
						double.Add(1)
					}
					if c, err := look.HGet(context.Background(), l.Name(), h.Owner()).Int(); err != nil || c != 1 {
						wrongCount.Add(1)
					}
					inside[n].Add(-1)
					switch err := h.Unlock(context.Background()); {
					case errors.Is(err, holdfast.ErrUncertain):
						uncertain.Add(1)
					case errors.Is(err, holdfast.ErrNotHeld):
						notHeld.Add(1)
					case err != nil:
						b.Error(err)
					}
				}
			})
		}
		wg.Wait()
		b.ReportMetric(float64(wrongCount.Load()), "wrong_counts")
		b.ReportMetric(float64(notHeld.Load()), "false_not_held")
		b.ReportMetric(float64(double.Load()), "double_holds")
		b.ReportMetric(float64(uncertain.Load()), "uncertain")
		b.ReportMetric(float64(left(b, look)), "keys_left")
	}
	b.ReportMetric(0, "ns/op")
}

// Bar: 200 trials in which the link is cut, half of them with both cores busy:
// the holder's context ends before the key is free, every time. The server's
// own clock says when it lets the key go.
func BenchmarkCutLink200(b *testing.B) {
	const trials, atOnce, lease = 200, 20, 900 * time.Millisecond
	for b.Loop() {
		for _, busy := range []bool{false, true} {
			smallest, tooLate := time.Hour, 0
			var load []*exec.Cmd
			if busy {
				for range runtime.NumCPU() {
					cmd := exec.Command(os.Args[0])
					cmd.Env = append(os.Environ(), childRole+"=load")
					require.NoError(b, cmd.Start())
					b.Cleanup(func() { _ = cmd.Process.Kill() }) // if we don't get to that below
					load = append(load, cmd)
				}
			}
			for range trials / 2 / atOnce {
				margins := cutLink(b, atOnce, lease)
				for _, m := range margins {
					smallest = min(smallest, m)
					if m <= 0 {
						tooLate++
					}
				}
			}
			for _, cmd := range load {
				require.NoError(b, cmd.Process.Kill())
				_ = cmd.Wait() // killed
			}
			when := map[bool]string{false: "_idle", true: "_busy"}[busy]
			b.ReportMetric(float64(tooLate), "too_late"+when)
			b.ReportMetric(float64(smallest.Microseconds())/1e3, "ms_smallest_margin"+when)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// cutLink holds n names, cuts the link at a random moment, and answers how long
// before its key's end each holder's context ended.
func cutLink(b testing.TB, n int, lease time.Duration) []time.Duration {
	srv := server
	proxy, err := faultproxy.NewFor(srv.Addr())
	require.NoError(b, err)
	defer proxy.Close()
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: 200 * time.Millisecond, PoolSize: 50})
	defer func() { require.NoError(b, rdb.Close()) }()
	c, err := holdfast.New(rdb, holdfast.WithLease(lease))
	require.NoError(b, err)
	defer func() { require.NoError(b, c.Close()) }()
	look := srv.Client(b)
	ctx := context.Background()

	holds := make([]*holdfast.Hold, n)
	for i := range holds {
		h, err := c.Lock(fmt.Sprint("cut-", rand.Int())).Lock(ctx)
		require.NoError(b, err)
		holds[i] = h
	}
	<-time.After(rand.N(lease)) // somewhere between two renewals
	proxy.Blackhole(true)
	ended := make([]time.Time, n)
	var wg sync.WaitGroup
	for i, h := range holds {
		wg.Go(func() {
			<-h.Context().Done()
			ended[i] = time.Now()
		})
	}
	// No renewal comes through any more, so PEXPIRETIME is the server's last word
	// on when the key goes: by the same clock as ours.
	margins := make([]time.Duration, n)
	pipe := look.Pipeline()
	goes := make([]*redis.DurationCmd, n)
	for i, h := range holds {
		goes[i] = pipe.PExpireTime(ctx, h.Name())
	}
	_, err = pipe.Exec(ctx)
	require.NoError(b, err)
	wg.Wait()
	for i, at := range goes {
		require.Positive(b, at.Val(), "the key went before it could be looked at")
		margins[i] = time.UnixMilli(at.Val().Milliseconds()).Sub(ended[i])
	}
	proxy.Blackhole(false)
	return margins
}

// childRole in the environment makes this binary a child: "load" keeps a core
// busy, a URL makes it the process that is stopped.
const childRole = "HOLDFAST_BENCH_CHILD"

func child(role string) int {
	if role == "load" {
		for n := 0; ; n++ {
			if n == -1 {
				return 0
			}
		}
	}
	if strings.HasPrefix(role, "fair ") {
		return fairChild(role)
	}
	if url, ok := strings.CutPrefix(role, "limiter "); ok {
		return limiterChild(url)
	}
	if strings.HasPrefix(role, semaphoreRole) {
		return semaphoreChild(role)
	}
	return stopChild(role)
}

// stopChild holds a lock and tells on each line of its input what its context
// says at that moment.
func stopChild(url string) int {
	c, err := holdfast.Open(url, holdfast.WithLease(300*time.Millisecond))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer func() { _ = c.Close() }() // the process ends anyway
	h, err := c.Lock(os.Args[len(os.Args)-1]).Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return 1
	}
	ctx := h.Context()
	// Busy looking: the stop hits anywhere, and the first look after it is the
	// first one that finds the clock far ahead.
	last := time.Now() // before we tell: the stop may come at once
	fmt.Println("held")
	for {
		now := time.Now()
		err := ctx.Err() // after the clock: a stop between the two is no blind look
		if now.Sub(last) > 500*time.Millisecond {
			fmt.Println("first look:", err != nil)
			return 0
		}
		last = now
	}
}

// Bar: a process is stopped for longer than its lease, 30 times: at the first
// look after it goes on, Err is not nil, every time.
func BenchmarkStopped30(b *testing.B) {
	const trials = 30
	for b.Loop() {
		blind := 0
		for i := range trials {
			cmd := exec.Command(os.Args[0], fmt.Sprint("stopped-", i))
			cmd.Env = append(os.Environ(), childRole+"="+server.URL())
			out, err := cmd.StdoutPipe()
			require.NoError(b, err)
			require.NoError(b, cmd.Start())
			in := bufio.NewReader(out)
			line, err := in.ReadString('\n')
			require.NoError(b, err)
			require.Equal(b, "held\n", line)
			require.NoError(b, cmd.Process.Signal(syscall.SIGSTOP))
			look := server.Client(b)
			eventually(b, 10*time.Second, "the lease ran out", func() bool {
				n, err := look.Exists(context.Background(), fmt.Sprint("stopped-", i)).Result()
				return err == nil && n == 0
			})
			<-time.After(600 * time.Millisecond) // longer than what the child takes for a stop
			require.NoError(b, cmd.Process.Signal(syscall.SIGCONT))
			rest, err := io.ReadAll(in)
			require.NoError(b, err)
			require.NoError(b, cmd.Wait())
			if string(rest) != "first look: true\n" {
				blind++
			}
		}
		b.ReportMetric(float64(blind), "blind_first_looks")
		b.ReportMetric(trials, "trials")
	}
	b.ReportMetric(0, "ns/op")
}
