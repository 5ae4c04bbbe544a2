package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/internal/history"
	"github.com/holdfast-go/holdfast/internal/keys"
	"github.com/holdfast-go/holdfast/rlock"
)

// lookEvery is how often a holder looks at its hold, for the record.
const lookEvery = 100 * time.Millisecond

// ask is one way of asking for a lock or permits.
type ask struct {
	ctx   context.Context //nolint:containedctx // of one call
	end   context.CancelFunc
	wait  bool // Lock, not TryLock
	opts  []rlock.Option
	lease time.Duration
	fixed bool // it isn't renewed
	bound time.Duration
	short bool // the last question may have had no more than a moment for its answer
}

// left reports whether an answer may be missing because of the caller.
func (q ask) left() bool { return q.short || q.ctx.Err() != nil }

// asks chooses a way. forever says that a wait without a bound is one.
func (a *actor) asks(ctx context.Context, forever, leased bool) ask {
	q := ask{ctx: ctx, end: func() {}, lease: a.Lease}
	if leased && a.chance(0.3) {
		q.fixed, q.lease = true, a.Lease/2+a.upTo(a.Lease/2)
		q.opts = append(q.opts, rlock.Lease(q.lease))
	}
	switch {
	case a.chance(0.2):
		q.bound = a.CommandTimeout
		if a.chance(0.3) {
			q.opts = append(q.opts, rlock.Wait(0))
		}
	case a.chance(0.2): // a waiter that leaves
		q.wait, q.bound = true, 10*time.Millisecond+a.upTo(500*time.Millisecond)
		q.ctx, q.end = a.leaving(ctx, q.bound)
	case forever && a.chance(0.3):
		q.wait = true
	default:
		d := a.upTo(2 * time.Second)
		q.opts, q.bound = append(q.opts, rlock.Wait(d)), d+a.CommandTimeout
		q.short = true
	}
	return q
}

// leaving is a context that ends after d, one way or another. A caller that has
// what it wants stops it: then it doesn't end before end is called.
func (a *actor) leaving(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if a.chance(0.3) {
		return context.WithTimeout(ctx, d)
	}
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(d, cancel)
	return ctx, func() {
		timer.Stop()
		cancel()
	}
}

// mode is how a lock is used.
type mode struct{ take, give, count history.Call }

var (
	writing = mode{history.Acquire, history.Release, history.HoldCount}
	reading = mode{history.Read, history.ReadEnd, history.ReadCount}
)

// useLock takes one of the locks that share a layout.
func (a *actor) useLock() {
	i := a.IntN(a.Names)
	op := history.Op{Kind: history.Lock, Flavor: "plain", Name: a.nameOf(history.Lock, i)}
	l := rlock.Locker(a.client.Lock(op.Name))
	again := 0.2
	// Names that are taken by one kind alone, mostly: what a spin lock gives back
	// nobody is told, so that others would wait for their poll.
	switch i % 3 {
	case 0:
		if a.chance(0.9) {
			op.Flavor, l = "spin", a.client.SpinLock(op.Name, nil)
		}
	case 1:
		if a.chance(0.3) {
			op.Flavor, l, again = history.NonReentrant, a.client.Lock(op.Name, rlock.NonReentrant()), 0.05
		}
	}
	if a.Names > 1 && i%3 != 0 && a.chance(0.2) {
		op.Flavor, op.Names = "multi", []string{op.Name, a.nameOf(history.Lock, (i+1)%a.Names)}
		op.Name = ""
		if a.chance(0.5) {
			slices.Reverse(op.Names)
		}
		l = a.client.MultiLock(a.client.Lock(op.Names[0]), a.client.Lock(op.Names[1]))
	}
	if op.Name != "" && a.chance(0.1) {
		a.look(context.Background(), op, history.IsLocked, func(ctx context.Context) (int64, error) {
			is, err := l.IsLocked(ctx)
			if is {
				return 1, err
			}
			return 0, err
		})
		return
	}
	ctx, owner := a.owner()
	op.Owner = owner
	a.hold(ctx, op, l, writing, again, nil)
}

// useFairLock waits in line, and looks at the queue meanwhile.
func (a *actor) useFairLock() {
	op := history.Op{Kind: history.Fair, Name: a.name(history.Fair)}
	ctx, owner := a.owner()
	op.Owner = owner
	a.hold(ctx, op, a.client.FairLock(op.Name), writing, 0.1, nil)
}

