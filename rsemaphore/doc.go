// Package rsemaphore has the semaphores: Semaphore (Redisson's RSemaphore), a
// number of permits that anybody may take and give back, and Expirable
// (RPermitExpirableSemaphore), whose permits have an id and a lease, so that
// those of a process that died come back.
//
// # Who is served
//
// Whoever Redis finds enough permits for when it is asked. A release wakes, in
// every process, the first of those that want the same number, and each that is
// served lets the next one behind it try at once; so a release of many serves
// many, and costs each process one try more than it serves. There is no order
// between processes, nor between callers that want different numbers: one that
// waits for five permits doesn't keep out those that want one, and may wait long
// beside them.
//
// # Permits of a process that died
//
// Nobody knows who has a plain permit: what a killed process had taken is gone
// until AddPermits puts it back. Where that matters use [Expirable].
//
// An observer (holdfast.WithObserver) is told of permits of an Expirable, under the
// kind "permit" and with their ids; of plain permits, which nobody holds, it isn't.
//
// # Markers
//
// Who has taken plain permits can't be read off a number. So that a request whose
// answer was lost counts once, each leaves a private key in Redis for 70 s; see
// the package script. Two keys per acquisition of a busy semaphore add up: a
// thousand a second are some 20 MB. Permits of an Expirable need none.
package rsemaphore
