package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/integration/internal/history"
	"github.com/holdfast-go/holdfast/integration/internal/worker"
)

// verdict is what is said of a run.
type verdict struct {
	cfg        config
	violations []string
	outcomes   map[history.Outcome]int
	faults     map[string]int
	found      history.Verdict
	longest    time.Duration // call after the last fault
}

// String is one line.
func (v verdict) String() string {
	what := "PASS"
	if len(v.violations) > 0 {
		what = "FAIL"
	}
	total := 0
	for _, n := range v.outcomes {
		total += n
	}
	nemesis, each := 0, []string{}
	for _, k := range append(slices.Clone(kinds), unplanned) {
		if n := v.faults[k.name]; n > 0 {
			nemesis += n
			each = append(each, fmt.Sprintf("%d %s", n, k.name))
		}
	}
	return fmt.Sprintf("%s: %s, seed %d, %v, %d clients x %d goroutines: %d operations (%d granted, %d refused, %d unknown, %d lost, %d open), "+
		"%d faults (%s), %d names, %d partitions checked (up to %d calls, %v), %d holds (%d losses told, %d times excused, judged for %s of their time), %d places in line, "+
		"%d violations, longest call after the last fault %v",
		what, v.cfg.kind, v.cfg.seed, v.cfg.duration, v.cfg.clients, v.cfg.goroutines,
		total, v.outcomes[history.Done], v.outcomes[history.Refused], v.outcomes[history.Unknown], v.outcomes[history.Lost], v.outcomes[history.Open],
		nemesis, strings.Join(each, ", "), v.found.Names, v.found.Names, v.found.Largest, v.found.Slowest.Round(time.Millisecond),
		v.found.Holds, v.found.Told, v.found.Excused, v.found.Share(), v.found.Queued,
		len(v.violations), v.longest.Round(time.Millisecond))
}

// recorded is what all processes have written down so far.
func (r *runner) recorded() (*history.History, error) {
	files, err := filepath.Glob(filepath.Join(r.dir, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	h, err := history.Load(files...)
	if err != nil {
		return nil, err
	}
	h.Events = append(h.Events, r.unplanned...)
	slices.SortStableFunc(h.Events, func(a, b history.Event) int { return cmp.Compare(a.Begin, b.Begin) })
	return h, nil
}

// conserve has the permits counted that are left when all clients have ended.
func (r *runner) conserve(ctx context.Context) error {
	h, err := r.recorded()
	if err != nil {
		return err
	}
	return worker.Conserve(ctx, r.task()(history.Judge, 0, ""), h, r.world.events)
}

// judge reads what all processes wrote down, and checks it.
func (r *runner) judge(context.Context) (verdict, error) {
	v := verdict{cfg: r.config, violations: slices.Concat(r.world.wrong, r.violation), faults: r.world.done, outcomes: make(map[history.Outcome]int)}
	r.unwatch()
	if err := r.world.events.Close(); err != nil {
		return v, err
	}
	h, err := r.recorded()
	if err != nil {
		return v, err
	}
	if n := len(r.unplanned); n > 0 {
		v.faults[unplanned.name] = n
	}
	for _, op := range h.Ops {
		v.outcomes[op.Outcome]++
		if op.End > r.calm {
			v.longest = max(v.longest, time.Duration(op.End-max(op.Start, r.calm)))
		}
	}
	began := time.Now()
	found := history.Check(h, history.Options{Beat: beat})
	r.tell("the check took %v", time.Since(began).Round(time.Millisecond))
	v.found = found
	for _, x := range found.Violations {
		v.violations = append(v.violations, x.String())
	}
	if len(v.violations) == 0 {
		return v, nil
	}
	for _, x := range v.violations {
		fmt.Fprintln(r.out, "VIOLATION:", x)
	}
	if err := found.Save(filepath.Join(r.dir, "verdict")); err != nil {
		return v, err
	}
	text := strings.Join(v.violations, "\n") + "\n" + v.String() + "\n"
	return v, os.WriteFile(filepath.Join(r.dir, "violations.txt"), []byte(text), 0o644)
}
