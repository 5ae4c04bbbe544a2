package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/internal/history"
)

// Conserve looks at the permits of all semaphores of a history, after all its
// processes have ended, and writes down how many are free: those that were set are
// all back, but for what processes that were killed have taken along. (Of permits
// with a lease these come back, too: Conserve waits for that, up to twice the lease
// that the processes used.) It works as the judge, in whose file w writes.
func Conserve(ctx context.Context, c Config, h *history.History, w *history.Writer) (err error) {
	c.Process, c.Goroutines, c.History = history.Judge, 1, "none"
	if c, err = c.complete(); err != nil {
		return err
	}
	rdb, err := dial(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rdb.Close()) }()
	client, err := holdfast.New(rdb)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()

	done := make(map[string]bool)
	until := time.Now().Add(2*c.Lease + 5*time.Second)
	for _, op := range h.Ops {
		if done[op.Name] || op.Kind != history.Semaphore && op.Kind != history.Expirable {
			continue
		}
		done[op.Name] = true
		look := history.Op{Kind: op.Kind, Name: op.Name, Call: history.Available}
		var n int64
		for {
			id := w.Begin(look)
			if op.Kind == history.Semaphore {
				n, err = client.Semaphore(op.Name).Available(ctx)
			} else {
				n, err = client.ExpirableSemaphore(op.Name).Available(ctx)
			}
			if err != nil {
				w.End(id, history.Result{Outcome: history.Unknown, Error: err.Error()})
				return fmt.Errorf("worker: look at %s: %w", op.Name, err)
			}
			if op.Kind == history.Semaphore || n == Permits || time.Now().After(until) {
				w.End(id, history.Result{Outcome: history.Done, Value: n})
				break
			}
			// Somebody who was killed has some, as far as their lease goes.
			w.End(id, history.Result{Outcome: history.Refused, Value: n})
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}
