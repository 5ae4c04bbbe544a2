// Package rrwlock holds the read-write lock. Users get it from a client:
//
//	rw := client.RWLock("catalogue")
//	hold, err := rw.Read().Lock(ctx)
//
// # Who gets in
//
// Many owners may read at once, or one may write. The writer may read, too, and
// goes on reading when it has given its write hold back. A reader can't become
// the writer: it is refused with ErrUpgrade at once, since two that tried would
// wait for each other. Both modes are re-entrant, by context only. Every read hold
// has a lease of its own in Redis, so that a reader that died is gone within its
// lease, whoever else reads.
//
// # Fairness
//
// Phases take turns. While a writer waits, owners that hold nothing yet don't begin
// to read; who reads already may enter again. When a writer is done, those readers
// that have waited for it get in together, before the next writer. Their turn lasts
// until the last of them is in, a second at most. A waiter that dies keeps others
// back for 5 s (a writer) or a second (a reader) at most.
//
// Redisson's clients don't take part: its readers go in while a writer of ours
// waits, and it publishes nothing at a downgrade, of which our waiters then learn
// by polling. Beside a Redisson 3.x reader, whose watchdog renews every reader's
// keys, a reader that died lives on as long as that one does.
//
// # Limits
//
// An owner that writes and reads counts as the writer until it gives the write
// hold back. A write hold with a fixed lease that runs out first is over for its
// holder, but keeps others out until the owner's read holds are gone, too.
package rrwlock
