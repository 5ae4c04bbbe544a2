package history

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// rounding is by how much a server that counts whole milliseconds may be off.
const rounding = 2 * time.Millisecond

// spans is over how many intervals of a limiter's rate the sum of grants is looked at:
// a grant that waited for longer than one counts in a longer one only.
const spans = 20

// drift is by which part of a time the server's clock, which may be slewed, may be
// faster than that of the records.
const drift = 1000

// rates looks for a time as long as some of the rate's intervals in which more was
// granted than the rate allows in so many. What lost data have made the limiter
// forget is not judged.
func (c *check) rates(v *view) {
	var n int64 // of the rate
	var per time.Duration
	end := v.end()
	var grants []*Op
	for _, op := range v.ops {
		switch {
		case op.Call == Set: // all processes set the same rate
			n, per = op.N, op.Lease
		case op.Call == Acquire && op.Outcome == Done && op.End <= end:
			grants = append(grants, op)
		}
	}
	if n == 0 {
		return
	}
	slices.SortFunc(grants, func(a, b *Op) int { return cmp.Compare(a.End, b.End) })
	for _, first := range grants {
		from := first.Start
		var within int64 // all that began and ended within a time was granted in it
		rest := grants
		for k := range int64(spans) {
			span := time.Duration(k+1) * per
			to := After(from, span-span/drift-rounding)
			for ; len(rest) > 0 && rest[0].End < to; rest = rest[1:] {
				if rest[0].Start >= from {
					within += rest[0].N
				}
			}
			if within > (k+1)*n {
				c.violated("rate", v.name, "%d permits were granted within %v from %d on, where the rate allows %d", within, span, from, (k+1)*n)
				return
			}
		}
	}
}

// fences looks at the writes to a guarded resource. One that was refused because a
// newer token had been there comes from a hold that was over; no two owners have
// the same token. Where data were lost tokens may have fallen: then they are to be
// raised before the lock is used again, which the workers don't do.
func (c *check) fences(v *view) {
	holds := make(map[key]*Op)
	for i := range c.history.Ops {
		if op := &c.history.Ops[i]; op.Kind == Fenced && op.takes() {
			holds[key{op.Process, op.ID}] = op
		}
	}
	losses := c.history.losses()
	began := make(map[string]int64) // what was lost before a name was used isn't its
	for i := range c.history.Ops {
		if op := &c.history.Ops[i]; op.Kind == Fenced {
			if first, ok := began[op.Name]; !ok || op.Start < first {
				began[op.Name] = op.Start
			}
		}
	}
	owners := make(map[int64]*Op)
	for _, op := range v.ops {
		hold := holds[key{op.Process, op.Hold}]
		if op.Call != Write || hold == nil {
			continue
		}
		fell := slices.ContainsFunc(losses, func(l loss) bool {
			return l.from <= op.End && l.to > began[hold.Name] && l.scope.concerns(hold.Name)
		})
		if fell {
			continue
		}
		switch op.Outcome {
		case Done:
			if other := owners[op.Token]; other != nil && other.Owner != op.Owner {
				c.violated("fence", hold.Name, "two owners have written with token %d: %s, and %s", op.Token, other, op)
			}
			owners[op.Token] = op
		case Refused:
			if hold.Seen > op.End {
				c.violated("fence", hold.Name, "%s: a newer holder had written, and yet the hold was certain until %d", op, hold.Seen)
			}
		}
	}
}

// order looks at the queue of a fair lock: who was seen in it gets in before all
// who asked later, if it is served at all, and was not silent for so long that its
// place may have been lost. Who holds the lock may enter it again. A grant of which
// the waiter learns only when its lease is over is worth nothing, and costs the place:
// nobody else has the lock then for as long as that lease.
func (c *check) order(v *view) {
	enters := make(map[*Op]bool) // by one who is in, as far as known
	owners := make(map[string]bool)
	for _, op := range v.ops {
		if op.takes() && op.Outcome == Done {
			enters[op], owners[op.Owner] = owners[op.Owner], true
		}
	}
	for i, first := range v.ops {
		if first.Queue == 0 || first.Outcome != Done || time.Duration(first.End-first.Start) > c.Beat-rounding {
			continue
		}
		if slices.ContainsFunc(v.losses, func(l loss) bool { return l.from <= first.End && l.to >= first.Start }) {
			continue
		}
		for _, later := range v.ops[i:] {
			if later.Start <= first.Queue || !later.takes() || later.Outcome != Done || enters[later] || later.Owner == first.Owner || later.Start > first.End {
				continue
			}
			c.verdict.Queued++
			if later.End < first.End && !v.idle(first.Queue, later.End, first.Lease-rounding) {
				c.violated("queue", v.name, "%s: was in the queue at %d, and yet was overtaken by %s", first, first.Queue, later)
			}
		}
	}
}

