package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// tally counts calls by what they were to do. It keeps no more than that: memory
// is what is measured.
type tally struct {
	mu    sync.Mutex
	calls map[string]*count
}

type count struct {
	done, refused, failed int
	first                 error // that it failed with
}

func newTally() *tally { return &tally{calls: make(map[string]*count)} }

// count makes a call. allowed are the errors with which it may end.
func (t *tally) count(what string, call func() error, allowed ...error) {
	err := call()
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.calls[what]
	if c == nil {
		c = new(count)
		t.calls[what] = c
	}
	switch {
	case err == nil:
		c.done++
	case slices.ContainsFunc(allowed, func(target error) bool { return errors.Is(err, target) }):
		c.refused++
	default:
		c.failed++
		if c.first == nil {
			c.first = err
		}
	}
}

func (t *tally) sum() (calls, failed int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.calls {
		calls += c.done + c.refused + c.failed
		failed += c.failed
	}
	return calls, failed
}

func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(t.calls)) {
		c := t.calls[what]
		fmt.Fprintf(&b, "%-12s %8d done  %8d refused or out of time  %4d failed\n", what, c.done, c.refused, c.failed)
		if c.first != nil {
			fmt.Fprintf(&b, "             the first: %v\n", c.first)
		}
	}
	return b.String()
}
