package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/internal/history"
)

// process is what the goroutines share.
type process struct {
	Config
	*history.Writer
	client *holdfast.Client
	rdb    redis.UniversalClient

	watchers sync.WaitGroup // of queues

	mu     sync.Mutex
	counts map[string]int
	busy   atomic.Int64 // goroutines that have a call under way, or might begin one
}

// Main is a process: it reads its Config from in, works until in is closed or
// SIGTERM comes, and answers the exit code.
func Main(in io.Reader, errs io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	lines := bufio.NewReader(in)
	text, err := lines.ReadBytes('\n')
	if err != nil {
		fmt.Fprintln(errs, "worker: read config:", err)
		return 2
	}
	var c Config
	if err := json.Unmarshal(text, &c); err != nil {
		fmt.Fprintln(errs, "worker: read config:", err)
		return 2
	}
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, lines)
		stop()
	}()
	if err := Run(ctx, c); err != nil {
		fmt.Fprintf(errs, "worker %d: %v\n", c.Process, err)
		return 1
	}
	return 0
}

// Run works until ctx ends. Then it begins nothing more and comes to its end,
// within Settle and the time that Close takes. What is wrong afterwards (calls that
// don't end, goroutines left, a history that could not be written) is its error,
// and stands in the Report, too.
func Run(ctx context.Context, c Config) error {
	c, err := c.complete()
	if err != nil {
		return err
	}
	before := goleak.IgnoreCurrent()
	w, err := history.Create(c.History, c.Process)
	if err != nil {
		return err
	}
	p := &process{Config: c, Writer: w, counts: make(map[string]int)}
	if p.rdb, err = dial(c); err != nil {
		return errors.Join(err, w.Close())
	}
	opts := []holdfast.Option{
		holdfast.WithLease(c.Lease), holdfast.WithCommandTimeout(c.CommandTimeout), holdfast.WithPollFallback(c.Poll),
	}
	if c.FairTimeout > 0 {
		opts = append(opts, holdfast.WithFairTimeout(c.FairTimeout))
	}
	if c.Replicas > 0 {
		opts = append(opts, holdfast.WithReplicas(c.Replicas, c.ReplicaTimeout))
	}
	if p.client, err = holdfast.New(p.rdb, opts...); err != nil {
		return errors.Join(err, p.rdb.Close(), w.Close())
	}
	var stalls sync.WaitGroup
	over := make(chan struct{})
	stalls.Go(func() { w.Stalls(over, &c.Process) })
	hang := p.work(ctx)
	if hang == nil {
		hang = p.rest()
	}
	closed := p.close()
	close(over)
	stalls.Wait()
	leaks := p.leaks(before)
	r := history.Report{Calls: p.counts, Leaks: leaks}
	err = errors.Join(hang, closed)
	if err != nil {
		r.Error = err.Error()
	}
	w.Report(r)
	if leaks != "" {
		err = errors.Join(err, errors.New("worker: left behind: "+leaks))
	}
	return errors.Join(err, w.Close())
}

// work lets all goroutines do as they like until ctx ends, and their calls come to
// an end.
func (p *process) work(ctx context.Context) error {
	var all sync.WaitGroup
	for i := range p.Goroutines {
		seed := uint64(p.Process)<<32 | uint64(i)
		a := &actor{process: p, Rand: rand.New(rand.NewPCG(p.Seed, seed)), worker: i, stop: ctx}
		p.busy.Add(1)
		all.Go(func() {
			defer p.busy.Add(-1)
			a.run()
		})
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		p.watchers.Wait()
		close(done)
	}()
	<-ctx.Done()
	select {
	case <-done:
		return nil
	case <-time.After(p.Settle):
	}
	var stacks strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
	fmt.Fprintln(os.Stderr, stacks.String())
	return fmt.Errorf("worker: %d goroutines have a call that didn't end within %v of the stop", p.busy.Load(), p.Settle)
}

// close closes everything; what hangs is an error.
func (p *process) close() error {
	done := make(chan error, 1)
	go func() {
		// What is under way behind the callers comes to its end first.
		ctx, cancel := context.WithTimeout(context.Background(), p.Settle)
		defer cancel()
		done <- p.client.Shutdown(ctx)
	}()
	var err error
	select {
	case err = <-done:
	case <-time.After(2 * p.Settle):
		err = fmt.Errorf("worker: Shutdown didn't return within %v", 2*p.Settle)
	}
	used := func() uint32 { s := p.rdb.PoolStats(); return s.TotalConns - s.IdleConns }
	if !within(lingers, func() bool { return used() == 0 }) && err == nil {
		err = fmt.Errorf("worker: %d connections are in use after Shutdown", used())
	}
	return errors.Join(err, p.rdb.Close())
}

// leaks answers goroutines that are left, in words.
func (p *process) leaks(before goleak.Option) string {
	var left error
	if !within(lingers, func() bool { left = goleak.Find(before); return left == nil }) {
		return left.Error()
	}
	return ""
}

// lingers is how long go-redis may take to end what it had begun: to connect, for
// example.
const lingers = 5 * time.Second

// within asks again and again, for so long at most, whether something is so.
func within(d time.Duration, is func() bool) bool {
	for end := time.Now().Add(d); ; <-time.After(10 * time.Millisecond) {
		if is() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

func (p *process) count(o history.Outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[string(o)]++
}
