package hold

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/owner"
	"github.com/holdfast-go/holdfast/internal/script"
)

// askEach asks every member at once, within the time that one is given, and answers
// what those said that answered: the largest first. The error is ErrUnavailable
// if they are no majority, or else that of the majority.
func askEach[T any](ctx context.Context, q *Quorum, what string, compare func(a, b T) int, f func(ctx context.Context, m Member) (T, error)) ([]T, error) {
	if err := q.check(ctx, what); err != nil {
		return nil, err
	}
	patience := perServer(q.leaseOf(Options{}))
	ctx, done := beyondHold(ctx, patience)
	defer done()
	bound, cancel := context.WithTimeoutCause(ctx, patience, script.ErrPatience)
	defer cancel()
	vals := make([]T, len(q.members))
	var answered []T
	var failed []error
	for i, err := range forEach(len(q.members), func(i int) (err error) {
		vals[i], err = f(bound, q.members[i])
		return err
	}) {
		if err != nil {
			failed = append(failed, err)
		} else {
			answered = append(answered, vals[i])
		}
	}
	slices.SortFunc(answered, func(a, b T) int { return compare(b, a) })
	switch {
	case len(answered) >= q.need:
		return answered, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("holdfast: %s %s: %w", what, errs.Quote(q.name), script.ContextError(ctx))
	case errors.Is(bound.Err(), context.DeadlineExceeded):
		return nil, fmt.Errorf("%w: %s %s: %d of its %d members answered: %w", errs.ErrUnavailable, what, errs.Quote(q.name), len(answered), len(q.members), errors.Join(failed...))
	}
	return nil, errors.Join(failed...)
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// Unlock implements Locker: it gives back the latest hold of a majority that ctx's
// owner has. Only if there is none every member gives its latest back. It is a
// success if a majority did.
func (q *Quorum) Unlock(ctx context.Context) error {
	if err := q.check(ctx, "unlock"); err != nil {
		return err
	}
	t, err := owner.Must(ctx)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	patience := perServer(q.leaseOf(Options{}))
	ctx, done := beyondHold(ctx, patience)
	defer done()
	bound, cancel := context.WithTimeoutCause(ctx, patience, script.ErrPatience)
	defer cancel()
	if found, err := unlockNewest(bound, q.id, t); found {
		return err
	}
	each := forEach(len(q.members), func(i int) error { return q.members[i].Unlock(bound) })
	freed := 0
	for _, err := range each {
		if err == nil {
			freed++
		}
	}
	if freed >= q.need {
		return nil
	}
	return lossFirst(each)
}

// ForceUnlock implements Locker: it opens all members, and reports whether one was
// held. It is a failure if fewer than a majority answered.
func (q *Quorum) ForceUnlock(ctx context.Context) (bool, error) {
	opened, err := askEach(ctx, q, "force unlock", compareBool, func(ctx context.Context, m Member) (bool, error) { return m.ForceUnlock(ctx) })
	return err == nil && opened[0], err
}

// IsLocked implements Locker: whether a majority of the members is held, by
// whomever.
func (q *Quorum) IsLocked(ctx context.Context) (bool, error) {
	locked, err := askEach(ctx, q, "look at", compareBool, func(ctx context.Context, m Member) (bool, error) { return m.IsLocked(ctx) })
	return err == nil && locked[q.need-1], err
}

// IsHeld implements Locker: whether ctx's owner holds a majority.
func (q *Quorum) IsHeld(ctx context.Context) (bool, error) {
	n, err := q.HoldCount(ctx)
	return n > 0, err
}

// HoldCount implements Locker: the largest that a majority has.
func (q *Quorum) HoldCount(ctx context.Context) (int, error) {
	if err := q.check(ctx, "look at"); err != nil {
		return 0, err
	}
	if _, err := owner.Must(ctx); err != nil {
		return 0, err
	}
	counts, err := askEach(ctx, q, "look at", func(a, b int) int { return a - b }, func(ctx context.Context, m Member) (int, error) { return m.HoldCount(ctx) })
	if err != nil {
		return 0, err
	}
	return counts[q.need-1], nil
}

// TTL implements Locker: the longest that a majority has. One without expiry is the
// longest of all.
func (q *Quorum) TTL(ctx context.Context) (time.Duration, error) {
	ttls, err := askEach(ctx, q, "look at", func(a, b time.Duration) int {
		switch {
		case uint64(a) < uint64(b):
			return -1
		case a == b:
			return 0
		}
		return 1
	}, func(ctx context.Context, m Member) (time.Duration, error) { return m.TTL(ctx) })
	if err != nil {
		return 0, err
	}
	return ttls[q.need-1], nil
}

// Do implements Locker.
func (q *Quorum) Do(ctx context.Context, fn func(ctx context.Context) error, opts ...Option) error {
	return Do(ctx, q, fn, opts...)
}
