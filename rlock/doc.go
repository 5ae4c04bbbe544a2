// Package rlock holds the exclusive locks. Users get them from a client:
//
//	lock := client.Lock("order:42")
//	hold, err := lock.Lock(ctx)
//
// # What a lock can do
//
// The methods of [Lock] are those of [Locker], which all kinds of locks share;
// those of a hold stand at [Hold]. Errors are matched with errors.Is against
// holdfast.ErrNotAcquired and its like.
//
// # Owners
//
// A lock belongs to the owner that the context carries, never to a goroutine.
// Whoever locks with [Hold.Context], or with a context made by
// holdfast.WithOwner that holds the lock already, enters it once more. A child
// goroutine that should be somebody else, and be kept out, takes
// holdfast.WithOwner(ctx) first.
//
// # Losing a hold
//
// [Hold.Context] ends before Redis can let the key go. Code that does work
// under a lock takes that context, and stops when it ends. Its Err looks at the
// clocks itself, so it is right even when the process was stopped and timers are
// late; contexts derived from it follow a moment later.
package rlock
