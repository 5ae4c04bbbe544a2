package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// heartbeat is within which time a waiter that died is passed over.
const heartbeat = 15 * time.Second

// Bar: a fair lock that nobody else wants takes 2 commands per lock and unlock.
func BenchmarkFairUncontended(b *testing.B) {
	s := newSide(b, server.Options())
	l := s.FairLock("fair-uncontended")
	ctx := context.Background()
	warm, err := l.Lock(ctx)
	require.NoError(b, err)
	require.NoError(b, warm.Unlock(ctx))
	s.commands.Reset()
	n := 0
	for b.Loop() {
		h, err := l.Lock(ctx)
		require.NoError(b, err)
		require.NoError(b, h.Unlock(ctx))
		n++
	}
	perPair := float64(s.commands.Total()) / float64(n)
	require.Equal(b, 2.0, perPair)
	b.ReportMetric(perPair, "commands/pair")
}

// fairChild is a process with so many waiters, each of which notes on a list that
// it got in, and gives the lock back.
func fairChild(role string) int {
	words := strings.Fields(role) // fair, URL, name, waiters
	n, err := strconv.Atoi(words[3])
	if err != nil {
		fmt.Println(err)
		return 1
	}
	opts, err := redis.ParseURL(words[1])
	if err != nil {
		fmt.Println(err)
		return 1
	}
	c, err := holdfast.Open(words[1])
	if err != nil {
		fmt.Println(err)
		return 1
	}
	log := redis.NewClient(opts)
	ctx := context.Background()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			h, err := c.FairLock(words[2]).Lock(ctx)
			if err == nil {
				err = log.RPush(ctx, words[2]+":log", h.Owner()).Err()
			}
			if err == nil {
				err = h.Unlock(ctx)
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		})
	}
	wg.Wait()
	fmt.Println("served")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent has counted
	if c.Close() != nil {
		return 1
	}
	return 0
}

// startFair starts such a process.
func startFair(b *testing.B, srv *redistest.Server, name string, waiters int) *exec.Cmd {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=fair %s %s %d", childRole, srv.URL(), name, waiters))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill() // it has ended, if all went well
		_ = cmd.Wait()
	})
	return cmd
}

// calls are how often the server has run scripts, and what those called.
func calls(b *testing.B, rdb *redis.Client) (scripts, inside int64) {
	b.Helper()
	info, err := rdb.InfoMap(context.Background(), "commandstats").Result()
	require.NoError(b, err)
	for name, line := range info["Commandstats"] {
		var n int64
		_, err := fmt.Sscanf(line, "calls=%d", &n)
		require.NoError(b, err)
		switch strings.TrimPrefix(name, "cmdstat_") {
		case "evalsha", "eval":
			scripts += n
		case "get", "time", "pttl", "exists", "hexists", "hlen", "hset", "pexpire", "del", "llen", "lindex", "lpop", "rpush", "lrem", "lrange",
			"zcard", "zscore", "zadd", "zrem", "zrank", "zrange", "zrangebyscore", "publish", "set":
			inside += n
		}
	}
	return scripts, inside
}

// handOff has a lock go through the hands of waiters in 4 processes, and answers
// what a hand-off cost, and what a waiter in all.
func handOff(b *testing.B, waiters int) (commands, inAll, inside float64) {
	b.Helper()
	srv := redistest.Start(b)
	look := srv.Client(b)
	ctx := context.Background()
	holder := newSide(b, srv.Options())
	const name = "fair-queue"
	h, err := holder.FairLock(name).Lock(ctx)
	require.NoError(b, err)
	before, _ := calls(b, look)
	for range 4 {
		startFair(b, srv, name, waiters/4)
	}
	var queue []string
	eventually(b, time.Minute, "all wait, and listen", func() bool {
		queue = look.LRange(ctx, "redisson_lock_queue:{"+name+"}", 0, -1).Val()
		chans := look.PubSubChannels(ctx, "*"+name+"*").Val()
		scripts, _ := calls(b, look)
		// Each tries a second time once it listens.
		return len(queue) == waiters && len(chans) == waiters && scripts-before >= int64(2*waiters)
	})
	scripts, calledInside := calls(b, look)
	require.NoError(b, h.Unlock(ctx))
	log := name + ":log"
	eventually(b, time.Minute, "all served", func() bool { return look.LLen(ctx, log).Val() == int64(waiters) })
	eventually(b, time.Minute, "the last has given it back", func() bool { return look.Exists(ctx, name).Val() == 0 })
	after, insideAfter := calls(b, look)
	require.Equal(b, queue, look.LRange(ctx, log, 0, -1).Val(), "not in the order of arrival")
	n := float64(waiters)
	// RPUSH of the log, and our own looks, are not the scripts'.
	return float64(after-scripts) / n, float64(after-before) / n, float64(insideAfter-calledInside) / n
}

// Bars: 200 waiters in 4 processes get in strictly as they came, with at most 4
// commands each in all, and what the scripts call inside for a hand-off doesn't
// grow with the queue.
func BenchmarkFairQueue(b *testing.B) {
	for b.Loop() {
		_, _, short := handOff(b, 48)
		commands, inAll, long := handOff(b, 200)
		require.LessOrEqual(b, inAll, 4.5, "commands a waiter; half a one for places that were refreshed")
		require.LessOrEqual(b, long, 1.2*short, "calls inside the scripts grow with the queue")
		b.ReportMetric(commands, "commands/handoff")
		b.ReportMetric(inAll, "commands/waiter")
		b.ReportMetric(short, "calls_inside/handoff_48")
		b.ReportMetric(long, "calls_inside/handoff_200")
	}
	b.ReportMetric(0, "ns/op")
}

// Bar: 200 waiters of a process that was killed are ahead; the next one gets in
// within one heartbeat of the release.
func BenchmarkFairDead200(b *testing.B) {
	for b.Loop() {
		srv := redistest.Start(b)
		look := srv.Client(b)
		ctx := context.Background()
		s := newSide(b, srv.Options())
		const name, waiters = "fair-dead", 200
		h, err := s.FairLock(name).Lock(ctx)
		require.NoError(b, err)
		child := startFair(b, srv, name, waiters)
		inLine := func(n int64) func() bool {
			return func() bool { return look.LLen(ctx, "redisson_lock_queue:{"+name+"}").Val() == n }
		}
		eventually(b, time.Minute, "they wait", inLine(waiters))
		got := make(chan time.Time, 1)
		go func() {
			h, err := s.FairLock(name).Lock(ctx)
			at := time.Now()
			if err == nil {
				err = h.Unlock(ctx)
			}
			if err != nil {
				b.Error(err)
			}
			got <- at
		}()
		eventually(b, time.Minute, "the living one waits", inLine(waiters+1))
		require.NoError(b, child.Process.Kill())
		released := time.Now()
		require.NoError(b, h.Unlock(ctx))
		took := (<-got).Sub(released)
		require.LessOrEqual(b, took, heartbeat+time.Second)
		require.Zero(b, look.Exists(ctx, "redisson_lock_queue:{"+name+"}", "redisson_lock_timeout:{"+name+"}").Val())
		b.ReportMetric(took.Seconds(), "s_until_next")
	}
	b.ReportMetric(0, "ns/op")
}
