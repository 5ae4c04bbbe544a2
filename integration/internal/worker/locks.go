package worker

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/internal/history"
	"github.com/holdfast-go/holdfast/rlock"
)

// lookEvery is how often a holder looks at its hold, for the record.
const lookEvery = 100 * time.Millisecond

// ask is one way of asking for a lock.
type ask struct {
	ctx   context.Context //nolint:containedctx // of one call
	end   context.CancelFunc
	wait  bool // Lock, not TryLock
	opts  []rlock.Option
	lease time.Duration
	bound time.Duration
}

// asks chooses a way.
func (a *actor) asks(ctx context.Context) ask {
	q := ask{ctx: ctx, end: func() {}, lease: a.Lease}
	if a.chance(0.3) {
		q.lease = a.Lease/2 + a.upTo(a.Lease/2)
		q.opts = append(q.opts, rlock.Lease(q.lease))
	}
	switch {
	case a.chance(0.2):
		q.bound = a.CommandTimeout
	case a.chance(0.2): // a waiter that leaves
		q.wait, q.bound = true, 10*time.Millisecond+a.upTo(500*time.Millisecond)
		q.ctx, q.end = context.WithCancel(ctx)
		leave := time.AfterFunc(q.bound, q.end)
		end := q.end
		q.end = func() {
			leave.Stop()
			end()
		}
	case a.chance(0.3):
		q.wait = true
	default:
		d := a.upTo(2 * time.Second)
		q.opts, q.bound = append(q.opts, rlock.Wait(d)), d+a.CommandTimeout
	}
	return q
}

// useLock takes a lock and gives it back.
func (a *actor) useLock() {
	name := a.name(history.Lock)
	op := history.Op{Kind: history.Lock, Flavor: "plain", Name: name}
	a.hold(holdfast.WithOwner(context.Background()), op, a.client.Lock(name))
}

// hold takes a lock, works, and gives it back.
func (a *actor) hold(ctx context.Context, op history.Op, l rlock.Locker) {
	q := a.asks(ctx)
	defer q.end()
	op.Call, op.Lease, op.Bound = history.Acquire, q.lease, q.bound
	op.Owner, _ = holdfast.OwnerID(ctx)
	var h *rlock.Hold
	_, id := a.call(op, func(r *history.Result) (err error) {
		if q.wait {
			h, err = l.Lock(q.ctx, q.opts...)
		} else {
			h, err = l.TryLock(q.ctx, q.opts...)
		}
		if err == nil {
			r.Granted = h.Token()
		}
		return err
	})
	if h == nil {
		return
	}
	a.keep(id, h.Context(), a.work())
	op.Call, op.Hold, op.Bound = history.Release, id, a.CommandTimeout
	a.call(op, func(*history.Result) error { return h.Unlock(context.Background()) })
}

// work is how long a hold is used: mostly short, sometimes longer than its lease.
func (a *actor) work() time.Duration {
	switch {
	case a.chance(0.02):
		return a.Lease + a.upTo(a.Lease)
	case a.chance(0.1):
		return a.upTo(200 * time.Millisecond)
	}
	return a.upTo(5 * time.Millisecond)
}

// keep works for d under what a call acquired, looks at it now and then, and writes
// down when it was certain, and when its loss was told. It reports whether it is
// still there.
func (a *actor) keep(id int64, hold context.Context, d time.Duration) bool {
	until := history.After(history.Now(), d)
	var certain int64
	for {
		at := history.Now()
		if err := hold.Err(); err != nil {
			if certain != 0 {
				a.Seen(id, certain)
			}
			if cause := context.Cause(hold); errors.Is(cause, holdfast.ErrLost) {
				a.Told(id, cause)
			}
			return false
		}
		certain = at
		left := time.Duration(until - at)
		if left <= 0 {
			a.Seen(id, certain)
			return true
		}
		if left > lookEvery {
			a.Seen(id, certain)
		}
		select {
		case <-time.After(min(left, lookEvery)):
		case <-hold.Done():
		}
	}
}
