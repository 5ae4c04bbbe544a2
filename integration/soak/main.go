// Soak works on all primitives for a long time, with connections and scripts lost
// now and then, and looks whether anything grows: heap, goroutines, keys,
// connections. It draws the four curves. Its exit code is 0 only if none of them
// grew beyond its bound, no call failed, and nothing was left in the end.
//
//	go run ./soak -duration 10m -svg ../docs/soak.svg
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

type config struct {
	duration time.Duration
	every    time.Duration // between two samples
	clients  int
	workers  int           // goroutines of each client
	pace     time.Duration // how long a worker rests after a call, on average
	lease    time.Duration
	seed     uint64
}

func main() {
	var cfg config
	flag.DurationVar(&cfg.duration, "duration", 10*time.Minute, "how long to work")
	flag.IntVar(&cfg.clients, "clients", 4, "holdfast clients")
	flag.IntVar(&cfg.workers, "workers", 16, "goroutines of each client")
	flag.DurationVar(&cfg.pace, "pace", 30*time.Millisecond, "rest of a goroutine after a call, on average")
	flag.Uint64Var(&cfg.seed, "seed", 1, "of the choice of calls")
	svg := flag.String("svg", "", "file to draw the curves into")
	flag.Parse()
	cfg.every = max(cfg.duration/300, 200*time.Millisecond)
	cfg.lease = 30 * time.Second // as by default: a machine with other work stalls
	if flag.NArg() > 0 || cfg.duration < time.Second || cfg.clients < 1 || cfg.workers < 1 || cfg.pace <= 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, cfg, *svg, os.Stdout); err != nil {
		fmt.Println("SOAK: FAIL:", err)
		os.Exit(1)
	}
}

// run soaks a server of its own, and answers what is wrong.
func run(ctx context.Context, cfg config, svg string, out io.Writer) error {
	srv, stop, err := redistest.StartMain()
	if err != nil {
		return err
	}
	defer stop()
	s, err := soak(ctx, cfg, srv, out)
	if err != nil {
		return err
	}
	if svg != "" {
		if err := drawInto(svg, s); err != nil {
			return err
		}
	}
	calls, errs := s.tally.sum()
	fmt.Fprint(out, s.tally)
	wrong := s.judge(out)
	fmt.Fprintf(out, "%d calls in %v, %d of them failed, %d faults\n", calls, cfg.duration, errs, s.faults)
	if errs > 0 {
		wrong = append(wrong, fmt.Errorf("%d calls failed", errs))
	}
	wrong = append(wrong, s.left...)
	if len(wrong) > 0 {
		return joined(wrong)
	}
	fmt.Fprintf(out, "SOAK: PASS: %v, %d calls, %d faults, nothing grew, nothing is left\n", cfg.duration, calls, s.faults)
	return nil
}
