package hold

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/owner"
)

// Unlock implements Locker: it gives back the latest hold of all members that ctx's
// owner has. Only if there is none every member gives its latest back, whatever
// becomes of the others.
func (m *Multi) Unlock(ctx context.Context) error {
	if err := m.check(ctx, "unlock"); err != nil {
		return err
	}
	t, err := owner.Must(ctx)
	if err != nil {
		return err
	}
	ctx, done := beyondHold(ctx, m.Patience)
	defer done()
	if found, err := unlockNewest(ctx, m.id, t); found {
		return err
	}
	units := m.units(-1)
	return lossFirst(forEach(len(units), func(u int) error {
		unit := units[u]
		if len(unit) == 1 {
			return m.members[unit[0]].Unlock(ctx)
		}
		return m.unlockLatest(ctx, t, unit)
	}))
}

// unlockLatest gives back the owner's latest holds of members that may share a
// script call.
func (m *Multi) unlockLatest(ctx context.Context, t *owner.Token, unit []int) error {
	var failed []error
	var rs []*record
	var of []*Mutex
	for _, i := range unit {
		x := m.members[i].mutex
		field := x.field(t)
		if r := x.latest(x.ledgerKey, field); r != nil {
			rs, of = append(rs, r), append(of, x)
		} else {
			failed = append(failed, x.noHold(t, field))
		}
	}
	if len(rs) == 0 {
		return lossFirst(failed)
	}
	for i, err := range releaseBatch(ctx, rs) {
		if errors.Is(err, errTaken) { // by somebody else: there may be one before it
			err = of[i].Unlock(ctx)
		}
		failed = append(failed, err)
	}
	return lossFirst(failed)
}

// ForceUnlock implements Locker: it opens all members, and reports whether one
// was held.
func (m *Multi) ForceUnlock(ctx context.Context) (bool, error) {
	if err := m.check(ctx, "force unlock"); err != nil {
		return false, err
	}
	ctx, done := beyondHold(ctx, time.Duration(len(m.members))*m.Patience) // one after the other
	defer done()
	any := false
	var failed []error
	for _, o := range m.members {
		opened, err := o.ForceUnlock(ctx)
		any = any || opened
		failed = append(failed, err)
	}
	return any, errors.Join(failed...)
}

// IsLocked implements Locker: whether anybody holds one of the members.
func (m *Multi) IsLocked(ctx context.Context) (bool, error) {
	if err := m.check(ctx, "look at"); err != nil {
		return false, err
	}
	var failed []error
	for _, o := range m.members {
		locked, err := o.IsLocked(ctx)
		if err == nil && locked {
			return true, nil // whatever the others are
		}
		failed = append(failed, err)
	}
	return false, errors.Join(failed...)
}

// IsHeld implements Locker: whether ctx's owner holds all members.
func (m *Multi) IsHeld(ctx context.Context) (bool, error) {
	n, err := m.HoldCount(ctx)
	return n > 0, err
}

// HoldCount implements Locker: the smallest of the members'.
func (m *Multi) HoldCount(ctx context.Context) (int, error) {
	if err := m.check(ctx, "look at"); err != nil {
		return 0, err
	}
	if _, err := owner.Must(ctx); err != nil {
		return 0, err
	}
	least := 0
	for i, o := range m.members {
		n, err := o.HoldCount(ctx)
		if err != nil {
			return 0, err
		}
		if i == 0 || n < least {
			least = n
		}
	}
	return least, nil
}

// TTL implements Locker: the shortest of the members'. One without expiry is the
// longest of all.
func (m *Multi) TTL(ctx context.Context) (time.Duration, error) {
	if err := m.check(ctx, "look at"); err != nil {
		return 0, err
	}
	least := time.Duration(-1)
	for _, o := range m.members {
		d, err := o.TTL(ctx)
		if err != nil {
			return 0, err
		}
		if d >= 0 && (least < 0 || d < least) {
			least = d
		}
	}
	return least, nil
}

// Do implements Locker.
func (m *Multi) Do(ctx context.Context, fn func(ctx context.Context) error, opts ...Option) error {
	return Do(ctx, m, fn, opts...)
}

// noHold is the error of an Unlock whose owner holds nothing.
func (m *Mutex) noHold(t *owner.Token, field string) error {
	if m.Tasks.Context().Err() != nil {
		return fmt.Errorf("%w: unlock %s", errs.ErrClosed, errs.Quote(m.name))
	}
	return &errs.NotHeldError{Name: m.name, Reason: m.ending(t, m.ledgerKey, field)}
}
