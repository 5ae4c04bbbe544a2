package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/integration/internal/history"
	"github.com/holdfast-go/holdfast/integration/internal/register"
	"github.com/holdfast-go/holdfast/integration/internal/topology"
	"github.com/holdfast-go/holdfast/integration/internal/worker"
)

const (
	lease    = 2 * time.Second // of what clients hold
	noFaults = "none"

	// beat is how long a waiter of a fair lock that was killed holds up the others:
	// longer than clients are stopped, shorter than a call may hang.
	beat = 6 * time.Second

	prefix     = "chaos:"        // of all names
	generation = 5 * time.Second // after which others are used

	// settles is how long calls under way may take after the clients were told to
	// stop, when nothing is broken any more.
	settles = 15 * time.Second

	// rests is how long they may take then: to see that nothing of theirs is left,
	// and to close.
	rests = 2*lease + 10*time.Second
)

// run is one run from the start of the servers to the verdict. An error says that
// there is none: it was interrupted, or what it needs isn't here.
func run(ctx context.Context, cfg config, out io.Writer) (v verdict, err error) {
	dir, err := folder(cfg.out)
	if err != nil {
		return v, err
	}
	defer func() {
		if err != nil || len(v.violations) > 0 || cfg.keep {
			fmt.Fprintln(out, "what was recorded is in", dir)
			return
		}
		err = os.RemoveAll(dir)
	}()

	events := plan(chosen(cfg), cfg.seed, cfg.duration)
	if err := writeSchedule(dir, cfg, events, out); err != nil {
		return v, err
	}
	r := &runner{config: cfg, dir: dir, out: out, schedule: events}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.start(ctx); err != nil {
		return v, err
	}
	if err := r.work(ctx); err != nil {
		r.world.mu.Lock()
		defer r.world.mu.Unlock()
		for _, x := range r.world.wrong {
			err = errors.Join(err, errors.New(x))
		}
		return v, err
	}
	return r.judge(ctx)
}

// chosen are the kinds of faults of a run.
func chosen(cfg config) []kind {
	all := kindsFor(cfg.kind)
	if cfg.only == nil {
		return all
	}
	return slices.DeleteFunc(all, func(k kind) bool { return !slices.Contains(cfg.only, k.name) })
}

func folder(out string) (string, error) {
	if out == "" {
		return os.MkdirTemp("", "holdfast-chaos-")
	}
	out, err := filepath.Abs(out)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return "", err
	}
	if old, err := os.ReadDir(out); err != nil || len(old) > 0 {
		return "", errors.Join(err, fmt.Errorf("-out %s: the folder isn't empty", out))
	}
	return out, nil
}

func writeSchedule(dir string, cfg config, events []event, out io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "# topology %s, seed %d, duration %v: begin, length, kind, choice\n", cfg.kind, cfg.seed, cfg.duration)
	for _, e := range events {
		fmt.Fprintln(&text, e)
	}
	if cfg.verbose {
		fmt.Fprint(out, text.String())
	}
	return os.WriteFile(filepath.Join(dir, "schedule.txt"), []byte(text.String()), 0o644)
}

// runner is the parts of a run.
type runner struct {
	config
	dir      string
	out      io.Writer
	mu       sync.Mutex // of out
	schedule []event

	top       *topology.Topology
	proxies   *topology.Proxies
	guarded   *register.Register // what fenced locks guard; nothing disturbs it
	fleet     *fleet
	unwatch   func() // ends the watch of stalls
	world     *world
	unplanned []history.Event
	calm      int64 // history.Now when the last fault was over
	violation []string
}

// tell prints what happens, with -v.
func (r *runner) tell(format string, args ...any) {
	if !r.verbose {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, format+"\n", args...)
}

