// Package rlatch holds the count-down latch. Users get it from a client:
//
//	done := client.Latch("import:42")
//	set, err := done.TrySetCount(ctx, 3) // once, by whoever comes first
//	...
//	err = done.CountDown(ctx)            // by each of three workers
//	...
//	err = done.Await(ctx)                // by any number of waiters, anywhere
//
// # Rounds
//
// A latch with no count is open: Await returns at once, and CountDown does
// nothing. So set the count before anybody waits. Once it has reached zero, or was
// deleted, it can be set again: a new round. Whoever waited in the round before is
// let go by its end, however soon the next one begins. (Only if a Java client took
// the last count off, and the latch was set again before the waiter had asked, does
// the waiter stay for the round after: Redisson leaves no trace of the end.)
//
// # Names
//
// The channel is the one of Redisson, redisson_countdownlatch__channel__{name},
// with braces around the name whatever it has of its own. So for a name with a
// hash tag, such as "x{y}z", it hashes to another slot than the key. Where sharded
// pub/sub may be used (on a cluster, unless WithShardedPubSub turns it off) a script
// must keep to the slot of its key, so there such a name is ErrInvalid.
package rlatch