// inQueue looks at the queue of a fair lock until a waiter is in it.
func (a *actor) inQueue(ctx context.Context, id int64, name, owner string) {
	queue, place := keys.Prefixed("redisson_lock_queue", name), a.client.ID()+":"+owner
	for ctx.Err() == nil {
		waiting, err := a.rdb.LRange(ctx, queue, 0, -1).Result()
		if at := history.Now(); err == nil && slices.Contains(waiting, place) && ctx.Err() == nil {
			a.Queued(id, at)
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// useFencedLock guards the register with the token.
func (a *actor) useFencedLock() {
	op := history.Op{Kind: history.Fenced, Name: a.name(history.Fenced)}
	ctx, owner := a.owner()
	op.Owner = owner
	a.hold(ctx, op, a.client.FencedLock(op.Name), writing, 0.1, func(id int64, h *rlock.Hold) {
		if a.Register != "" {
			a.write(id, op.Name, owner, h)
		}
	})
}

// useRWLock reads, writes, or goes from writing to reading.
func (a *actor) useRWLock() {
	op := history.Op{Kind: history.RW, Name: a.name(history.RW)}
	l := a.client.RWLock(op.Name)
	ctx, owner := a.owner()
	op.Owner = owner
	switch {
	case a.chance(0.5):
		a.hold(ctx, op, l.Read(), reading, 0.2, nil)
	case a.chance(0.6):
		a.hold(ctx, op, l.Write(), writing, 0.2, nil)
	case a.chance(0.8): // no writer gets in between
		var reads *rlock.Hold
		var read int64
		a.hold(ctx, op, l.Write(), writing, 0, func(_ int64, h *rlock.Hold) {
			reads, read = a.take(h.Context(), op, l.Read(), reading)
		})
		if reads != nil {
			a.keep(read, reads.Context(), a.work())
			a.give(op, read, reads, reading)
		}
	default: // which is refused
		a.hold(ctx, op, l.Read(), reading, 0, func(_ int64, h *rlock.Hold) {
			if up, id := a.take(h.Context(), op, l.Write(), writing); up != nil {
				a.give(op, id, up, writing)
			}
		})
	}
}

// hold takes a lock, works, perhaps enters it again, and gives it back. With, if not
// nil, is called while it is held.
func (a *actor) hold(ctx context.Context, op history.Op, l rlock.Locker, m mode, again float64, with func(id int64, h *rlock.Hold)) {
	h, id := a.take(ctx, op, l, m)
	if h == nil {
		return
	}
	d := a.work()
	live := a.keep(id, h.Context(), d/2)
	if live && with != nil {
		with(id, h)
	}
	if live && a.chance(0.1) {
		a.extend(op, id, func(ctx context.Context, d time.Duration) error { return h.Extend(ctx, d) })
	}
	if live && a.chance(again) {
		a.hold(h.Context(), op, l, m, again/2, with)
	}
	if live && op.Name != "" && a.chance(0.1) {
		a.look(h.Context(), op, m.count, func(ctx context.Context) (int64, error) {
			n, err := l.HoldCount(ctx)
			return int64(n), err
		})
	}
	a.keep(id, h.Context(), d/2)
	a.give(op, id, h, m)
}

// take asks for a lock.
func (a *actor) take(ctx context.Context, op history.Op, l rlock.Locker, m mode) (h *rlock.Hold, id int64) {
	// Whoever holds something already, as the context shows, doesn't wait for ever.
	q := a.asks(ctx, ctx.Done() == nil, true)
	op.Call, op.Lease, op.Fixed, op.Bound = m.take, q.lease, q.fixed, q.bound
	_, id = a.call(op, func(id int64, r *history.Result) (err error) {
		if op.Kind == history.Fair && a.chance(0.3) {
			watch, end := context.WithCancel(q.ctx)
			defer end()
			a.watchers.Go(func() { a.inQueue(watch, id, op.Name, op.Owner) })
		}
		if q.wait {
			h, err = l.Lock(q.ctx, q.opts...)
		} else {
			h, err = l.TryLock(q.ctx, q.opts...)
		}
		if err == nil {
			r.Granted = h.Token()
		}
		r.Left = q.left()
		return err
	})
	if h == nil {
		q.end()
		return nil, id
	}
	a.keep(id, h.Context(), 0)
	context.AfterFunc(h.Context(), q.end) // the hold's context is the caller's, too
	return h, id
}

func (a *actor) give(op history.Op, id int64, h *rlock.Hold, m mode) {
	op.Call, op.Hold, op.Lease, op.Fixed, op.Bound = m.give, id, 0, false, a.CommandTimeout
	a.call(op, func(int64, *history.Result) error { return h.Unlock(context.Background()) })
}

// extend gives what a call acquired a longer lease.
func (a *actor) extend(op history.Op, id int64, do func(context.Context, time.Duration) error) {
	op.Call, op.Hold, op.Lease, op.Bound = history.Extend, id, a.Lease+a.upTo(a.Lease), a.CommandTimeout
	a.call(op, func(int64, *history.Result) error { return do(context.Background(), op.Lease) })
}

// look reads a number.
func (a *actor) look(ctx context.Context, op history.Op, c history.Call, read func(context.Context) (int64, error)) {
	op.Call, op.Lease, op.Bound = c, 0, a.CommandTimeout
	a.call(op, func(_ int64, r *history.Result) (err error) {
		r.Value, err = read(ctx)
		r.Left = ctx.Err() != nil
		return err
	})
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
