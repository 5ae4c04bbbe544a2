package trials

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/rlock"
)

// childRole in the environment makes this binary a process of a trial: "lock
// address name" holds that lock.
const childRole = "HOLDFAST_TRIALS_CHILD"

func child(role string) int {
	words := strings.SplitN(role, " ", 3)
	if len(words) != 3 || words[0] != "lock" {
		fmt.Fprintf(os.Stderr, "no role: %q\n", role)
		return 1
	}
	rdb := redis.NewClient(&redis.Options{Addr: words[1]})
	if err := hold(rdb, words[2]); err != nil {
		fmt.Println("failed:", err)
		return 1
	}
	return 0
}

// wakes is the gap in its clock by which a process knows that it was stopped.
const wakes = lossLease

// hold holds a lock, and says after a stop what its context answers at the first
// look, since when it would have answered so, what woke first, and what comes of
// its unlock. It spins on a single thread, so that nothing of the client can run
// between the stop and that look.
func hold(rdb *redis.Client, name string) error {
	runtime.GOMAXPROCS(1)
	c, err := holdfast.New(rdb, holdfast.WithLease(lossLease))
	if err != nil {
		return err
	}
	h, err := c.Lock(name).Lock(context.Background())
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the parent
		os.Exit(1)
	}()
	ends := h.ExpiresAt()
	last := time.Now() // before the parent knows, who may stop us at once
	fmt.Println("held")
	for {
		now := time.Now()
		if now.Sub(last) > wakes {
			break
		}
		last, ends = now, h.ExpiresAt()
	}
	at, cause := h.Context().Err(), context.Cause(h.Context())
	err = h.Unlock(context.Background())
	fmt.Println(at != nil && errors.Is(cause, holdfast.ErrLost), errors.Is(err, holdfast.ErrNotHeld) && errors.Is(err, holdfast.ErrLost), ends.UnixNano())
	return c.Close()
}

// process is a child that holds a lock.
type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
}

func startHolder(tb testing.TB, addr, name string) *process {
	p := &process{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), childRole+"=lock "+addr+" "+name)
	p.cmd.Stderr = os.Stderr
	var err error
	p.stdin, err = p.cmd.StdinPipe()
	require.NoError(tb, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(tb, err)
	p.lines = bufio.NewScanner(out)
	require.NoError(tb, p.cmd.Start())
	tb.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it has ended already, if all went well
		_ = p.cmd.Wait()         // likewise
	})
	require.True(tb, p.lines.Scan(), "the process has ended")
	require.Equal(tb, "held", p.lines.Text())
	return p
}

// verdict is what a process said after its stop.
type verdict struct {
	told    bool // at the first look
	refused bool // its unlock
	since   time.Time
	kept    bool // the other's hold was untouched
	taken   time.Time
}

// stopProcesses stops n processes that hold a lock each until somebody else has
// taken it, and lets them go on.
func stopProcesses(tb testing.TB, n int) []verdict {
	ctx := context.Background()
	others := newParty(tb, server.Client(tb))
	defer others.leave()
	verdicts := make([]verdict, n)
	var wg sync.WaitGroup
	for i := range n {
		name := fmt.Sprintf("stopped-%s-%d-%d", tb.Name(), time.Now().UnixNano(), i)
		p := startHolder(tb, server.Addr(), name)
		pause(time.Duration(i) * time.Millisecond) // anywhere
		require.NoError(tb, p.cmd.Process.Signal(syscall.SIGSTOP))
		stopped := time.Now()
		v := &verdicts[i]
		wg.Go(func() {
			h, err := others.Lock(name).TryLock(ctx, rlock.Wait(hang))
			if err != nil {
				tb.Error("the lease of a stopped process doesn't end: ", err)
				return
			}
			v.taken = time.Now()
			pause(time.Until(stopped.Add(wakes + 200*time.Millisecond)))
			if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
				tb.Error(err)
			}
			var since int64
			if !p.lines.Scan() {
				tb.Error("the process has ended without a word")
				return
			}
			if _, err := fmt.Sscan(p.lines.Text(), &v.told, &v.refused, &since); err != nil {
				tb.Errorf("%v: %q", err, p.lines.Text())
			}
			v.since = time.Unix(0, since)
			v.kept = h.Context().Err() == nil && h.Unlock(ctx) == nil
		})
	}
	wg.Wait()
	return verdicts
}

// stopClients is a way to lose: told is the moment since when the holder's context
// says so to whoever looks; a process that is stopped can't look sooner.
func stopClients(tb testing.TB, _ loss, n int) (trials []trial) {
	for _, v := range stopProcesses(tb, n) {
		trials = append(trials, trial{told: v.since, taken: v.taken, blind: !v.told || !v.refused || !v.kept})
	}
	return trials
}

// Bar: a client is stopped for longer than its lease, 100 times: its context has
// ended at the first look, its unlock is refused, and the other's hold untouched.
func BenchmarkStopped100(b *testing.B) {
	const rounds, atOnce = 5, 20
	for b.Loop() {
		var blind, unlocked, touched int
		for range rounds {
			for _, v := range stopProcesses(b, atOnce) {
				if !v.told {
					blind++
				}
				if !v.refused {
					unlocked++
				}
				if !v.kept {
					touched++
				}
			}
		}
		b.ReportMetric(rounds*atOnce, "trials")
		b.ReportMetric(float64(blind), "blind_first_looks")
		b.ReportMetric(float64(unlocked), "unlocked_what_it_had_lost")
		b.ReportMetric(float64(touched), "others_touched")
		if blind+unlocked+touched > 0 {
			b.Errorf("%d looks were blind, %d unlocks not refused, %d holds of others touched", blind, unlocked, touched)
		}
	}
	b.ReportMetric(0, "ns/op")
}
