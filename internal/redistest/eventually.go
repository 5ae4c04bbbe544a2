package redistest

import (
	"fmt"
	"testing"
	"time"
)

const pollEvery = 2 * time.Millisecond

// Eventually returns once cond holds, and ends the test with msg (formatted with
// args) if it doesn't within the given time. It is for states that send no event;
// where there is an event, wait for that. Call it from the test's own goroutine.
func Eventually(tb testing.TB, within time.Duration, cond func() bool, msg string, args ...any) {
	tb.Helper()
	if !poll(within, cond) {
		tb.Fatalf("not within %v: %s", within, fmt.Sprintf(msg, args...))
	}
}

// poll asks at once, then at every tick, and a last time when the time is over:
// a slow machine may have had no turn in between.
func poll(within time.Duration, cond func() bool) bool {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	over := time.NewTimer(within)
	defer over.Stop()
	for {
		if cond() {
			return true
		}
		select {
		case <-tick.C:
		case <-over.C:
			return cond()
		}
	}
}
