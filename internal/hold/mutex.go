package hold

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/owner"
	"github.com/holdfast-go/holdfast/internal/script"
	"github.com/holdfast-go/holdfast/internal/task"
)

// Mutex is a Locker on one key: what all kinds of exclusive locks have in
// common. A kind adds its scripts.
type Mutex struct {
	*names
	nonReentrant bool
	err          error // of the name, told at the first call
}

var _ Locker = (*Mutex)(nil)

// NewMutex makes a lock. It sends nothing.
func NewMutex(s *Services, kind Kind, name string, nonReentrant bool) *Mutex {
	key, err := s.Key(name)
	return &Mutex{names: s.newNames(kind, name, key), nonReentrant: nonReentrant, err: err}
}

// Refuse has every call answer err, unless the name is bad already: for a lock
// whose other settings are wrong.
func (m *Mutex) Refuse(err error) {
	if m.err == nil {
		m.err = err
	}
}

// Name implements Locker.
func (m *Mutex) Name() string { return m.name }

// Lock implements Locker.
func (m *Mutex) Lock(ctx context.Context, opts ...Option) (*Hold, error) {
	return m.acquire(ctx, opts, true)
}

// TryLock implements Locker.
func (m *Mutex) TryLock(ctx context.Context, opts ...Option) (*Hold, error) {
	return m.acquire(ctx, opts, false)
}

// Unlock implements Locker.
func (m *Mutex) Unlock(ctx context.Context) error {
	field, err := m.ownerField(ctx)
	if err != nil {
		return err
	}
	for {
		r := m.latest(m.ledgerKey, field)
		if r == nil {
			return m.noHold(owner.From(ctx), field)
		}
		// Somebody else may give this one back before us; then it is the turn of
		// the one before it.
		if err := m.release(ctx, r); !errors.Is(err, errTaken) {
			return err
		}
	}
}

// ownerField is the field of ctx's owner, who must be there.
func (m *Mutex) ownerField(ctx context.Context) (string, error) {
	if m.err != nil {
		return "", m.err
	}
	if ctx == nil {
		return "", ErrNilContext("look at", m.name)
	}
	t, err := owner.Must(ctx)
	if err != nil {
		return "", err
	}
	return m.field(t), nil
}

// ForceUnlock implements Locker.
func (m *Mutex) ForceUnlock(ctx context.Context) (bool, error) {
	if m.err != nil {
		return false, m.err
	}
	if ctx == nil {
		return false, ErrNilContext("force unlock", m.name)
	}
	if m.Tasks.Context().Err() != nil {
		return false, fmt.Errorf("%w: force unlock %s", errs.ErrClosed, errs.Quote(m.name))
	}
	before := m.holdsOf(m.key) // what is taken after the force isn't concerned
	call := m.kind.Force(m.args()).AlwaysMark()
	ctx, done := beyondHold(ctx, m.Patience)
	defer done()
	tell := func(reply script.Reply) {
		if reply.Err == nil && reply.Int() != foreignHash && reply.Int() != notThere {
			m.forced(before, reply)
		}
	}
	reply, ok := task.Leave(m.Tasks, ctx.Done(), func() script.Reply {
		return m.Send(ctx, m.Patience, call)
	}, tell)
	switch {
	case !ok:
		err := m.Gone(ctx, "force unlock", m.name, nil)
		if errors.Is(context.Cause(ctx), script.ErrPatience) { // after the end of the caller's own hold
			err = fmt.Errorf("%w: %w", errs.ErrUncertain, err)
		}
		return false, err
	case script.IsWrongType(reply.Err):
		return false, m.invalidKey(ctx, m.name, m.key, reply.Err)
	case reply.Err != nil && reply.MaybeRan:
		return false, fmt.Errorf("%w: force unlock %s: %w", errs.ErrUncertain, errs.Quote(m.name), reply.Err)
	case reply.Err != nil:
		return false, fmt.Errorf("holdfast: force unlock %s: %w", errs.Quote(m.name), reply.Err)
	case reply.Int() == foreignHash:
		return false, m.invalidKey(ctx, m.name, m.key, nil)
	}
	if reply.Int() == notThere {
		return false, nil
	}
	tell(reply)
	return true, nil
}

// forced tells the holders that there were before a force script which opened the
// lock, also if its caller has left.
func (m *Mutex) forced(before []*record, reply script.Reply) {
	m.heard(m.key, reply)
	for _, r := range before {
		// All that share its lease: who got in after the force has another.
		r.entry.loseIf(fmt.Errorf("%w: %s was forced open", errs.ErrLost, errs.Quote(m.name)), lost,
			func(o *record) bool { return o.lease == r.lease })
	}
}

// IsLocked implements Locker.
func (m *Mutex) IsLocked(ctx context.Context) (bool, error) {
	if m.mode != nil {
		return m.lockedIn(ctx)
	}
	n, err := ask(ctx, m, "look at", func(ctx context.Context) (int64, error) {
		return m.Runner.Redis().HLen(ctx, m.key).Result()
	})
	return n > 0, err
}

// IsHeld implements Locker.
func (m *Mutex) IsHeld(ctx context.Context) (bool, error) {
	n, err := m.HoldCount(ctx)
	return n > 0, err
}

// HoldCount implements Locker.
func (m *Mutex) HoldCount(ctx context.Context) (int, error) {
	field, err := m.ownerField(ctx)
	if err != nil {
		return 0, err
	}
	if m.mode != nil {
		return m.heldIn(ctx, field)
	}
	return ask(ctx, m, "look at", func(ctx context.Context) (int, error) {
		n, err := m.Runner.Redis().HGet(ctx, m.key, field).Int()
		if errors.Is(err, redis.Nil) {
			return 0, nil
		}
		return n, err
	})
}

// TTL implements Locker.
func (m *Mutex) TTL(ctx context.Context) (time.Duration, error) {
	d, err := ask(ctx, m, "look at", func(ctx context.Context) (time.Duration, error) {
		return m.Runner.Redis().PTTL(ctx, m.key).Result()
	})
	if d == -2 { // go-redis: no such key
		d = 0
	}
	return d, err
}

// ask runs a reading command on the lock.
func ask[T any](ctx context.Context, m *Mutex, what string, run func(context.Context) (T, error)) (T, error) {
	var zero T
	if m.err != nil {
		return zero, m.err
	}
	if ctx == nil {
		return zero, ErrNilContext(what, m.name)
	}
	val, err := Query(ctx, m.Services, run)
	switch {
	case script.IsWrongType(err):
		return zero, m.invalidKey(ctx, m.name, m.key, err)
	case err != nil:
		return zero, fmt.Errorf("holdfast: %s %s: %w", what, errs.Quote(m.name), err)
	}
	return val, nil
}

// ErrNilContext is the error of a call that was given no context.
func ErrNilContext(what, name string) error {
	return errs.Invalid("%s %s: the context is nil: pass context.Background()", what, errs.Quote(name))
}

// Do implements Locker.
func (m *Mutex) Do(ctx context.Context, fn func(ctx context.Context) error, opts ...Option) (err error) {
	return Do(ctx, m, fn, opts...)
}

// Do runs fn while holding l. It is what every Locker's Do does.
func Do(ctx context.Context, l Locker, fn func(ctx context.Context) error, opts ...Option) (err error) {
	h, err := l.Lock(ctx, opts...)
	if err != nil {
		return err
	}
	defer func() {
		if uerr := h.Unlock(ctx); uerr != nil {
			err = errors.Join(err, uerr)
		}
	}()
	return fn(h.Context())
}
