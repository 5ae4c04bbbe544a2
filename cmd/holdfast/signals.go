package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// interrupted is the cause with which work ends because of a signal.
type interrupted struct{ os.Signal }

func (i interrupted) Error() string { return fmt.Sprintf("stopped by a signal: %v", i.Signal) }

func (i interrupted) number() int {
	n, _ := i.Signal.(syscall.Signal)
	return int(n)
}

// catchSignals collects the signals that end or steer a command, except those
// that were to be ignored from the start, as nohup wants it.
func catchSignals() (signals <-chan os.Signal, stop func()) {
	ch := make(chan os.Signal, 8)
	for _, s := range steering {
		if !signal.Ignored(s) {
			signal.Notify(ch, s)
		}
	}
	return ch, func() { signal.Stop(ch) }
}

// interruptible makes a context that ends at the first signal. settle stops
// listening for it, which leaves later signals in the channel, and answers the
// one that came, if any. Without a signal the context goes on.
func interruptible(signals <-chan os.Signal) (ctx context.Context, settle func() error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	quit, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		select {
		case s := <-signals:
			cancel(interrupted{s})
		case <-quit:
		}
	}()
	return ctx, func() error {
		close(quit)
		<-gone
		select {
		case s := <-signals: // it came together with quit, or just now
			cancel(interrupted{s})
		default:
		}
		return context.Cause(ctx)
	}
}
