package locktest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/hold"
)

// HoldThroughStop is what a process does that is stopped for longer than its lease:
// it locks l, prints "held", and once it has stood still for stopped, prints whether
// its hold's context had ended at the first look, and by loss, and then whether its
// Unlock is ErrNotHeld, and ErrLost. It spins on a single thread, so that no timer
// of the watchdog can come before that look, and ends with its standard input.
func HoldThroughStop(l hold.Locker, stopped time.Duration) error {
	runtime.GOMAXPROCS(1)
	h, err := l.Lock(context.Background())
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the parent
		os.Exit(1)
	}()
	last := time.Now() // before the parent knows, who may stop us at once
	fmt.Println("held")
	for {
		now := time.Now()
		if now.Sub(last) > stopped {
			break
		}
		last = now
	}
	at, cause := h.Context().Err(), context.Cause(h.Context())
	fmt.Println(at != nil, errors.Is(cause, errs.ErrLost))
	err = h.Unlock(context.Background())
	fmt.Println(errors.Is(err, errs.ErrNotHeld), errors.Is(err, errs.ErrLost))
	return nil
}
