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
// # What a hold is known for
//
// The end of a call is read after it returned; between the two the process may
// have been stopped for longer than any lease. So a hold counts only where its
// holder has seen it: a look is the clock, and then Err of the hold's context, nil.
// A hold is certain from the end of its acquisition until its last look (Seen).
// Two holders that are certain at one moment are a violation, and only they.
//
// # Outcomes
//
// [Done]: granted, or given back. [Refused]: somebody else has it, or the time was
// over; always legal. [Lost]: what was to be given back or extended had been lost,
// and the holder was told. [Unknown]: no answer came, or none that decides; what it
// may have taken is undone behind the caller. [Failed]: an error that nothing explains.
package history
