// Package rlock holds the exclusive locks. Users get them from a client:
//
//	lock := client.Lock("order:42")
//	hold, err := lock.Lock(ctx)
//
// # What a lock can do
//
// [Lock] has the methods of [Locker]:
//
//	Lock(ctx, ...)         waits until it has the lock or ctx ends; with Wait(d), at most d
//	TryLock(ctx, ...)      one try, or for as long as Wait(d) says: ErrNotAcquired
//	Unlock(ctx)            gives back the latest hold of ctx's owner
//	ForceUnlock(ctx)       opens the lock whoever holds it
//	IsLocked, TTL          of anybody's hold
//	IsHeld, HoldCount      of ctx's owner
//	Do(ctx, fn, ...)       runs fn while holding the lock
//
// A [Hold] has
//
//	Context()              the caller's, with the owner; it ends if the hold is lost
//	Unlock(ctx)            gives back exactly this hold, once
//	Extend(ctx, d)         a lease of at least d from now
//	Detach()               a handle for Client.Resume, elsewhere
//	Name, Owner, Token, ExpiresAt
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
