package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/internal/history"
	"github.com/holdfast-go/holdfast/integration/internal/register"
)

// use is how an actor uses a name of each kind, once.
var use = map[history.Kind]func(a *actor){
	history.Lock:      (*actor).useLock,
	history.Fair:      (*actor).useFairLock,
	history.Fenced:    (*actor).useFencedLock,
	history.RW:        (*actor).useRWLock,
	history.Semaphore: (*actor).useSemaphore,
	history.Expirable: (*actor).useExpirable,
	history.Latch:     (*actor).useLatch,
	history.Limiter:   (*actor).useLimiter,
}

// All are the kinds that are used by default.
var All = []history.Kind{
	history.Lock, history.Fair, history.Fenced, history.RW,
	history.Semaphore, history.Expirable, history.Latch, history.Limiter,
}

// actor is one goroutine. It makes one call after the other.
type actor struct {
	*process
	*rand.Rand
	worker int
	stop   context.Context //nolint:containedctx // the run's, not a call's
	owners int             // so far
	link   *register.Link  // to the guarded resource
}

func (a *actor) run() {
	a.link = register.Dial(a.Register)
	defer a.link.Close()
	for a.stop.Err() == nil {
		use[a.Kinds[a.IntN(len(a.Kinds))]](a)
	}
}

// name is one of those of a kind that are in use.
func (a *actor) name(k history.Kind) string { return a.nameOf(k, a.IntN(a.Names)) }

func (a *actor) nameOf(k history.Kind, i int) string {
	return NameOf(a.Prefix, k, i, a.generation())
}

// owner is a context with an owner that nobody else is, and its id.
func (a *actor) owner() (context.Context, string) {
	a.owners++
	id := fmt.Sprintf("%d-%d-%d", a.Process, a.worker, a.owners)
	return holdfast.WithOwnerID(context.Background(), id), id
}

// NameOf is a name of a run.
func NameOf(prefix string, k history.Kind, i int, generation int64) string {
	return fmt.Sprintf("%s%s-%d-%d", prefix, k, i, generation)
}

func (a *actor) generation() int64 { return (history.Now() - a.Epoch) / int64(a.Generation) }

func (a *actor) chance(p float64) bool { return a.Float64() < p }

func (a *actor) upTo(d time.Duration) time.Duration { return time.Duration(a.Int64N(int64(d))) }

// call records one call, and answers how it ended and its ID.
func (a *actor) call(op history.Op, do func(id int64, r *history.Result) error) (history.Result, int64) {
	op.Worker = a.worker
	id := a.Begin(op)
	var r history.Result
	err := do(id, &r)
	if r.Outcome == history.Open {
		r.Outcome = outcome(err)
	}
	if err != nil && r.Outcome != history.Refused {
		r.Error = err.Error()
	}
	a.End(id, r)
	a.count(r.Outcome)
	return r, id
}

// outcome tells errors apart.
func outcome(err error) history.Outcome {
	switch {
	case err == nil:
		return history.Done
	case errors.Is(err, holdfast.ErrInvalid):
		return history.Failed
	case errors.Is(err, holdfast.ErrUncertain), errors.Is(err, holdfast.ErrUnavailable),
		errors.Is(err, holdfast.ErrDenied), errors.Is(err, holdfast.ErrNotReplicated), errors.Is(err, holdfast.ErrClosed),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return history.Unknown
	case errors.Is(err, holdfast.ErrNotHeld), errors.Is(err, holdfast.ErrLost):
		return history.Lost
	case errors.Is(err, holdfast.ErrNotAcquired), errors.Is(err, holdfast.ErrReentry), errors.Is(err, holdfast.ErrUpgrade):
		return history.Refused
	}
	return history.Failed
}
