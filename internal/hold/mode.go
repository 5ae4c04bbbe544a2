package hold

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/owner"
	"github.com/holdfast-go/holdfast/internal/script"
	"github.com/holdfast-go/holdfast/internal/task"
)

// Keyed is a Kind whose scripts have further keys: KEYS[4] and following.
type Keyed interface {
	Kind
	Keys(key string) []any
}

// Mode is a Kind that is one of two modes in which one key may be held: to read,
// or to write. Each has its own fields in the hash, and its own entries in the
// ledger. Its scripts are told each lease that an owner keeps, not the longest
// alone.
type Mode interface {
	Kind
	// Name is what stands in the hash while it is held in this mode.
	Name() string
	// Field is the field of an owner, Owner the owner of a field.
	Field(owner string) string
	Owner(field string) string
	// Other is the other mode.
	Other() Mode
	// Held makes the call that answers how many holds a field has.
	Held(key, field string) script.Call
}

// ledgerKey is what the ledger knows a key by, held by a kind.
func ledgerKey(kind Kind, key string) string {
	if mode, ok := kind.(Mode); ok {
		return key + "\x00" + mode.Name()
	}
	return key
}

// field is the owner's field in Redis.
func (n *names) field(t *owner.Token) string {
	b := make([]byte, 0, 64)
	b = append(append(b, n.ClientID...), ':')
	return n.fieldOf(string(t.AppendID(b)))
}

// fieldOf is the field of <client id>:<owner id>.
func (n *names) fieldOf(owner string) string {
	if n.mode != nil {
		return n.mode.Field(owner)
	}
	return owner
}

// ownerOf is the owner whose field it is.
func (n *names) ownerOf(field string) string {
	if n.mode != nil {
		return n.mode.Owner(field)
	}
	return field
}

// inOtherLocked reports whether the owner of an entry holds the name in the other
// mode.
func (e *entry) inOtherLocked() bool {
	if e.mode == nil {
		return false
	}
	other := e.mode.Other()
	return e.ledger.latestLocked(ledgerKey(other, e.key), other.Field(e.ownerOf(e.field))) != nil
}

// errUpgrade is the error of a reader that wants to write.
func errUpgrade(name string) error {
	return fmt.Errorf("%w: %s: it reads, and would wait for itself: give the read hold back first, or write from the beginning, and read within that",
		errs.ErrUpgrade, errs.Quote(name))
}

// errBoth is the error of a hold that can't be passed on, since its owner holds the
// name in both modes.
func errBoth(name string) error {
	return errs.Invalid("hold of %s can't be detached: its owner reads and writes; give the other hold back first", errs.Quote(name))
}

// lockedIn reports whether the name is held in this mode.
func (m *Mutex) lockedIn(ctx context.Context) (bool, error) {
	return ask(ctx, m, "look at", func(ctx context.Context) (bool, error) {
		mode, err := m.Runner.Redis().HGet(ctx, m.key, "mode").Result()
		if errors.Is(err, redis.Nil) {
			return false, nil
		}
		return mode == m.mode.Name(), err
	})
}

// heldIn asks how many holds a field has.
func (m *Mutex) heldIn(ctx context.Context, field string) (int, error) {
	if m.Tasks.Context().Err() != nil {
		return 0, fmt.Errorf("%w: look at %s", errs.ErrClosed, errs.Quote(m.name))
	}
	reply, ok := task.Leave(m.Tasks, ctx.Done(), func() script.Reply {
		return m.Send(ctx, m.Patience, m.mode.Held(m.key, field))
	}, nil)
	switch {
	case !ok:
		return 0, m.Gone(ctx, "look at", m.name, nil)
	case script.IsWrongType(reply.Err):
		return 0, m.invalidKey(ctx, m.name, m.key, reply.Err)
	case reply.Err != nil:
		return 0, fmt.Errorf("holdfast: look at %s: %w", errs.Quote(m.name), reply.Err)
	}
	return int(reply.Int()), nil
}

// leases are what each hold of an entry that is alive is to have from now on. It
// needs ledger.mu.
func (e *entry) leasesLocked(now time.Time) []time.Duration {
	var each []time.Duration
	for _, r := range e.holds {
		if r.void || r.lease.Passed(now) {
			continue
		}
		asked, d := r.lease.Present()
		d = max(d-now.Sub(asked), time.Millisecond)
		if r.lease.Renew != nil {
			d = max(d, e.Lease) // the whole: an earlier renewal may be answered after this
		}
		each = append(each, lease.Round(d))
	}
	return each
}
