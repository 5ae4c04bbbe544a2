// Package watchdog keeps the leases of one client alive, and tells in time when
// it couldn't. It knows keys and time; how a lease is renewed it is told.
//
// # One goroutine
//
// However many leases there are, one goroutine sleeps until the earliest thing
// to do: a renewal (a third of the lease after the last one was asked for) or a
// deadline (see package lease). At least once a second it looks whether the wall
// clock has run ahead, as after a suspension of the machine. When one renewal is
// due, those due within the next half period go along, so that leases taken at
// different moments fall into step and a batch is full. A batch is sent on a
// goroutine of its own, at most [maxInFlight] at a time. One that gets no answer
// in time, as on a dead connection, gives up its place: it holds up neither the
// other batches nor a deadline.
//
// # Who owns which fact
//
// A lease is watched from Keep to Stop, or until it is over. Both take effect
// before they return, under one mutex: a Stop can't be overtaken by the Keep
// before it, since a lease that is over is not kept, and the answer to a renewal
// that was under way at Stop is dropped. The deadline belongs to the lease; only
// a renewal that was answered moves it, and it counts from the moment of asking.
//
// # Verdicts
//
//   - Renewed: the owner's field was there; the deadline moves.
//   - Gone: the field is gone. The lease ends now.
//   - Unknown: no answer, or a refusal. It is tried again, on another
//     connection if need be, until the deadline; then the lease ends.
//
// # What is not promised
//
// That a holder stops at the deadline: its context ends, but code that doesn't
// look at it goes on. That a lease which Redis dropped (deleted, evicted, lost
// in a failover) is noticed before the next renewal. That the deadline holds if
// the server's clock jumps forward.
package watchdog
