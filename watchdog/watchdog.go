package watchdog

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/task"
)

const (
	// maxInFlight bounds the batches under way. One that gets no answer in time
	// gives up its place, and goes on beside, so that others don't wait for a
	// dead connection: at most maxStuck of them. Both bound the goroutines.
	maxInFlight = 8
	maxStuck    = 8
	// maxUnanswered renewals of one lease are sent beside each other: more would
	// take the places, and the connections, of all others.
	maxUnanswered = 6
	// longestSleep is how late a wall clock that ran ahead of the monotonic
	// one (a machine that was suspended) is noticed.
	longestSleep = time.Second
	// wallJump is by how much it has to be ahead for that.
	wallJump = 50 * time.Millisecond
	// A renewal without an answer is tried again after pauses that grow
	// between these two, and sooner if the deadline is near.
	minRetry = 10 * time.Millisecond
	maxRetry = time.Second
)

// Config is what a watchdog needs.
type Config struct {
	// Lease is what a renewal asks for.
	Lease time.Duration
	// Batch is the largest number of leases in one call of Renew.
	Batch int
	// Renew asks for a fresh lease for each of ls, which share l.Renew, and
	// answers a result for each. It ends by itself when no answer comes.
	Renew func(ctx context.Context, ls []*lease.Lease) []lease.Result
	// Tasks owns the goroutines; the watchdog ends when it closes.
	Tasks *task.Group
	Log   *slog.Logger
	// Observe is told the result of each renewal that wasn't overtaken by the end
	// of its lease, after the lease has it, and under no mutex; may be nil.
	Observe func(*lease.Lease, lease.Result)
}

// Watchdog renews leases until they are stopped. Make it with New.
type Watchdog struct {
	cfg    Config
	period time.Duration
	wake   chan struct{} // one slot

	// mu comes before the ledger's mutex (taken by a lease's Orphaned) and the
	// lease's own. LeaseEnded is never called under it.
	mu     sync.Mutex
	heap   leases
	fresh  fresh // kept since the last look; each look puts them into the heap first
	flying []*batch
	stuck  int            // of those in flying
	parked []*lease.Lease // due, but without a place in flight
	// used: something was kept since the last look. Then the goroutine looks
	// again soon, so that short holds one after the other don't wake it each.
	used bool
	// asleepUntil is when the goroutine looks next; an earlier appointment
	// has to wake it. Zero: it is awake, and will look before it sleeps.
	asleepUntil time.Time
	lastLook    time.Time
}

// batch is one call of Renew.
type batch struct {
	leases []*lease.Lease
	until  time.Time // an answer should have come by then
	stuck  bool      // none did
}

// New starts a watchdog.
func New(cfg Config) *Watchdog {
	w := &Watchdog{
		cfg:    cfg,
		period: cfg.Lease / 3,
		wake:   make(chan struct{}, 1),
	}
	cfg.Tasks.Go(w.run)
	return w
}

// Keep watches l from now on: its deadline, and its renewals if it has a
// Renewal. Keeping a lease that is kept, or over, changes nothing.
func (w *Watchdog) Keep(l *lease.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.Watch.Place != 0 {
		return
	}
	deadline, trust, over := l.State()
	if over {
		return
	}
	l.Watch = lease.Watch{Sent: l.Watch.Sent} // answers to earlier ones may still come
	if l.Renew != nil {
		l.Watch.RenewAt = deadline.Add(w.period - trust)
	}
	scheduleBefore(l, deadline)
	w.fresh.add(l)
	w.used = true
	w.nudgeLocked(l.Watch.Next)
}

// Stop ends the watching of l. After it no renewal of l is begun, and the answer
// to one under way changes nothing; its script touches the key only while the
// owner's field is there.
func (w *Watchdog) Stop(l *lease.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dropLocked(l)
}

// Reschedule looks at l's deadline again after it was moved.
func (w *Watchdog) Reschedule(l *lease.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.Watch.Place != 0 {
		w.moveLocked(l)
	}
}

// Len is the number of leases watched.
func (w *Watchdog) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.heap) + len(w.fresh)
}

func (w *Watchdog) dropLocked(l *lease.Lease) {
	switch place := l.Watch.Place; {
	case place > 0:
		heap.Remove(&w.heap, place-1)
	case place < 0:
		w.fresh.remove(l)
	}
}

