// Package pubsub shares one subscription connection among all waiters of a
// client. It knows channels and wake-ups, and nothing of locks.
//
// # States of a channel
//
//	wanted ──SUBSCRIBE──▶ asked ──confirmation──▶ confirmed
//	   ▲                    │                        │ last waiter left,
//	   └──connection lost───┴────────────────────────┤ 100 ms ago
//	                                                 ▼
//	                                    UNSUBSCRIBE, forgotten
//
// One SUBSCRIBE or UNSUBSCRIBE is under way at a time, for all channels that
// have come together since the one before: a thousand waiters that arrive at
// once need a few commands. A channel outlives its last waiter for a moment, so
// that a name which is handed from waiter to waiter isn't subscribed anew each
// time.
//
// # What is promised
//
//   - Ready is closed when the server has confirmed the channel: what is
//     published from then on is delivered. A waiter tries once more after that.
//   - A message, and a confirmation after a reconnect, puts one token into the
//     slot of each waiter on the channel. A full slot stays full: wake-ups
//     merge, and no waiter can hold up the receive loop.
//   - After Close of the last subscription nothing is left on the server within
//     a second; after the client's Close neither connection nor goroutine.
//
// # What is not
//
// Messages published while the connection is down are lost: the confirmation
// after the reconnect wakes everybody instead. A link that is dead without
// saying so is noticed after some six seconds; when commands that had failed work
// again ([Hub.Doubt]), within half a second, and a link that a failover has left at
// a former master is made anew. Under sentinels a link that somebody waits at and that
// hears nothing asks twice a second where commands go (CLIENT INFO), since a client
// without commands under way has none that could fail. Where SUBSCRIBE is refused (an
// ACL without channels) or pub/sub is missing, Ready stays open and waiters live
// on their slow poll; it is asked again every few seconds.
//
// # Sharded pub/sub
//
// A [link] is one connection and its channels. Without shards a hub has one. On
// a cluster with sharded pub/sub it has one per node that serves a channel, and
// channels whose node isn't known, or doesn't serve them any more (their slot
// has moved, the node is gone), go through the link to nowhere, whose goroutine
// finds their node and moves them there. A channel that was confirmed before
// wakes its waiters when it is confirmed again. SSUBSCRIBE carries channels of
// one slot only, so that a reconnect takes a round trip per slot in use.
package pubsub
