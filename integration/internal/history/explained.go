package history

import (
	"slices"
	"strings"
	"time"
)

// aftermath is how long a fault that is over may still be felt: connections are made
// anew, and requests sent again. A process that has just begun has as long to connect.
const aftermath = 2 * time.Second

// errors looks for calls without an answer, and for losses, that no fault explains: one
// of the servers, the links or the process itself, or a time in which it got none from
// its machine; from aftermath before the call began, or a lease and aftermath before the
// loss was told. Besides, callers leave, and a lease that nobody renews runs out.
func (c *check) errors() {
	began := make(map[int]int64)
	holds := make(map[key]*Op)
	type entry struct {
		process int
		owner   string
	}
	first := make(map[entry]int64) // hold of an owner that was lost
	leases := c.leases()
	for i := range c.history.Ops {
		op := &c.history.Ops[i]
		if at, ok := began[op.Process]; !ok || op.Start < at {
			began[op.Process] = op.Start
		}
		if !op.takes() {
			continue
		}
		holds[key{op.Process, op.ID}] = op
		if e := (entry{op.Process, op.Owner}); op.Told != 0 && op.Owner != "" {
			if at, ok := first[e]; !ok || op.Start < at {
				first[e] = op.Start
			}
		}
	}
	lost := func(hold *Op, at int64) {
		lease := max(hold.Lease, leases[key{hold.Process, hold.ID}])
		switch outer, ok := first[entry{hold.Process, hold.Owner}]; {
		case ok && outer < hold.Start: // the context of this hold is a child of that one's
		case hold.Fixed && at >= After(hold.Start, hold.Lease-hold.Lease/50-rounding):
		case c.explained(hold.Process, began, max(hold.Start, After(at, -lease)), at):
		default:
			c.violated("unexplained", strings.Join(hold.names(), ", "), "%s: lost at %d, and there was no fault: %s", hold, at, hold.Cause)
		}
	}
	for i := range c.history.Ops {
		op := &c.history.Ops[i]
		if op.Process == Judge {
			continue
		}
		if op.Told != 0 {
			lost(op, op.Told)
		}
		switch hold := holds[key{op.Process, op.Hold}]; {
		case op.Outcome == Unknown && !op.Left && !c.explained(op.Process, began, op.Start, op.End):
			c.violated("unexplained", strings.Join(op.names(), ", "), "%s: %s, and there was no fault", op, op.Error)
		case op.Outcome == Lost && hold != nil && hold.Told == 0:
			lost(hold, op.End)
		}
	}
}

// explained reports whether within a time, or shortly before it, a process met a fault
// or had just begun.
func (c *check) explained(process int, began map[int]int64, from, to int64) bool {
	from = After(from, -aftermath)
	return from < began[process] || slices.ContainsFunc(c.history.Events, func(e Event) bool {
		s := e.span()
		return !e.Killed && (!e.Harmless || e.What == Stall) && (e.Process == nil || *e.Process == process) && s.from <= to && s.to >= from
	})
}

// leases are the longest that holds were extended by.
func (c *check) leases() map[key]time.Duration {
	all := make(map[key]time.Duration)
	for i := range c.history.Ops {
		if op := &c.history.Ops[i]; op.Call == Extend {
			k := key{op.Process, op.Hold}
			all[k] = max(all[k], op.Lease)
		}
	}
	return all
}