func (w *Watchdog) moveLocked(l *lease.Lease) {
	schedule(l)
	if l.Watch.Place > 0 {
		heap.Fix(&w.heap, l.Watch.Place-1)
	}
	w.nudgeLocked(l.Watch.Next)
}

func (w *Watchdog) nudgeLocked(next time.Time) {
	if w.asleepUntil.IsZero() || !next.Before(w.asleepUntil) {
		return
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *Watchdog) run() {
	timer := time.NewTimer(longestSleep)
	defer timer.Stop()
	for {
		todo := w.look(time.Now())
		for _, l := range todo.over {
			w.expire(l)
		}
		for _, b := range todo.batches {
			if !w.cfg.Tasks.Go(func() { w.renew(b) }) {
				return
			}
		}
		for _, l := range todo.orphans {
			w.cfg.Log.Error("holdfast: a hold was dropped without Unlock: it is no longer renewed, and free when its lease ends",
				"name", l.Name, "owner", l.Field)
		}
		timer.Reset(todo.sleep)
		select {
		case <-w.cfg.Tasks.Done():
			return
		case <-w.wake:
		case <-timer.C:
		}
	}
}

// todo is what a look found.
type todo struct {
	over    []ended // whose deadline has passed
	batches []*batch
	orphans []*lease.Lease // not renewed any more
	sleep   time.Duration
}

// ended is a lease whose deadline has passed, and what its last renewal failed with:
// the notebook itself may be written anew when nobody holds mu.
type ended struct {
	*lease.Lease
	lastErr error
}

// look takes out what there is to do now.
func (w *Watchdog) look(now time.Time) (t todo) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var due, seen []*lease.Lease
	for i, l := range w.fresh {
		w.fresh[i] = nil // so that it can be collected
		heap.Push(&w.heap, l)
	}
	w.fresh = w.fresh[:0]
	w.noticeLocked(now)
	w.giveUpPlacesLocked(now)
	horizon := now
	for len(w.heap) > 0 && !w.heap[0].Watch.Next.After(horizon) {
		l := heap.Pop(&w.heap).(*lease.Lease)
		if l.Passed(now) {
			t.over = append(t.over, ended{l, l.Watch.LastErr})
			continue
		}
		seen = append(seen, l)
		if at := l.Watch.RenewAt; l.Watch.Parked || at.IsZero() || at.After(horizon) || l.Watch.Sent > 0 && at.After(now) {
			continue // nothing to do, or the answer to the one under way may still come
		}
		if l.Holder.Orphaned() {
			l.Watch.RenewAt = time.Time{}
			t.orphans = append(t.orphans, l)
			continue
		}
		if l.Watch.Sent >= maxUnanswered {
			l.Watch.RenewAt = time.Time{} // one that fails sets it anew
			continue
		}
		due = append(due, l)
		horizon = now.Add(w.period / 2) // one is due: take along what soon will be
	}
	t.batches = w.batchLocked(due)
	for _, b := range t.batches {
		for _, l := range b.leases {
			l.Watch.Sent++
			// Another try if this one isn't answered by then.
			l.Watch.RenewAt = now.Add(patience(l, now))
			if l.Watch.RenewAt.After(b.until) {
				b.until = l.Watch.RenewAt
			}
		}
	}
	for _, l := range seen {
		schedule(l)
		heap.Push(&w.heap, l)
	}
	t.sleep = longestSleep
	switch {
	case len(w.heap) > 0:
		t.sleep = min(t.sleep, max(w.heap[0].Watch.Next.Sub(now), 0))
	case !w.used:
		t.sleep = lease.Max // nothing to watch for a while: Keep wakes
	}
	if len(w.parked) > 0 && w.stuck < maxStuck {
		for _, b := range w.flying {
			if !b.stuck {
				t.sleep = min(t.sleep, max(b.until.Sub(now), minRetry))
			}
		}
	}
	w.used = false
	w.asleepUntil = now.Add(t.sleep)
	return t
}

// noticeLocked looks whether the wall clock ran ahead of the monotonic one since
// the last look, as it does when a machine was suspended. The heap is in the
// order of the monotonic clock; by the other one anything may be due.
func (w *Watchdog) noticeLocked(now time.Time) {
	last := w.lastLook
	w.lastLook = now
	if last.IsZero() || time.Duration(now.UnixNano()-last.UnixNano())-now.Sub(last) < wallJump {
		return
	}
	for _, l := range w.heap {
		if !l.Watch.RenewAt.IsZero() {
			l.Watch.RenewAt = now
		}
		l.Watch.Next = now
	}
}

