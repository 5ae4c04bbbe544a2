// Package owner carries the identity under which a context acquires. Nothing
// here looks at goroutines: a context is an owner, wherever it travels.
package owner

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/internal/errs"
)

// maxID bounds a chosen id, which ends up in a hash field of every lock.
const maxID = 1024

// Token is an owner. Contexts point to it; the ledger of holds points to it
// weakly, so that a token which is gone means that nobody can unlock any more.
type Token struct {
	n  uint64 // of a minted one
	id string // of a chosen one: any context may be this owner again

	mu sync.Mutex
	// latest and ended remember how this owner's holds ended, latest first, so
	// that an Unlock without a hold can say which kind of "not held" it is.
	latest ending
	ended  []ending
}

type ending struct {
	key    string
	reason errs.Reason
}

// keepEndings bounds what a long-lived owner remembers.
const keepEndings = 16

// process is random per process, so that ids of two processes differ even
// where both chose the same client id.
var (
	process = func() string {
		var b [6]byte
		_, _ = rand.Read(b[:]) // crypto/rand never fails: it aborts the program instead
		return hex.EncodeToString(b[:])
	}()
	minted atomic.Uint64
)

// Mint makes an owner that nobody else has.
func Mint() *Token {
	t := &Token{}
	t.Mint()
	return t
}

// Mint makes the zero token an owner that nobody else has.
func (t *Token) Mint() { t.n = minted.Add(1) }

// Chosen makes an owner with the caller's id. It is checked at the first call
// that uses it.
func Chosen(id string) *Token { return &Token{id: id} }

// ID is the owner's id as the caller knows it.
func (t *Token) ID() string { return string(t.AppendID(nil)) }

// AppendID appends the id to b.
func (t *Token) AppendID(b []byte) []byte {
	if t.Chosen() {
		return append(b, t.id...)
	}
	b = append(b, process...)
	return strconv.AppendUint(append(b, '-'), t.n, 32)
}

// Chosen reports whether the id is the caller's own, so that whoever knows it
// can be this owner, whether the token is still there or not.
func (t *Token) Chosen() bool { return t.n == 0 }

// Check refuses ids that can't be told apart from other things in Redis.
func (t *Token) Check() error {
	switch {
	case !t.Chosen():
	case t.id == "":
		return errs.Invalid("owner id is empty: give WithOwnerID a non-empty id, or use WithOwner")
	case strings.HasSuffix(t.id, ":write"):
		return errs.Invalid("owner id %s ends in \":write\", which marks the writer of a read-write lock: choose another id", errs.Quote(t.id))
	case len(t.id) > maxID:
		return errs.Invalid("owner id %s is longer than %d bytes: choose a shorter one", errs.Quote(t.id), maxID)
	}
	return nil
}

// Ended notes how a hold of key ended.
func (t *Token) Ended(key string, reason errs.Reason) {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := t.latest
	t.latest = ending{key, reason}
	if last.key == key || last.key == "" {
		return
	}
	t.ended = slices.DeleteFunc(t.ended, func(e ending) bool { return e.key == key || e.key == last.key })
	t.ended = slices.Insert(t.ended, 0, last)
	t.ended = t.ended[:min(len(t.ended), keepEndings)]
}

// Last answers how the owner's last hold of key ended; NeverHeld if it knows
// of none.
func (t *Token) Last(key string) errs.Reason {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.latest.key == key {
		return t.latest.reason
	}
	for _, e := range t.ended {
		if e.key == key {
			return e.reason
		}
	}
	return errs.NeverHeld
}

// ContextKey is the key under which a context carries its *Token. A hold's
// context answers it itself.
type ContextKey struct{}

// With answers a context that acquires as t.
func With(ctx context.Context, t *Token) context.Context {
	return context.WithValue(ctx, ContextKey{}, t)
}

// From answers the context's owner, or nil.
func From(ctx context.Context) *Token {
	t, _ := ctx.Value(ContextKey{}).(*Token)
	return t
}

// Must answers the context's owner, or the error that says how to get one.
func Must(ctx context.Context) (*Token, error) {
	t := From(ctx)
	if t == nil {
		return nil, errNoOwner
	}
	return t, t.Check()
}

var errNoOwner = &noOwnerError{}

type noOwnerError struct{}

func (*noOwnerError) Error() string {
	return errs.ErrNoOwner.Error() + ": pass Hold.Context(), or a context made by holdfast.WithOwner that was also given to Lock"
}

func (*noOwnerError) Unwrap() error { return errs.ErrNoOwner }
