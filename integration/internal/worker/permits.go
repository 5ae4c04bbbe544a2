package worker

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/internal/history"
	"github.com/holdfast-go/holdfast/rlimiter"
	"github.com/holdfast-go/holdfast/rsemaphore"
)

// Numbers that all processes agree on.
const (
	// Permits of a semaphore: several are in at a time, and never all who want to.
	Permits = 5
	count   = 4 // of a latch

	rate     = 8 // permits of a limiter
	interval = 500 * time.Millisecond
)

// setUp sets a number, if nobody did before. It has to be said again and again,
// since servers may forget it.
func (a *actor) setUp(op history.Op, n int64, set func(context.Context, int64) (bool, error)) {
	op.Call, op.N, op.Bound = history.Set, n, a.CommandTimeout
	a.call(op, func(_ int64, r *history.Result) error {
		did, err := set(context.Background(), n)
		if err == nil && !did {
			r.Outcome = history.Refused
		}
		return err
	})
}

// useSemaphore takes permits and gives them back, perhaps in parts.
func (a *actor) useSemaphore() {
	op := history.Op{Kind: history.Semaphore, Name: a.name(history.Semaphore)}
	s := a.client.Semaphore(op.Name)
	a.setUp(op, Permits, s.TrySetPermits)
	if a.chance(0.2) {
		a.look(context.Background(), op, history.Available, s.Available)
		return
	}
	q := a.asks(context.Background(), false, false)
	defer q.end()
	op.Call, op.N, op.Bound = history.Acquire, 1+a.Int64N(3), q.bound
	r, id := a.call(op, func(_ int64, r *history.Result) (err error) {
		if q.wait {
			err = s.Acquire(q.ctx, op.N)
		} else {
			err = s.TryAcquire(q.ctx, op.N, q.opts...)
		}
		r.Left = q.left()
		return err
	})
	if r.Outcome != history.Done {
		return
	}
	<-time.After(a.work())
	n := op.N
	op.Call, op.Hold, op.Bound = history.Release, id, a.CommandTimeout
	if n > 1 && a.chance(0.5) {
		op.N, n = 1, n-1
		a.call(op, func(int64, *history.Result) error { return s.Release(context.Background(), 1) })
	}
	op.N = n
	a.call(op, func(int64, *history.Result) error { return s.Release(context.Background(), n) })
}

// useExpirable takes permits that are renewed, or have a fixed lease, and gives
// them back by themselves or by their ids.
func (a *actor) useExpirable() {
	op := history.Op{Kind: history.Expirable, Name: a.name(history.Expirable)}
	e := a.client.ExpirableSemaphore(op.Name)
	a.setUp(op, Permits, e.TrySetPermits)
	q := a.asks(context.Background(), false, true)
	op.Call, op.N, op.Lease, op.Fixed, op.Bound = history.Acquire, 1, q.lease, q.fixed, q.bound
	if q.wait && a.chance(0.3) {
		op.N = 2
	}
	var ps []*rsemaphore.Permit
	_, id := a.call(op, func(_ int64, r *history.Result) error {
		var err error
		switch {
		case q.wait:
			ps, err = e.AcquireN(q.ctx, int(op.N), q.opts...)
		default:
			var p *rsemaphore.Permit
			if p, err = e.TryAcquire(q.ctx, q.opts...); err == nil {
				ps = append(ps, p)
			}
		}
		for _, p := range ps {
			r.IDs = append(r.IDs, p.ID())
		}
		r.Left = q.left()
		return err
	})
	defer q.end()
	if len(ps) == 0 {
		return
	}
	// Several permits are kept as one: until the first of them is over.
	all, end := context.WithCancelCause(ps[0].Context())
	defer end(nil)
	for _, p := range ps[1:] {
		defer context.AfterFunc(p.Context(), func() { end(context.Cause(p.Context())) })()
	}
	hold := every{all, ps}
	d := a.work()
	live := a.keep(id, hold, d/2)
	if live && a.chance(0.3) {
		for _, p := range ps {
			a.extend(op, id, func(ctx context.Context, d time.Duration) error { return e.Extend(ctx, p.ID(), d) })
		}
	}
	a.keep(id, hold, d/2)
	a.giveBack(op, id, e, ps)
}

// every is the context of several permits; its Err looks at each.
type every struct {
	context.Context //nolint:containedctx // it is a context
	ps              []*rsemaphore.Permit
}

func (c every) Err() error {
	for _, p := range c.ps {
		if err := p.Context().Err(); err != nil {
			return err
		}
	}
	return c.Context.Err()
}

// giveBack gives permits back in one of the ways to do so.
func (a *actor) giveBack(op history.Op, id int64, e *rsemaphore.Expirable, ps []*rsemaphore.Permit) {
	ids := make([]string, len(ps))
	for i, p := range ps {
		ids[i] = p.ID()
	}
	op.Call, op.Hold, op.Lease, op.Fixed, op.Bound = history.Release, id, 0, false, a.CommandTimeout
	ctx := context.Background()
	switch {
	case a.chance(0.3):
		op.Of = ids
		a.call(op, func(int64, *history.Result) error { return e.Release(ctx, ids...) })
	case a.chance(0.3):
		op.Of = ids
		a.call(op, func(_ int64, r *history.Result) error {
			n, err := e.TryRelease(ctx, ids...)
			if err == nil && n < len(ids) {
				r.Outcome = history.Lost
			}
			return err
		})
	default:
		for i, p := range ps {
			op.Of, op.N = ids[i:i+1], 1
			a.call(op, func(int64, *history.Result) error { return p.Release(ctx) })
		}
	}
}

// useLatch sets it, counts down, or waits for others who do.
func (a *actor) useLatch() {
	op := history.Op{Kind: history.Latch, Name: a.name(history.Latch)}
	l := a.client.Latch(op.Name)
	switch {
	case a.chance(0.2):
		a.setUp(op, count, l.TrySetCount)
	case a.chance(0.5):
		op.Call, op.Bound = history.CountDown, a.CommandTimeout
		a.call(op, func(int64, *history.Result) error { return l.CountDown(context.Background()) })
	case a.chance(0.1):
		a.look(context.Background(), op, history.Available, l.Count)
	default:
		q := a.asks(context.Background(), false, false)
		defer q.end()
		op.Call, op.Bound = history.Await, q.bound
		a.call(op, func(_ int64, r *history.Result) (err error) {
			if q.wait {
				err = l.Await(q.ctx)
			} else {
				err = l.TryAwait(q.ctx, q.opts...)
			}
			r.Left = q.left()
			return err
		})
	}
}

// useLimiter asks for some permits of a rate.
func (a *actor) useLimiter() {
	op := history.Op{Kind: history.Limiter, Name: a.name(history.Limiter)}
	l := a.client.RateLimiter(op.Name)
	if a.chance(0.2) {
		set := op
		set.Lease = interval
		a.setUp(set, rate, func(ctx context.Context, n int64) (bool, error) {
			return l.TrySetRate(ctx, rlimiter.Overall, n, interval)
		})
	}
	q := a.asks(context.Background(), false, false)
	defer q.end()
	op.Call, op.N, op.Bound = history.Acquire, 1+a.Int64N(2), q.bound
	a.call(op, func(_ int64, r *history.Result) error {
		var err error
		if q.wait {
			err = l.Acquire(q.ctx, op.N)
		} else {
			err = l.TryAcquire(q.ctx, op.N, q.opts...)
		}
		r.Left = q.left()
		if errors.Is(err, holdfast.ErrInvalid) { // nobody has set the rate, or the server lost it
			r.Outcome = history.Refused
		}
		return err
	})
}
