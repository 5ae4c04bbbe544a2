package rlock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/keys"
	"github.com/holdfast-go/holdfast/internal/object"
	"github.com/holdfast-go/holdfast/internal/script"
)

// FencedLock is the re-entrant lock whose holds carry a fencing token: Redisson's
// RFencedLock, on the same keys. Hold.Token answers the number, which is larger
// than that of every hold of this name before, whatever became of the lock's key
// meanwhile. A resource that remembers the largest token it has seen, and refuses
// smaller ones, is safe from a holder that lost the lock without noticing: see
// module fence, and https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
// on why a lease alone can't be.
//
// An owner that enters again keeps its token, as long as one of its holds is
// fenced; Redisson raises it at every re-entry, so that a holder there fences off
// its own outer hold. What is taken through another kind of lock of the same name
// excludes, but has no token.
//
// The last token stands in a key of its own that never expires. It is gone if
// Redis loses its data: see RaiseToken. Tokens end at 2^52 - 1.
type FencedLock struct {
	ref
	m      *hold.Mutex
	tokens *object.Object
	key    string // of the token
}

var _ Locker = (*FencedLock)(nil)

// NewFencedLock makes a lock on a client's services. Users call
// Client.FencedLock.
func NewFencedLock(s *hold.Services, name string, opts ...LockOption) *FencedLock {
	tokens := object.New(s, name)
	m := hold.NewMutex(s, fenced{}, name, configure(opts).nonReentrant)
	return &FencedLock{
		ref:    m.Ref(),
		m:      m,
		tokens: tokens,
		key:    fenced{}.TokenKey(tokens.RedisKey()),
	}
}

// CurrentToken is the last token that was given: 0 if none was, or if it was
// lost. Errors: ErrInvalid if the key of the token holds something else;
// ErrUnavailable, ErrDenied, ErrClosed, the context's.
func (l *FencedLock) CurrentToken(ctx context.Context) (int64, error) {
	text, err := object.Ask(ctx, l.tokens, "read the token of", func(ctx context.Context) (string, error) {
		// A key of another type: not the lock's, which the error of Ask would name.
		text, err := l.tokens.Runner.Redis().Get(ctx, l.key).Result()
		switch {
		case errors.Is(err, redis.Nil):
			return "0", nil
		case err != nil && script.IsWrongType(script.Explain(err)):
			return "", nil
		}
		return text, err
	})
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, hold.ErrToken(l.Name(), l.key)
	}
	return n, nil
}

// RaiseToken sees to it that every token given from now on is larger than n; it
// never lowers one. That is what to do after Redis has lost data, before the lock
// is used again: n is the largest token that any fenced resource has seen, or
// more. Errors: ErrInvalid for an n that is negative or larger than 2^52 - 2, or
// if the key of the token holds something else; ErrUncertain if no answer came;
// ErrUnavailable, ErrDenied, ErrClosed, the context's.
func (l *FencedLock) RaiseToken(ctx context.Context, n int64) error {
	if n < 0 || n >= hold.MaxToken {
		return errs.Invalid("raise the token of %s to %d: choose from 0 to 2^52 - 2", errs.Quote(l.Name()), n)
	}
	answer, err := l.tokens.Change(ctx, "raise the token of", object.AtMostNow, script.NewMutation(raiseTokenScript, l.keys(), nil, n))
	if err == nil && answer == badToken {
		err = hold.ErrToken(l.Name(), l.key)
	}
	return err
}

// DeleteToken removes the token of a name that is used no more, and reports
// whether there was one: otherwise the key stays for ever. Nobody may use the
// name any more, nor what was fenced by it: its next token would be 1. Errors:
// ErrNotAcquired (a *NotAcquiredError) while somebody holds the lock; ErrInvalid
// if the key of the token holds something else, which is left alone;
// ErrUncertain if no answer came; ErrUnavailable, ErrDenied, ErrClosed, the
// context's.
func (l *FencedLock) DeleteToken(ctx context.Context) (bool, error) {
	const what = "delete the token of"
	answer, err := l.tokens.Change(ctx, what, object.AtMostNow, script.NewMutation(deleteTokenScript, l.keys(), nil).AlwaysMark())
	if err != nil {
		return false, err
	}
	remaining := time.Duration(-1)
	switch answer {
	case 0, 1:
		return answer == 1, nil
	case badToken:
		return false, hold.ErrToken(l.Name(), l.key)
	case heldForEver:
	default:
		remaining = time.Duration(answer-heldFor) * time.Millisecond
	}
	return false, fmt.Errorf("holdfast: %s %s: it is held: %w", what, errs.Quote(l.Name()),
		&errs.NotAcquiredError{Name: l.Name(), Remaining: remaining})
}

