package rsemaphore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/keys"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/object"
	"github.com/holdfast-go/holdfast/internal/script"
	"github.com/holdfast-go/holdfast/internal/wait"
)

// maxAtOnce is how many permits one call may name.
const maxAtOnce = 10_000

// Expirable is a semaphore whose permits have an id and a lease: Redisson's
// RPermitExpirableSemaphore, on the same keys. What nobody gives back or renews is
// free again when its lease ends, by the server's clock: who waits for it is served
// at that moment. It has no state of its own: any number of objects for one name, in
// any number of processes, are one semaphore. (Java clients judge leases by their own
// clocks: beside them clocks must agree.)
//
// A semaphore that was never set has no permits; Acquire on it waits. Numbers up to
// 2^53 fit (Java clients read 32 bits). All methods may be called from any goroutine.
// The package comment says who is served when several wait.
type Expirable struct {
	*expirable
}

// expirable keeps what Expirable shares with Semaphore out of its method set.
type expirable struct {
	c      *counter
	ledger *ledger
	leased lease.Subject // its permits
}

// NewExpirable makes a semaphore on a client's services. Users call
// Client.ExpirableSemaphore.
func NewExpirable(s *hold.Services, name string) *Expirable {
	c := newCounter(s, name)
	// A line beside that of plain permits under the name: its first knows of leases.
	c.line = permitsKey(c.RedisKey())
	c.more = []any{c.line}
	leased := lease.Subject{Name: name, Key: c.RedisKey(), Kind: HandleKind}
	return &Expirable{&expirable{c: c, ledger: ledgerOf(s), leased: leased}}
}

// permitsKey is the key of the permits in use.
func permitsKey(key string) string { return keys.Suffixed(key, "timeout") }

// Name is the name that the semaphore was made with.
func (e *Expirable) Name() string { return e.c.Name() }

// Acquire takes a permit, and waits until there is one or ctx ends, also while
// Redis doesn't answer; with Wait(d) it is TryAcquire. The permit is renewed until
// it is given back, unless Lease(d) fixes its lease. Errors: ErrInvalid for a bad
// name or option, or a name that holds something else; ErrDenied; ErrClosed; the
// context's, with what Redis said last. After an error nothing is taken: what may
// have been granted meanwhile is given back behind the caller, who leaves at once
// when ctx ends. Redisson: acquire(long, TimeUnit); its permits without a lease
// never expire.
func (e *Expirable) Acquire(ctx context.Context, opts ...Option) (*Permit, error) {
	return first(e.acquire(ctx, 1, opts, true))
}

// AcquireN takes n permits together, from 1 to 10,000: all or none. Otherwise it
// is Acquire. Redisson: acquire(int), tryAcquire(int, …).
func (e *Expirable) AcquireN(ctx context.Context, n int, opts ...Option) ([]*Permit, error) {
	return e.acquire(ctx, n, opts, true)
}

// TryAcquire takes a permit if there is one now, or within Wait(d). Errors: as
// Acquire, and ErrNotAcquired (a *NotAcquiredError that says when the next one
// expires, or Unset if the semaphore was never set) if there was none; ErrUnavailable if Redis gave no answer within the
// time to wait, or within the command timeout without one. Redisson: tryAcquire.
func (e *Expirable) TryAcquire(ctx context.Context, opts ...Option) (*Permit, error) {
	return first(e.acquire(ctx, 1, opts, false))
}

func first(ps []*Permit, err error) (*Permit, error) {
	if err != nil {
		return nil, err
	}
	return ps[0], nil
}

// acquisition is one call of Acquire. Each of its tries asks for ids of its own, so
// that undoing one try touches nothing of another.
type acquisition struct {
	*expirable
	n     int
	lease time.Duration

	mu  sync.Mutex
	ids map[any][]id // by the marker of the try
	// Of the try that was granted, noted on the caller's goroutine.
	got   []id
	asked time.Time
}

func (e *expirable) acquire(ctx context.Context, n int, opts []Option, forever bool) ([]*Permit, error) {
	began := time.Now()
	ps, err := e.ask(ctx, n, opts, forever)
	if err != nil {
		e.tellRefused(began, err)
		return nil, err
	}
	e.tellAcquired(began, ps)
	return ps, nil
}

func (e *expirable) ask(ctx context.Context, n int, opts []Option, forever bool) ([]*Permit, error) {
	c := e.c
	if n < 1 || n > maxAtOnce {
		return nil, errs.Invalid("acquire of %s: %d permits: give a number from 1 to %d", errs.Quote(c.Name()), n, maxAtOnce)
	}
	o, err := hold.Collect(opts)
	if err != nil {
		return nil, err
	}
	a := &acquisition{expirable: e, n: n, lease: c.Lease, ids: make(map[any][]id, 1)}
	if o.LeaseSet {
		a.lease = o.Lease
	}
	spec := wait.Spec{
		Line: c.line, Wanted: int64(n), Channel: c.channel,
		Forever: forever && !o.WaitSet, Wait: o.Wait,
	}
	err = c.Acquire(ctx, spec, object.Request{
		What:    "acquire of",
		Make:    a.make,
		Undo:    a.undo,
		Undone:  func(r script.Reply) { c.heard(r.Int()&1 == 1) },
		Granted: a.granted,
		Read:    a.read,
	})
	if err != nil {
		return nil, err
	}
	permits, ok := e.ledger.add(ctx, e, a.got, a.asked, a.lease, !o.LeaseSet)
	if !ok {
		_, err := e.release(context.WithoutCancel(ctx), true, a.got, false)
		return nil, joined(fmt.Errorf("%w: acquire of %s", errs.ErrClosed, errs.Quote(c.Name())), err)
	}
	return permits, nil
}

