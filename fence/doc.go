// Package fence is the check where it counts: a write that takes effect only if
// no newer holder of the lock has written before.
//
// A lock with a lease can't promise that its holder still has it at the moment
// when a write arrives: the process may have been stopped, the packet may have
// been late. A fencing token can: it is larger for each holder
// (holdfast.Client.FencedLock), and the resource remembers the largest that it
// has seen and refuses smaller ones. This package is the half that runs at the
// resource: [Table] for a row in an SQL database, [Values] for a value in Redis.
//
//	hold, err := client.FencedLock("account:42").Lock(ctx)
//	if err != nil {
//		return err
//	}
//	defer hold.Unlock(ctx)
//	err = accounts.Update(hold.Context(), db, hold.Token(), 42, fence.Set("balance", balance))
//	if errors.Is(err, fence.ErrStale) { … } // somebody else has the lock, and has written
//
// # The rule
//
// A write with token t takes effect if the largest token seen is t or less, and t
// is then the largest. Equal passes: one holder writes as often as it likes, and
// may send a write again whose answer it has missed. What is not kept apart is
// the order of writes under one token: two copies of a holder's own requests, one
// of them late, are its own affair.
//
// A token protects from the moment it was seen. A new holder that reads first and
// writes later can be overtaken in between by a late write of the old one: Claim
// the row or the value before reading what the decision rests on.
//
// # What must hold
//
// The tokens of one row or value come from one lock. They don't fall: after Redis
// has lost its data, raise them before the lock is used again
// (FencedLock.RaiseToken) to the largest token the resource has seen. With SQL
// that is a SELECT max(…) over the fence column.
//
// A failover loses what its replica hadn't got: with the newest hold also its token,
// which the next holder is then given, too. Where that matters, use
// holdfast.WithReplicas, or remember the holder beside the token ([Table.By],
// [Values.By]): the same token from another one is refused, and that one raises the
// tokens and locks anew. That helps where one grant was lost. Of several, as with a
// busy name, a late one may have a larger token than the new holder's: only
// holdfast.WithReplicas of all replicas helps there. A hold that was resumed
// (Client.Resume) keeps its token under another owner, and so can't be told from a
// token given out twice: don't combine By with Detach.
//
// A hold of another kind of lock has token 0, which every call here refuses
// (holdfast.ErrInvalid): an unfenced write is a mistake, not a default.
package fence
