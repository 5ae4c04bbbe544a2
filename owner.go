package holdfast

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/owner"
)

// WithOwner answers a context with a fresh owner, always a new one. Locks taken
// with it, and with contexts derived from it, belong to that owner, in whatever
// goroutine: they re-enter, and Unlock(ctx) gives them back. A goroutine that
// should be somebody else, and be kept out by its parent's locks, takes
// WithOwner(ctx) before it locks.
func WithOwner(ctx context.Context) context.Context {
	return owner.With(ctx, owner.Mint())
}

// WithOwnerID answers a context with an owner of the caller's choice, as
// Redisson does with a thread id: two contexts with one id are one owner within
// a client. An id that is empty, longer than 1 KiB, or ends in ":write" is
// ErrInvalid from the first call that uses it.
func WithOwnerID(ctx context.Context, id string) context.Context {
	return owner.With(ctx, owner.Chosen(id))
}

// OwnerID answers the id of ctx's owner, and whether there is one.
func OwnerID(ctx context.Context) (string, bool) {
	t := owner.From(ctx)
	if t == nil {
		return "", false
	}
	return t.ID(), true
}
