// Package history is what client processes and the nemesis of a chaos run write
// down, and the check of it: what was asked and answered, when, and what was done
// to the servers meanwhile.
//
// # Records
//
// Each process appends to a file of its own, one JSON text a line: the begin of a
// call before it is made, its end after it has returned. A process that is killed
// loses at most the ends of the calls under way; such a call has no end, and is
// open: it may take effect at any later moment, or never. The nemesis writes
// events into a file of the same form. Load puts files together.
//
// All times are nanoseconds of CLOCK_MONOTONIC ([Now]), which all processes of a
// machine share, and which no change of the date moves. A begin is read before the
// call, an end after it.
//
// # Outcomes
//
// [Done]: granted, or given back. [Refused]: somebody else has it, or the time was
// over; always legal. [Lost]: what was to be given back or extended had been lost,
// and the holder was told. [Unknown]: no answer came, or none that decides; what it
// may have taken is undone behind the caller. [Failed]: an error that nothing
// explains, which is a violation.
//
// # When a hold is certain
//
// The end of a call is read after it returned; between the two the process may
// have been stopped for longer than any lease. So a hold counts only where its
// holder has seen it: a look is the clock, and then Err of the hold's context, nil.
// A hold is certain from the end of its acquisition until its last look (Op.Seen):
// not until its release began, since what happens between look and release is not
// known. Two holders that exclude each other and are certain at one moment are a
// violation: the first has not been told of its loss before the second could get
// in. That covers every way of losing: a lease that ran out while the process was
// stopped or cut off is told by the clock, before the server lets the key go.
//
// # When data are lost
//
// A server that is killed and comes back empty, a failover that leaves out what
// the replica hadn't got, a key that is deleted or evicted: no clock shows these. A
// holder learns of them at its next renewal, or, for a fixed lease, at its deadline.
// Until then somebody else may get in. So an event that loses data opens a window:
//
//	from  the begin of the event: the kill, the freeze or the cut-off of the old
//	      master, the DEL, the moment at which memory became too small
//	to    its end (the old master serves no more, and the new one or the empty one
//	      serves: the promotion; memory is enough again) and one lease: the longest
//	      that was asked for the hold, since a renewal that the old master still
//	      answered was sent before the event's end
//
// In its window nothing is certain of a hold whose acquisition began before the
// event's end, so two may hold then. It is excused for nothing else:
//
//   - names that were not held when the event began, nor asked for before its end,
//     have no window: two who acquire after it exclude each other at once;
//   - an event concerns the names of its scope only (all, some, or those of the
//     slots of one node);
//   - a hold that is still seen after the window is certain again: it was renewed by
//     the server that serves now, or should have been told.
//
// With a lease of 30 s and renewal every third of it a holder is told within some 10
// s, and never later than 30 s after the promotion.
//
// A server that is killed and restarted with all its data (appendfsync always), one
// that is stopped and continued, and a slot that is moved lose nothing and open no
// window. Fencing tokens begin anew with an event that loses data: they are compared
// among grants that ended before it and among those that began after it. What has
// no holders (permits without names, the count of a latch, the grants of a limiter)
// is not judged from the begin of such an event on, under names that were in use.
//
// # The models
//
// [Exact] hands calls to porcupine as they were: each takes effect at one moment
// between begin and end, and every look has to be explained. That suits histories of
// some dozen calls a name of which few are open.
//
// [Check] first moves what can be moved: an acquisition to its end, a release to its
// begin (for what has a context, to the last look). Each such move only makes room
// for the others, so that an order exists for what is left if and only if one existed
// before; a test compares the two on random histories. Calls that would take
// something and have no answer are left out, and those that would give have given.
// Looks keep their time, and may see as much more taken as was under way. Then hardly
// anything overlaps, and thousands of calls of a name are decided in milliseconds; a
// search that takes longer than its limit has failed. The models:
//
//	lock, fair    one owner, as often as it likes; not re-entrant: once
//	fenced        and tokens: no two owners have one, and none is smaller than one before
//	rw            one writer, or readers; the writer may read, and go on reading
//	semaphore     no more permits than were set; at the end as many as at the begin, but
//	              for what killed processes had, or were about to give back
//	expirable     the same by ids, none twice; at the end all
//	latch         nobody gets through before as many count-downs as were set have begun
//	limiter       no interval, nor up to twenty in a row, in which more was granted for
//	              sure than the rate allows
//
// Besides: a write to the guarded resource that a newer token kept out comes from a
// hold that is not seen afterwards; who was seen in the queue of a fair lock gets in
// before all who asked later, unless it was silent for 15 s; no call takes longer
// than its bound and 10 s from the end of the last fault that it met, one whose process
// was killed meanwhile included, and none without a bound waits for 10 s, without a
// fault, for what nobody can have; no process reports goroutines, connections, holds or
// subscriptions that were left. What is left in the servers the runner looks for: keys,
// but for numbers that were set; places in queues, but for those of killed processes;
// subscriptions; connections. Markers of requests live for 70 s, and are judged by having
// no more than that to live.
//
// # Errors and losses
//
// An answer may be missing, and a hold may be lost, only if something explains it:
//
//   - a fault of servers, links or the process itself that was there between 2 s before
//     the call began and its end, or, for a loss, from a lease and 2 s before it was told
//     until then; that another process was stopped or killed explains nothing;
//   - a [Stall] in that time: the machine gave the process, the runner or a server none;
//   - the process had begun to work within these 2 s;
//   - for an answer: the caller's context had ended, or it had a time to wait (the last
//     question of a wait has a quarter of a second for its answer);
//   - for a loss: its lease was fixed, and over; or its context is that of another hold of
//     the same owner, which was lost.
//
// With several faults at any time that judges the quiet end of a run, and runs without
// faults.
package history
