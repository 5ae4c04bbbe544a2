package hold

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/script"
	"github.com/holdfast-go/holdfast/internal/wait"
)

// Queue is a Kind whose waiters stand in line in Redis: each owner that waits has
// one place, however many of its calls do.
type Queue interface {
	Kind
	// WaiterChannel is where an owner is told that it is next.
	WaiterChannel(key, field string) string
	// Place is the place of a call that waits: forever, or for d.
	Place(forever bool, d time.Duration) Place
	// Leave gives up an owner's place; it answers as leave.lua.
	Leave(Args) script.Call
}

// Place is how an owner stands in a queue. The zero value: it doesn't.
type Place struct {
	// Wait is by how much its place is kept longer than the one before.
	Wait time.Duration
	// Beat is after how long without word it counts as dead. It asks again three
	// times as often.
	Beat time.Duration
}

// Those who leave the queue wait this long for the answer, so that their place is
// gone when they say so: with time, or when they were told to go at once.
const (
	leaveWait = 250 * time.Millisecond
	leaveNow  = 50 * time.Millisecond
)

// queue is what one call has to do with the queue of its lock.
type queue struct {
	place Place // zero if this call doesn't wait
	stood bool  // it has asked for a place
}

// join fills in what a call that may wait needs.
func (a *attempt) join(s *wait.Spec) {
	kind := a.queueKind
	s.Line = ""
	s.Channel = kind.WaiterChannel(a.key, a.entry.field)
	if !s.Forever && s.Wait <= 0 {
		return
	}
	a.queue.place = kind.Place(s.Forever, s.Wait)
	s.Refresh = a.queue.place.Beat / 3
	l := &a.ledger
	l.mu.Lock()
	a.entry.queuing++
	l.mu.Unlock()
}

// stand answers the owner's place, which this call takes if the owner has none.
// It needs the entry's turn.
func (a *attempt) stand() Place {
	e := a.entry
	if a.queueKind == nil {
		return Place{}
	}
	if a.queue.place != (Place{}) {
		a.queue.stood = true
		if e.place == (Place{}) {
			e.place = a.queue.place
		}
	}
	return e.place
}

// quit ends what this call has to do with the queue. If it got nothing, and no
// other call of its owner waits, the place goes with it: behind the caller, who
// stays for the answer only a moment.
func (a *attempt) quit(ctx context.Context, granted bool) {
	if a.queue.place == (Place{}) {
		return
	}
	e, l := a.entry, &a.ledger
	l.mu.Lock()
	e.queuing--
	last, busy := e.queuing == 0, e.busy
	if granted || !last || !a.queue.stood {
		l.mu.Unlock()
		return
	}
	e.callers++ // until leave is done: who comes meanwhile must wait for its turn
	l.mu.Unlock()

	done := make(chan struct{})
	leave := func() {
		defer close(done)
		defer e.exit()
		a.giveUp()
	}
	if !a.Tasks.Go(leave) {
		leave() // the client was closed: nobody else will
		return
	}
	stay := leaveWait
	if ctx.Err() != nil {
		stay = leaveNow
	}
	if busy {
		return // the command before it has no answer either
	}
	timer := time.NewTimer(stay)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// giveUp gives the owner's place up, unless somebody wants it again.
func (a *attempt) giveUp() {
	e := a.entry
	if !e.takeTurn(nil, time.Time{}) {
		return // closed: the place ends by itself
	}
	defer e.giveTurn()
	e.ledger.mu.Lock()
	wanted := e.queuing > 0
	e.ledger.mu.Unlock()
	if wanted || e.place == (Place{}) {
		return
	}
	args := a.args()
	args.Field, args.Place = e.fieldArg, e.place
	// After a beat the place is gone anyway.
	reply := a.Send(context.WithoutCancel(a.Tasks.Context()), max(a.Patience, e.place.Beat), a.queueKind.Leave(args))
	e.place = Place{}
	switch {
	case reply.Err == nil && reply.Int() == unheard:
		a.Muted(a.key)
	case reply.Err != nil && !errors.Is(reply.Err, errs.ErrClosed):
		a.Log.Warn("holdfast: a place in a queue could not be given up; it ends by itself", "name", a.name, "owner", e.field, "cause", reply.Err)
	}
}

// queuesLocked reports whether anybody stands in a queue in Redis.
func (l *ledger) queuesLocked() bool {
	for _, e := range l.entries {
		if e.queuing > 0 {
			return true
		}
	}
	return false
}

// wrongType explains a key of another type: the lock's, or one of its further
// ones.
func (n *names) wrongType(ctx context.Context, err error) error {
	if len(n.more) > 0 {
		t, terr := Query(ctx, n.Services, func(ctx context.Context) (string, error) { return n.Runner.Redis().Type(ctx, n.key).Result() })
		if terr == nil && (t == "hash" || t == "none") {
			quoted := make([]string, len(n.more))
			for i, key := range n.more {
				quoted[i] = errs.Quote(fmt.Sprint(key))
			}
			return errs.Invalid("name %s: one of its further keys, %s, holds a value of another type; it was left untouched: choose another name",
				errs.Quote(n.name), strings.Join(quoted, ", "))
		}
	}
	return n.invalidKey(ctx, n.name, n.key, err)
}