// idle reports whether within a time nobody is known to have had it for as long as d.
func (v *view) idle(from, to int64, d time.Duration) bool {
	var known []span
	for _, op := range v.ops {
		if op.takes() && op.Outcome == Done {
			known = append(known, span{op.End, max(op.End, op.Seen)})
		}
	}
	slices.SortFunc(known, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	for _, k := range append(known, span{to, to}) {
		if time.Duration(min(k.from, to)-from) >= d {
			return true
		}
		from = max(from, k.to)
	}
	return false
}

// hangs looks for calls that took longer than they may: their bound, and the grace,
// from their begin or from the end of the last fault that they met. One without a
// bound of its own waits for others to give something back: it hangs if nobody can
// have held that for as long as the grace, without a fault.
func (c *check) hangs(v *view) {
	var held []span
	for _, op := range v.ops {
		killed := c.killed(op.Process)
		if op.Outcome == Open {
			if killed == 0 {
				c.violated("hang", v.name, "%s: it has no end, although its process was not killed", op)
			} else if late := time.Duration(killed - c.calm(op, op.Start, killed)); op.Bound > 0 && late > op.Bound+c.Grace {
				c.violated("hang", v.name, "%s: it may take %v, and had no end when its process was killed, %v from the end of the last fault on", op, op.Bound, late)
			}
			continue
		}
		if op.Bound > 0 {
			if late := time.Duration(op.End - c.calm(op, op.Start, op.End)); late > op.Bound+c.Grace {
				c.violated("hang", v.name, "%s: it may take %v, and took %v from the end of the last fault on", op, op.Bound, late)
			}
			continue
		}
		if op.looks() || op.gives() || op.Kind == Latch || op.Kind == Limiter {
			continue
		}
		if held == nil {
			held = c.held(v)
		}
		from := op.Start
		for _, h := range append(held, span{op.End, op.End}) {
			if h.to <= from {
				continue
			}
			if gap := min(h.from, op.End); gap > from && time.Duration(gap-c.calm(op, from, gap)) > c.Grace {
				c.violated("hang", v.name, "%s: nobody held it from %d to %d", op, from, gap)
				break
			}
			from = max(from, h.to)
			if from >= op.End {
				break
			}
		}
	}
}

// calm answers from when on, within a time, there was no fault any more that a call
// meets. One that has a bound doesn't depend on what other processes hold, and so not
// on whether these are stopped.
func (c *check) calm(op *Op, from, to int64) int64 {
	for _, e := range c.history.Events {
		if op.Bound > 0 && e.Process != nil && *e.Process != op.Process {
			continue
		}
		if s := e.span(); !e.Harmless && !e.Killed && s.from < to && s.to > from {
			from = max(from, min(s.to, to))
		}
	}
	return from
}

// killed answers when a process was killed; 0 if it was not.
func (c *check) killed(process int) int64 {
	for _, e := range c.history.Events {
		if e.Killed && e.Process != nil && *e.Process == process {
			return e.Begin
		}
	}
	return 0
}

// held answers when a name may have been held, by order of begin: from half a grace
// before the end of each call that took it (a grant that takes longer to be told has
// met a fault), or from the begin of one that may have, until one lease after it was
// given back or known of.
func (c *check) held(v *view) []span {
	given := make(map[key]int64)
	for _, op := range v.ops {
		if op.gives() && op.Outcome != Open {
			given[key{op.Process, op.Hold}] = op.End
		}
	}
	var all []span
	for _, op := range v.ops {
		if !op.takes() || op.Outcome == Refused {
			continue
		}
		lease := max(op.Lease, v.leases[key{op.Process, op.ID}])
		s := span{op.Start, given[key{op.Process, op.ID}]}
		if op.Outcome == Done {
			s.from = max(op.Start, op.End-int64(c.Grace/2))
		}
		if s.to == 0 || op.Outcome != Done {
			s.to = max(op.End, op.Seen, c.killed(op.Process))
		}
		if s.to > math.MaxInt64-int64(lease) {
			s.to = math.MaxInt64 - int64(lease)
		}
		s.to = After(s.to, lease) // a release without an answer leaves that to the lease
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	return all
}