// Answers of raise_token.lua and delete_token.lua.
const (
	heldForEver = 3
	badToken    = 5
	heldFor     = 10
)

func (l *FencedLock) keys() script.Keys {
	k := l.tokens.Keys()
	k.More = []any{l.key}
	return k
}

// Name is the name that the lock was made with.
func (l *FencedLock) Name() string { return l.m.Name() }

// Lock waits until it has the lock or ctx ends: as Lock.Lock. ErrInvalid also if
// the key of the token holds something else, or the last token there is.
func (l *FencedLock) Lock(ctx context.Context, opts ...Option) (*Hold, error) {
	return l.m.Lock(ctx, opts...)
}

// TryLock asks once, or for as long as Wait(d) says: as Lock.TryLock. ErrInvalid
// also if the key of the token holds something else, or the last token there is.
func (l *FencedLock) TryLock(ctx context.Context, opts ...Option) (*Hold, error) {
	return l.m.TryLock(ctx, opts...)
}

// Unlock gives back the latest hold of ctx's owner: as Lock.Unlock. The token
// stays.
func (l *FencedLock) Unlock(ctx context.Context) error { return l.m.Unlock(ctx) }

// ForceUnlock opens the lock whoever holds it: as Lock.ForceUnlock. The token
// stays.
func (l *FencedLock) ForceUnlock(ctx context.Context) (bool, error) { return l.m.ForceUnlock(ctx) }

// IsLocked reports whether anybody holds the lock: as Lock.IsLocked.
func (l *FencedLock) IsLocked(ctx context.Context) (bool, error) { return l.m.IsLocked(ctx) }

// IsHeld asks Redis whether ctx's owner holds the lock: as Lock.IsHeld.
func (l *FencedLock) IsHeld(ctx context.Context) (bool, error) { return l.m.IsHeld(ctx) }

// HoldCount asks Redis how many holds ctx's owner has: as Lock.HoldCount.
func (l *FencedLock) HoldCount(ctx context.Context) (int, error) { return l.m.HoldCount(ctx) }

// TTL is how long the present hold lasts unless it is renewed: as Lock.TTL.
func (l *FencedLock) TTL(ctx context.Context) (time.Duration, error) { return l.m.TTL(ctx) }

// Do runs fn while holding the lock: as Lock.Do.
func (l *FencedLock) Do(ctx context.Context, fn func(ctx context.Context) error, opts ...Option) error {
	return l.m.Do(ctx, fn, opts...)
}

var (
	//go:embed acquire_fenced.lua
	acquireFencedSrc string
	//go:embed raise_token.lua
	raiseTokenSrc string
	//go:embed delete_token.lua
	deleteTokenSrc string

	acquireFencedScript = script.Mutating("acquire_fenced.lua", acquireFencedSrc)
	raiseTokenScript    = script.Mutating("raise_token.lua", raiseTokenSrc)
	deleteTokenScript   = script.Mutating("delete_token.lua", deleteTokenSrc)

	firstFenced = []any{1, 0} // count, known; see acquire_fenced.lua
)

// fenced is the kind of the fenced lock: a plain one that raises a token.
type fenced struct{ plain }

var _ hold.Fenced = fenced{}

func (fenced) ID() string { return "fenced" }

// TokenKey implements hold.Fenced. It is Redisson's.
func (fenced) TokenKey(key string) string { return keys.Prefixed("redisson_lock_token", key) }

func (fenced) Acquire(a hold.Args) script.Call {
	a.More = []any{a.TokenKey}
	var c script.Call
	if a.Count == 1 {
		c = script.NewMutation(acquireFencedScript, a.Keys, firstFenced, a.Field, a.Lease.Milliseconds())
	} else {
		c = script.NewMutation(acquireFencedScript, a.Keys, nil, a.Field, a.Lease.Milliseconds(), a.Count, a.Token)
	}
	if a.MaybeIn {
		c = c.AlwaysMark()
	}
	return c
}
