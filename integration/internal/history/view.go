package history

import (
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast-go/holdfast/internal/keys"
)

// span is a time, its ends included.
type span struct{ from, to int64 }

// loss is a time in which data may have gone.
type loss struct {
	span
	scope Scope
}

// losses are the events that lose data; one that lasts is never over.
func (h *History) losses() (all []loss) {
	for _, e := range h.Events {
		if e.Loses {
			all = append(all, loss{e.span(), e.Scope})
		}
	}
	return all
}

// LostOf reports whether data of a name may have been lost since it was first used.
func (h *History) LostOf(name string) bool {
	i := slices.IndexFunc(h.Ops, func(op Op) bool { return slices.Contains(op.names(), name) })
	return i >= 0 && slices.ContainsFunc(h.losses(), func(l loss) bool {
		return h.Ops[i].Start < l.to && l.scope.concerns(name)
	})
}

func (e *Event) span() span {
	if e.End == 0 {
		return span{e.Begin, math.MaxInt64}
	}
	return span{e.Begin, e.End}
}

// concerns reports whether a name is within a scope.
func (s Scope) concerns(name string) bool {
	if len(s.Names) == 0 && len(s.Slots) == 0 {
		return true
	}
	if slices.Contains(s.Names, name) {
		return true
	}
	slot := keys.Slot(name)
	return slices.ContainsFunc(s.Slots, func(r [2]int) bool { return r[0] <= slot && slot <= r[1] })
}

// view is what is certain of one name: what its partition of the check is made of.
type view struct {
	kind   Kind
	name   string
	ops    []*Op // by Start
	losses []loss
	leases map[key]time.Duration // of holds, the longest that was asked for
	over   map[int]int64         // when processes ended by themselves
	killed map[int]int64         // when the others were killed
	long   []span                // faults that an undoing may have to sit out, by begin
	calls  []porcupine.Operation

	holds, excused int
	// All that holds were seen to last, and what is left of it outside of the windows
	// of losses.
	lasted, judged int64
}

func (v *view) add(s step, a answer, from, to int64) {
	v.calls = append(v.calls, porcupine.Operation{ClientId: len(v.calls), Input: s, Call: from, Output: a, Return: to})
}

// certain fills in calls: those that have taken effect for sure, where that leaves
// most room for the others. An acquisition counts from its end, and what gives
// back from its begin (permits, count-downs) or from the holder's last look before
// it: each of these moves makes room only, so if no order explains what is left,
// none explains what was. It takes the search from hours to moments, since hardly
// anything overlaps any more. Calls without an answer that would take something
// are left out, and those that would give have given at their begin.
func (v *view) certain() {
	switch v.kind {
	case Semaphore:
		v.permits()
	case Latch:
		v.latch()
	default:
		v.held()
	}
}

// held is for what has holders who are told of a loss.
func (v *view) held() {
	done := answer{outcome: Done}
	if v.kind == Expirable {
		for _, op := range v.ops { // all processes set the same number
			if op.Call == Set && (op.Outcome != Refused || op.End > v.end()) {
				v.add(op.step(v.name), done, op.Start, op.Start)
				break
			}
		}
	}
	for _, l := range v.losses {
		v.add(step{name: v.name, reset: true}, done, l.from, l.from)
	}
	for _, op := range v.ops {
		s := op.step(v.name)
		switch {
		case op.takes() && op.Outcome == Done:
			if slices.ContainsFunc(v.losses, func(l loss) bool { return op.Start < l.to && op.End > l.from }) {
				s.token = 0 // of before or after, who knows
			}
			for _, c := range v.certainOf(op) {
				v.add(s, done, c.from, c.from)
				end := s
				end.token, end.call = 0, Release
				if op.Call == Read {
					end.call = ReadEnd
				}
				v.add(end, done, c.to, c.to)
				s.token = 0
			}
		case op.looks() && op.Outcome == Done:
			s.loose = true
			if op.Call == Available {
				if op.Process != Judge || len(v.losses) > 0 || !v.wasSet() {
					continue // what is renewed, lost or about to be given back counts, too
				}
			}
			v.add(s, op.answer(), op.Start, op.End)
		}
	}
}

// certainOf answers when what was acquired was held for sure. A loss of data takes
// away its time and one lease more: until then the holder is told, or the hold has
// turned out to be there still. It does so only for what was, or may have been,
// acquired before the data were there again.
func (v *view) certainOf(op *Op) []span {
	if op.Seen < op.End {
		return nil
	}
	v.holds++
	all := []span{{op.End, op.Seen}}
	lease := max(op.Lease, v.leases[key{op.Process, op.ID}])
	for _, l := range v.losses {
		if op.Start >= l.to {
			continue
		}
		hole := span{l.from, math.MaxInt64}
		if l.to < math.MaxInt64-int64(lease) {
			hole.to = After(l.to, lease)
		}
		if hole.from <= op.Seen && hole.to >= op.End {
			v.excused++
		}
		all = without(all, hole)
	}
	v.lasted += op.Seen - op.End
	for _, s := range all {
		v.judged += s.to - s.from
	}
	return all
}