// start brings up everything but the faults.
func (r *runner) start(ctx context.Context) (err error) {
	began := time.Now()
	acl := filepath.Join(r.dir, "users.acl")
	if err := os.WriteFile(acl, []byte(users), 0o600); err != nil {
		return err
	}
	r.top, err = topology.Start(ctx, r.kind, topology.Options{
		Binary:    r.server,
		Dir:       filepath.Join(r.dir, "servers"),
		Durable:   r.kind == topology.Single, // elsewhere a replica takes over
		DownAfter: downAfter,
		Args:      []string{"--aclfile", acl},
	})
	if err != nil {
		return err
	}
	if r.proxies, err = r.top.Proxies(); err != nil {
		return err
	}
	if r.guarded, err = register.Listen(); err != nil {
		return err
	}
	events, err := history.Create(filepath.Join(r.dir, "nemesis.jsonl"), 0)
	if err != nil {
		return err
	}
	r.unwatch = watchStalls(r.top.Nodes(), events)
	r.fleet = &fleet{dir: r.dir, tell: r.tell, task: r.task()}
	r.world = &world{top: r.top, proxies: r.proxies, fleet: r.fleet, events: events, tell: r.tell, done: make(map[string]int)}
	r.tell("servers are up, after %v", time.Since(began).Round(time.Millisecond))
	return r.fleet.start(r.clients, r.control)
}

// task is what each process is told.
func (r *runner) task() func(process, place int, history string) worker.Config {
	e := r.proxies.Endpoint()
	epoch := history.Now()
	return func(process, _ int, file string) worker.Config {
		return worker.Config{
			Process:    process,
			Seed:       r.seed,
			Goroutines: r.goroutines,
			History:    file,
			Topology:   worker.Topology(e.Kind),
			Addrs:      e.Addrs,
			MasterName: e.MasterName,
			Proxies:    e.Via,
			Username:   appUser,
			Password:   appPassword,
			Prefix:     prefix,
			Epoch:      epoch,
			Generation: generation,
			Lease:      lease,

			FairTimeout: beat,
			Settle:      settles,
			Register:    r.guarded.Addr(),
		}
	}
}

// work lets the clients work, the nemesis haunt them, and everything come to rest.
func (r *runner) work(ctx context.Context) error {
	began := time.Now()
	end := began.Add(r.duration)
	watch := watchMasters(ctx, r.world)
	defer watch.close()
	haunt(ctx, r.world, r.schedule, began, r.duration-min(quiet, r.duration/3))
	if err := ctx.Err(); err != nil {
		return errors.New("interrupted")
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := r.top.Await(bounded); err != nil {
		return fmt.Errorf("the servers don't come to rest: %w", err)
	}
	// A server that was stopped may have taken a right away later than it was meant.
	if err := (&denial{give: []string{"&*", "+@all"}}).End(bounded, r.world); err != nil {
		return err
	}
	r.calm = history.Now()
	r.tell("%8.3fs all faults are over", time.Since(began).Seconds())
	// Of work without faults there is some in any case.
	if least := time.Now().Add(min(quiet, r.duration/3)); end.Before(least) {
		end = least
	}
	if !sleepUntil(ctx, end) {
		return errors.New("interrupted")
	}
	r.violation = append(r.violation, r.fleet.early()...)
	r.tell("%8.3fs the clients are told to stop", time.Since(began).Seconds())
	r.violation = append(r.violation, r.fleet.finish(ctx, settles+rests)...)
	r.tell("%8.3fs the clients have ended", time.Since(began).Seconds())
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	r.unplanned = watch.close()
	if err := r.conserve(ctx); err != nil {
		return err
	}
	h, err := r.recorded()
	if err != nil {
		return err
	}
	left, err := leftovers(ctx, r.top, excuse{killed: r.fleet.killedOnes(), lost: h.LostOf})
	r.violation = append(r.violation, left...)
	return err
}

// close ends all that still runs.
func (r *runner) close() (err error) {
	if r.unwatch != nil {
		r.unwatch()
	}
	if r.fleet != nil {
		r.fleet.close()
	}
	if r.guarded != nil {
		err = r.guarded.Close()
	}
	if r.proxies != nil {
		r.proxies.Close()
	}
	if r.top != nil {
		err = errors.Join(err, r.top.Close())
	}
	return err
}