// batchLocked splits the due ones by way of renewal and by number. Those for
// which no place in flight is free wait for the end of a batch.
func (w *Watchdog) batchLocked(due []*lease.Lease) (batches []*batch) {
	open := make(map[*lease.Renewal]int)
	for _, l := range due {
		if i, ok := open[l.Renew]; ok && len(batches[i].leases) < w.cfg.Batch {
			batches[i].leases = append(batches[i].leases, l)
			continue
		}
		if len(w.flying)-w.stuck == maxInFlight {
			l.Watch.Parked = true
			w.parked = append(w.parked, l)
			continue
		}
		open[l.Renew] = len(batches)
		b := &batch{leases: []*lease.Lease{l}}
		batches = append(batches, b)
		w.flying = append(w.flying, b)
	}
	return batches
}

// giveUpPlacesLocked lets others go before the batches that got no answer.
func (w *Watchdog) giveUpPlacesLocked(now time.Time) {
	before := w.stuck
	for _, b := range w.flying {
		if !b.stuck && !now.Before(b.until) && w.stuck < maxStuck {
			b.stuck = true
			w.stuck++
		}
	}
	if w.stuck > before {
		w.unparkLocked()
	}
}

func (w *Watchdog) landedLocked(b *batch) {
	i := slices.Index(w.flying, b)
	w.flying = slices.Delete(w.flying, i, i+1)
	if b.stuck {
		w.stuck--
	}
	w.unparkLocked()
}

// unparkLocked: there may be a place.
func (w *Watchdog) unparkLocked() {
	for _, l := range w.parked {
		l.Watch.Parked = false
		if l.Watch.Place != 0 {
			w.moveLocked(l)
		}
	}
	w.parked = nil
}

// patience is how long a renewal may go unanswered before another is sent
// beside it: a fraction of what is left, so that several fit in.
func patience(l *lease.Lease, now time.Time) time.Duration {
	left := l.Deadline().Sub(now)
	return max(min(left/4, maxRetry<<max(min(l.Watch.Sent, 4), 0)), minRetry)
}

func (w *Watchdog) renew(b *batch) {
	results := w.cfg.Renew(w.cfg.Tasks.Context(), b.leases)

	var lost []*lease.Lease
	var failed lease.Result
	var told []int // of those that are still watched
	w.mu.Lock()
	now := time.Now()
	for i, l := range b.leases {
		l.Watch.Sent--
		if l.Watch.Place == 0 {
			continue // stopped or over since
		}
		if w.cfg.Observe != nil {
			told = append(told, i)
		}
		switch r := results[i]; r.Verdict {
		case lease.Renewed:
			l.Watch.Failures, l.Watch.LastErr = 0, nil
			l.Extend(r.Asked, w.cfg.Lease)
			l.Watch.RenewAt = r.Asked.Add(w.period)
		case lease.Gone:
			w.dropLocked(l)
			lost = append(lost, l)
			continue
		default:
			l.Watch.Failures++
			l.Watch.LastErr, failed = r.Err, r
			left := l.Deadline().Sub(now)
			l.Watch.RenewAt = now.Add(max(min(left/4, minRetry<<min(l.Watch.Failures, 10), maxRetry), minRetry))
		}
		w.moveLocked(l)
	}
	w.landedLocked(b)
	w.mu.Unlock()

	if failed.Err != nil && !errors.Is(failed.Err, errs.ErrClosed) {
		w.cfg.Log.Warn("holdfast: renewal failed, trying again", "names", len(b.leases), "cause", failed.Err)
	}
	for _, i := range told {
		w.cfg.Observe(b.leases[i], results[i])
	}
	for _, l := range lost {
		const why = "the key is gone or belongs to another owner"
		l.Lose(fmt.Errorf("%w: %s: %s", errs.ErrLost, errs.Quote(l.Name), why))
	}
}

// expire ends a lease whose deadline has passed.
func (w *Watchdog) expire(l ended) {
	why := l.RanOut()
	if l.lastErr != nil {
		why = fmt.Errorf("%w; the last renewal failed: %w", why, l.lastErr)
	}
	if !l.Expire(time.Now(), why) {
		w.Keep(l.Lease) // extended since we looked
	}
}
