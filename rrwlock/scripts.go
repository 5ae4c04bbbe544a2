package rrwlock

import (
	_ "embed"
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/script"
)

const (
	// A place of a waiter counts for so long in Redis, and is renewed by asking
	// again well before. Only the first writer of a client asks; readers all do.
	writerPlace, writerAsks = 5 * time.Second, 1500 * time.Millisecond
	readerPlace, readerAsks = 12 * time.Second, 4 * time.Second
	// readersTurn is how long the next writer waits for the readers that the last
	// one kept out. They are told at once; it is for those that have died.
	readersTurn = time.Second
)

var (
	//go:embed readers.lua
	readersSrc string
	//go:embed acquire_read.lua
	acquireReadSrc string
	//go:embed acquire_write.lua
	acquireWriteSrc string
	//go:embed release_read.lua
	releaseReadSrc string
	//go:embed release_write.lua
	releaseWriteSrc string
	//go:embed extend.lua
	extendSrc string
	//go:embed force.lua
	forceSrc string
	//go:embed transfer.lua
	transferSrc string
	//go:embed leave.lua
	leaveSrc string
	//go:embed renew.lua
	renewSrc string
	//go:embed held.lua
	heldSrc string

	acquireReadScript  = script.Mutating("acquire_read.lua", readersSrc+acquireReadSrc)
	acquireWriteScript = script.Mutating("acquire_write.lua", readersSrc+acquireWriteSrc)
	releaseReadScript  = script.Mutating("release_read.lua", readersSrc+releaseReadSrc)
	releaseWriteScript = script.Mutating("release_write.lua", readersSrc+releaseWriteSrc)
	extendScript       = script.Mutating("extend.lua", readersSrc+extendSrc)
	forceScript        = script.Mutating("force.lua", readersSrc+forceSrc)
	transferScript     = script.Mutating("transfer.lua", readersSrc+transferSrc)
	leaveScript        = script.Mutating("leave.lua", readersSrc+leaveSrc)
	renewScript        = script.New("renew.lua", readersSrc+renewSrc)
	heldScript         = script.New("held.lua", readersSrc+heldSrc)
)

// renewal is shared by readers and writers.
var renewal = &lease.Renewal{Call: func(ks, fields []string, d time.Duration) script.Call {
	argv := make([]any, 0, 1+len(fields))
	argv = append(argv, d.Milliseconds())
	for _, f := range fields {
		argv = append(argv, f)
	}
	return script.NewCall(renewScript, ks, argv...)
}}

// Arguments that the usual call leaves out; see the acquire and release scripts.
var (
	firstHold     = []any{1}    // count
	lastReadHold  = []any{""}   // leases
	lastWriteHold = []any{0, 0} // left, lease
)
