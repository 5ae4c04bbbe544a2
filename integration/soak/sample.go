package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// series is one curve. Its room is made before the run.
type series struct {
	name, unit string
	at         []time.Duration
	values     []float64
	// share and more say by how much it may grow between the first and the last
	// quarter of what is judged.
	share, more float64
	// ceiling is instead of both where the level itself is known: what is killed
	// comes back when it is needed.
	ceiling float64
	// settles is when it may first be judged.
	settles time.Duration
}

const (
	heap = iota
	goroutines
	keyCount
	connections
)

// poolSize is the number of connections of one client. go-redis may exceed it
// while it dials.
const poolSize = 10

func newSeries(cfg config) []*series {
	warm := cfg.duration / 6
	all := []*series{
		heap:        {name: "heap in use after a collection", unit: "MiB", share: 0.1, more: 1, settles: warm},
		goroutines:  {name: "goroutines", unit: "", share: 0.1, more: 10, settles: warm},
		keyCount:    {name: "keys, without the markers of requests", unit: "", share: 0.1, more: 50, settles: warm},
		connections: {name: "connections at the server", unit: "", ceiling: float64((cfg.clients + 1) * (2*poolSize + 2)), settles: warm},
	}
	n := int(cfg.duration/cfg.every) + 10
	for _, s := range all {
		s.at, s.values = make([]time.Duration, 0, n), make([]float64, 0, n)
	}
	return all
}

func (s *series) add(at time.Duration, v float64) {
	s.at, s.values = append(s.at, at), append(s.values, v)
}

// sample measures until ctx ends.
func (r *result) sample(ctx context.Context, admin *redis.Client, out io.Writer) error {
	start, said := time.Now(), time.Duration(0)
	tick := time.NewTicker(r.cfg.every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		var mem runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&mem)
		info, err := admin.InfoMap(ctx, "clients").Result()
		keys := 0
		all := admin.Scan(ctx, 0, "*", 5000).Iterator()
		for all.Next(ctx) {
			if !isMarker(all.Val()) {
				keys++
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		if err = errors.Join(err, all.Err()); err != nil {
			return err
		}
		linked, err := strconv.ParseFloat(info["Clients"]["connected_clients"], 64)
		if err != nil {
			return fmt.Errorf("connections: %w", err)
		}
		at := time.Since(start)
		r.series[heap].add(at, float64(mem.HeapAlloc)/(1<<20))
		r.series[goroutines].add(at, float64(runtime.NumGoroutine()))
		r.series[keyCount].add(at, float64(keys))
		r.series[connections].add(at, linked)
		if at-said >= time.Minute {
			said = at
			calls, failed := r.tally.sum()
			fmt.Fprintf(out, "%5.1f min  %8d calls, %d failed  heap %.1f MiB  %d goroutines  %d keys  %.0f connections\n",
				at.Minutes(), calls, failed, r.series[heap].values[len(r.series[heap].values)-1], runtime.NumGoroutine(), keys, linked)
		}
	}
}

// judge prints each curve's growth, and answers those that grew too much.
func (r *result) judge(out io.Writer) (wrong []error) {
	for _, s := range r.series {
		from, to, enough := s.growth()
		if !enough {
			fmt.Fprintf(out, "NOT JUDGED: %s: THE RUN IS TOO SHORT, IT SETTLES AFTER %v\n", s.name, s.settles)
			continue
		}
		bound := s.bound(from)
		fmt.Fprintf(out, "%-36s %10.1f %s at first, %.1f in the end, may be %.1f\n", s.name, from, s.unit, to, bound)
		if to > bound {
			wrong = append(wrong, fmt.Errorf("%s grew from %.1f to %.1f %s, beyond %.1f", s.name, from, to, s.unit, bound))
		}
	}
	return wrong
}

// bound is what may be measured in the end, if it was from at first.
func (s *series) bound(from float64) float64 {
	if s.ceiling > 0 {
		return s.ceiling
	}
	return from*(1+s.share) + s.more
}

// growth answers the medians of the first and of the last quarter of what was
// measured since it settled, and whether that is enough to judge.
func (s *series) growth() (from, to float64, enough bool) {
	first, _ := slices.BinarySearch(s.at, s.settles)
	settled := s.values[first:]
	quarter := len(settled) / 4
	if quarter < 4 {
		return 0, 0, false
	}
	return median(settled[:quarter]), median(settled[len(settled)-quarter:]), true
}

func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	return v[len(v)/2]
}
