// Chaos lets client processes work with all primitives while a nemesis breaks
// links, servers and the processes themselves, and then judges the history of all
// calls.
//
//	go run ./chaos -topology single|sentinel|cluster -duration 30s -seed 1 -clients 8 -goroutines 16
//
// It exits with 0 only if nothing was violated. The last line of its output is the
// verdict. On failure all that was recorded stays in a folder (-out): the history
// of each process, the verdict, a view of what has no explanation (HTML), the
// schedule of faults, and the logs of servers and clients.
//
// The faults and their moments depend on the seed, the duration and the topology
// alone. What the processes do depends on the seed and on the answers that they
// get: a second run with the same seed meets the same faults, not the same history.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/integration/internal/topology"
)

func main() {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(clientMain(role))
	}
	redis.SetLogger(silence{}) // servers that are down are the point here
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := chaos(ctx, os.Args[1:], os.Stdout)
	stop()
	os.Exit(code)
}

// silence is a log for go-redis; that of the clients is in their own files.
type silence struct{}

// Printf does nothing.
func (silence) Printf(context.Context, string, ...any) {}

// Exit codes.
const (
	passed   = 0
	violated = 1
	usage    = 2
	broken   = 3 // the run could not be made to its end
)

// chaos is the program.
func chaos(ctx context.Context, args []string, out io.Writer) int {
	cfg, err := parse(args, out)
	if errors.Is(err, flag.ErrHelp) {
		return passed
	}
	if err != nil {
		fmt.Fprintln(out, "chaos:", err)
		return usage
	}
	if cfg.list {
		for _, k := range kindsFor(cfg.kind) {
			fmt.Fprintf(out, "%-8s %-17s %s\n", k.lane, k.name, k.does)
		}
		return passed
	}
	v, err := run(ctx, cfg, out)
	if err != nil {
		fmt.Fprintln(out, "chaos:", err)
		fmt.Fprintf(out, "BROKEN: %s, seed %d: the run could not be made to its end\n", cfg.kind, cfg.seed)
		return broken
	}
	fmt.Fprintln(out, v)
	if len(v.violations) > 0 {
		return violated
	}
	return passed
}

// config is what the flags say.
type config struct {
	kind       topology.Kind
	duration   time.Duration
	seed       uint64
	clients    int
	goroutines int
	out        string
	keep       bool
	server     string
	only       []string
	control    string
	verbose    bool
	list       bool
}

func parse(args []string, out io.Writer) (config, error) {
	var c config
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.SetOutput(out)
	top := f.String("topology", string(topology.Single), "single, sentinel or cluster")
	f.DurationVar(&c.duration, "duration", 30*time.Second, "of the work; what calls and servers need to come to rest comes on top")
	f.Uint64Var(&c.seed, "seed", 1, "of the schedule and of what clients do")
	f.IntVar(&c.clients, "clients", 8, "processes")
	f.IntVar(&c.goroutines, "goroutines", 16, "of each process")
	f.StringVar(&c.out, "out", "", "folder for what is recorded (default: a new one in the temporary folder)")
	f.BoolVar(&c.keep, "keep", false, "keep that folder, which goes when all was well")
	f.StringVar(&c.server, "server", "", "server binary (default: $HOLDFAST_REDIS_SERVER, or redis-server or valkey-server from PATH)")
	only := f.String("faults", "", "only these kinds of faults, comma-separated; none: no faults (default: all; see -list)")
	f.StringVar(&c.control, "control", "", "one more client, broken on purpose, so that the run must fail: "+
		trespasser+" (enters without the lock) or "+deaf+" (stays inside though its hold is lost)")
	f.BoolVar(&c.verbose, "v", false, "print the schedule, and each fault as it happens")
	f.BoolVar(&c.list, "list", false, "print the kinds of faults of the topology, and exit")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	var err error
	if c.kind, err = topology.ParseKind(*top); err != nil {
		return c, err
	}
	switch {
	case f.NArg() > 0:
		return c, fmt.Errorf("nothing is known about %q", f.Args())
	case c.kind == topology.Replicated:
		return c, fmt.Errorf("nothing fails over in topology %s: choose sentinel", c.kind)
	case c.duration < time.Second:
		return c, fmt.Errorf("-duration %v is too short for anything to happen: a second at least", c.duration)
	case c.control != "" && c.control != trespasser && c.control != deaf:
		return c, fmt.Errorf("there is no control %q", c.control)
	case c.clients < 1 || c.goroutines < 1:
		return c, fmt.Errorf("-clients %d, -goroutines %d: one at least", c.clients, c.goroutines)
	}
	if *only != "" {
		c.only = strings.Split(*only, ",")
	}
	for _, name := range c.only {
		if name != noFaults && !slices.ContainsFunc(kindsFor(c.kind), func(k kind) bool { return k.name == name }) {
			return c, fmt.Errorf("topology %s has no fault %q: see -list", c.kind, name)
		}
	}
	return c, nil
}