// keys are those of a request on a key that was made for it.
func (e *expirable) keys(k script.Keys) script.Keys {
	k.More = e.c.more
	return k
}

func (a *acquisition) make(k script.Keys) script.Call {
	ids := newIDs(a.n)
	a.mu.Lock()
	a.ids[k.Marker] = ids
	a.mu.Unlock()
	argv := append(make([]any, 0, 3+len(ids)), a.n, a.lease.Milliseconds(), a.c.channelArg)
	return script.NewMutation(acquirePermits, a.keys(k), nil, appendIDs(argv, ids)...)
}

func (a *acquisition) undo(k script.Keys) script.Call {
	a.mu.Lock()
	ids := a.ids[k.Voided]
	a.mu.Unlock()
	return releaseCall(a.c, a.keys(k), false, ids)
}

func (a *acquisition) granted(k script.Keys, r script.Reply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.got, a.asked = a.ids[k.Marker], r.Asked
}

// Answers of permits_acquire.lua.
const (
	refusedFrom = 16
	freeBits    = 14 // m < 2^14 are free
)

// shortestTrue is the shortest lease that is worth asking for again when a grant
// comes after its end: a shorter one than a slow round trip never comes in time.
const shortestTrue = 100 * time.Millisecond

func (a *acquisition) read(r script.Reply) (wait.Outcome, error) {
	switch n := r.Int(); {
	case n == granted:
		if a.lease >= shortestTrue && !time.Now().Before(r.Asked.Add(a.lease-lease.Margin(a.lease))) {
			return wait.Outcome{Granted: true}, fmt.Errorf("%w: acquire of %s: the answer came after the end of its lease", errs.ErrUnavailable, errs.Quote(a.c.Name()))
		}
		return wait.Outcome{Granted: true, TTL: -1}, nil
	case n == unset:
		return wait.Outcome{TTL: -1, Unset: true}, nil
	case n >= refusedFrom:
		n -= refusedFrom
		out := wait.Outcome{TTL: -1, Free: n & (1<<freeBits - 1)}
		if ms := n>>freeBits - 1; ms >= 0 {
			out.TTL = time.Duration(ms) * time.Millisecond
		}
		return out, nil
	default:
		return wait.Outcome{TTL: -1}, nil
	}
}

// TrySetPermits sets the number of permits, 0 or more, if it was never set, and
// reports whether it did; 0 counts as set. Errors: as Semaphore.TrySetPermits.
// Redisson: trySetPermits(int).
func (e *Expirable) TrySetPermits(ctx context.Context, n int64) (bool, error) {
	return e.c.trySet(ctx, n, 0)
}

// SetPermits sets the total number of permits, 0 or more, those in use included.
// If more are in use, they stay so, and the number of free ones is negative until
// enough have come back. Errors: as TrySetPermits. Redisson: setPermits(int).
func (e *Expirable) SetPermits(ctx context.Context, n int64) error {
	if err := e.c.count("set the permits of", n, 0); err != nil {
		return err
	}
	_, err := e.c.change(ctx, "set the permits of", object.AtMostNow, setPermits, n, e.c.channelArg)
	return err
}

// AddPermits raises the total number of permits by n, or lowers it if n is
// negative; the number of free ones may fall below 0 then. Errors: as
// TrySetPermits. Redisson: addPermits(int).
func (e *Expirable) AddPermits(ctx context.Context, n int64) error {
	if err := e.c.count("add permits to", n, -maxPermits-1); err != nil {
		return err
	}
	_, err := e.c.add(ctx, "add permits to", object.AtMostNow, n, false)
	return err
}

// Permits is the total number of permits at that moment, those in use included: 0
// if it was never set. It and the two below change nothing. Errors:
// ErrUnavailable, ErrDenied, ErrInvalid, ErrClosed, the context's. Redisson:
// getPermits.
func (e *Expirable) Permits(ctx context.Context) (int64, error) {
	n, err := e.look(ctx, nil)
	return n.free + n.used, err
}

// Available is the number of free permits at that moment, those included whose
// lease has ended. It is negative while more are in use than there should be.
// Errors: as Permits. Redisson: availablePermits.
func (e *Expirable) Available(ctx context.Context) (int64, error) {
	n, err := e.look(ctx, nil)
	return n.free, err
}

// Acquired is the number of permits in use at that moment. Errors: as Permits.
// Redisson: acquiredPermits.
func (e *Expirable) Acquired(ctx context.Context) (int64, error) {
	n, err := e.look(ctx, nil)
	return n.used, err
}

// Exists reports whether the permits were set. Errors: as Permits.
func (e *Expirable) Exists(ctx context.Context) (bool, error) { return e.c.exists(ctx) }

// Expire has the semaphore go after d, with the permits in use, a positive time in
// whole milliseconds, rounded up, and reports whether it was there. Their holders
// are told at the next renewal. Errors: as TrySetPermits.
func (e *Expirable) Expire(ctx context.Context, d time.Duration) (bool, error) {
	return e.c.expire(ctx, d)
}

// Delete removes the semaphore, with the permits in use, and reports whether it was
// there. Their holders are told at the next renewal. Who waits goes on waiting,
// until permits are set anew. Errors: as TrySetPermits.
func (e *Expirable) Delete(ctx context.Context) (bool, error) { return e.c.remove(ctx) }
