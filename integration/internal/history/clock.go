package history

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Now is the clock of all records: CLOCK_MONOTONIC, in nanoseconds.
func Now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(fmt.Sprintf("history: no monotonic clock: %v", err)) // POSIX has it
	}
	return t.Nano()
}

// After is a moment d after at.
func After(at int64, d time.Duration) int64 { return at + int64(d) }