// without cuts a hole into spans.
func without(all []span, hole span) (left []span) {
	for _, s := range all {
		if s.from < hole.from {
			left = append(left, span{s.from, min(s.to, hole.from-1)})
		}
		if s.to > hole.to {
			left = append(left, span{max(s.from, hole.to+1), s.to})
		}
	}
	return left
}

// end answers the moment from which nothing is known of a name without holders: a
// loss of data takes all that follows.
func (v *view) end() int64 {
	end := int64(math.MaxInt64)
	for _, l := range v.losses {
		if len(v.ops) > 0 && v.ops[0].Start < l.to {
			end = min(end, l.from)
		}
	}
	return end
}

// permits is for those that have no names.
func (v *view) permits() {
	done, end := answer{outcome: Done}, v.end()
	for _, op := range v.ops {
		s := op.step(v.name)
		switch {
		case op.Start > end:
		case op.Call == Set && op.Outcome != Open && op.End > end: // a copy before the loss may have set it, whatever one after it was answered
			v.add(s, answer{outcome: Unknown}, op.Start, op.Start)
		case op.Outcome == Done && op.End > end && !op.gives(): // likewise
		case op.Call == Set && op.Outcome != Refused:
			v.add(s, op.answer(), op.Start, op.Start)
		case op.takes() && op.Outcome == Done:
			v.holds++
			v.add(s, done, op.End, op.End)
		case op.gives():
			v.add(s, done, op.Start, op.Start)
		case op.Call == Available && op.Outcome == Done && v.wasSet():
			s.slack = v.slack(op)
			v.add(s, op.answer(), op.Start, op.End)
		}
	}
}

// wasSet reports whether somebody knows that there is a number of permits. If all
// who set it left without an answer there may be none.
func (v *view) wasSet() bool {
	return slices.ContainsFunc(v.ops, func(op *Op) bool {
		return op.Call == Set && (op.Outcome == Done || op.Outcome == Refused)
	})
}

// slack is how many permits fewer than it should a look may see, because calls
// that take may have taken effect before they count, or without an answer, and
// those that give later than they count. A number that is there already is not set
// again, whoever asks for it.
func (v *view) slack(look *Op) (n int64) {
	for _, op := range v.ops {
		if op.looks() || op.Start > look.End || op.Call == Set && v.setBefore(look.Start) {
			continue
		}
		if v.settled(op) >= look.Start {
			n += op.N
		}
	}
	return n
}

// setBefore reports whether somebody knew by then that there is a number of permits.
func (v *view) setBefore(at int64) bool {
	return slices.ContainsFunc(v.ops, func(op *Op) bool {
		return op.Call == Set && (op.Outcome == Done || op.Outcome == Refused) && op.End < at
	})
}

// undoing is how long what a call has left behind takes to come to its end: a
// command's time, a lease, and some seconds to try again.
const undoing = 10 * time.Second

// settled answers from when on a call changes nothing any more. One without an
// answer, or that was refused, may have taken something that is given back behind
// the caller, and what was to be given back is so behind the caller, too: as long
// as the process lives. One that is killed in the midst of it leaves that for ever.
func (v *view) settled(op *Op) int64 {
	if op.Outcome == Done {
		return op.End
	}
	if over, ok := v.over[op.Process]; ok {
		return over
	}
	killed, ok := v.killed[op.Process]
	if !ok || op.Outcome == Open {
		return math.MaxInt64
	}
	from := op.End
	for _, f := range v.long {
		if f.from < After(from, undoing) && f.to > from {
			from = f.to
		}
	}
	if from > math.MaxInt64-int64(undoing) || After(from, undoing) > killed {
		return math.MaxInt64
	}
	return After(from, undoing)
}

// latch looks for the order of the calls that were answered. Each count-down that
// was not, or only after a loss of data, may have taken effect from its begin on.
func (v *view) latch() {
	end := v.end()
	var open []int64
	for _, op := range v.ops {
		if op.Call == CountDown && (op.Outcome != Done || op.End > end) {
			open = append(open, op.Start)
		}
	}
	for _, op := range v.ops {
		if op.Outcome != Done || op.End > end {
			continue
		}
		s := op.step(v.name)
		for _, from := range open {
			if from <= op.End {
				s.slack++
			}
		}
		if op.Call == Available {
			continue // a set without an answer may show
		}
		v.add(s, op.answer(), op.Start, op.End)
	}
}

// overlap finds two holders that are certain at one moment and exclude each other,
// for the text of a violation.
func (v *view) overlap() (a, b *Op, at int64) {
	type hold struct {
		op *Op
		span
	}
	var before []hold
	quiet := *v // certainOf counts
	for _, op := range v.ops {
		if !op.takes() || op.Outcome != Done {
			continue
		}
		for _, s := range quiet.certainOf(op) {
			for _, o := range before {
				if o.op.Owner == op.Owner || o.op.Call == Read && op.Call == Read {
					continue
				}
				if from := max(o.from, s.from); from < min(o.to, s.to) {
					return o.op, op, from
				}
			}
			before = append(before, hold{op, s})
		}
	}
	return nil, nil, 0
}
