package hold

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/errs"
)

// errTurn is the error of a caller to whom takeTurn answered false.
func (e *entry) errTurn(ctx context.Context, what string) error {
	if ctx.Err() == nil && e.Tasks.Context().Err() == nil {
		return fmt.Errorf("%w: %s %s: an earlier command of this owner has no answer yet", errs.ErrUnavailable, what, errs.Quote(e.name))
	}
	return e.Gone(ctx, what, e.name, nil)
}

// takeTurn waits for the turn to send a command for this entry. It answers false
// when leave or the client is closed first, or the time (zero: no limit) over.
func (e *entry) takeTurn(leave <-chan struct{}, until time.Time) bool {
	l := &e.ledger
	l.mu.Lock()
	if e.takeTurnLocked() {
		l.mu.Unlock()
		return true
	}
	turn := make(chan struct{})
	e.waiting = append(e.waiting, turn)
	e.callers++
	l.mu.Unlock()

	var over <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-turn:
		return true
	case <-leave:
	case <-over:
	case <-e.Tasks.Done():
	}
	l.mu.Lock()
	i := slices.Index(e.waiting, turn)
	if i >= 0 {
		e.waiting = slices.Delete(e.waiting, i, i+1)
		e.callers--
		e.forgetLocked()
	}
	l.mu.Unlock()
	if i < 0 {
		e.giveTurn() // the turn came as we left
	}
	return false
}

func (e *entry) giveTurn() {
	l := &e.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	e.giveTurnLocked()
	e.forgetLocked()
}

// takeTurnLocked takes the turn if it is free.
func (e *entry) takeTurnLocked() bool {
	if e.busy {
		return false
	}
	e.busy = true
	e.callers++
	return true
}

// leave is giveTurn and exit in one.
func (e *entry) leave() {
	l := &e.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	e.giveTurnLocked()
	e.callers--
	e.forgetLocked()
}

func (e *entry) giveTurnLocked() {
	if len(e.waiting) > 0 {
		close(e.waiting[0])
		e.waiting = slices.Delete(e.waiting, 0, 1)
	} else {
		e.busy = false
	}
	e.callers--
}
