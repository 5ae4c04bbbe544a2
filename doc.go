// Package holdfast is distributed synchronization for Go on Redis and Valkey,
// on the wire layout of Redisson: Go and Java services can share their locks.
//
//	client, err := holdfast.Open("redis://localhost:6379")
//	hold, err := client.Lock("order:42").Lock(ctx)
//	if err != nil {
//		return err
//	}
//	defer hold.Unlock(ctx)
//	return ship(hold.Context(), order)
//
// A lock belongs to the owner that a context carries (see WithOwner), and is
// renewed as long as it is held. Hold.Context ends before the lock can pass to
// anybody else. What is guaranteed, and what is not, stands in the README.
package holdfast
