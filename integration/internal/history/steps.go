package history

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// step is a call as the models see it.
type step struct {
	name   string
	call   Call
	flavor string
	owner  string
	n      int64
	id     int64    // of an open call, and of its undoing
	ids    []string // of permits
	token  int64    // that was granted; 0 is not looked at
	undo   bool     // the end of what an open call may have taken
	reset  bool     // the data may be gone: tokens begin anew
	loose  bool     // a look that need not be exact: see Certain
	slack  int64    // by how much less than there should be it may see
	text   string   // for people
}

// answer is what was answered.
type answer struct {
	outcome Outcome
	value   int64
}

func (a answer) open() bool { return a.outcome == Unknown || a.outcome == Open }

// never is when a call ends that doesn't.
const never = math.MaxInt64

// Exact makes of calls what porcupine searches an order for: each takes effect at
// one moment between its begin and its end. A call without an answer may do so at
// any later moment, or never; if it was to take something it is followed by its
// undoing, which is open too. It is for histories in which nothing is lost: where
// all looks have to be explained, and open calls are few.
func Exact(ops []Op) []porcupine.Operation {
	var out []porcupine.Operation
	add := func(s step, a answer, from, to int64) {
		// A client of porcupine's has one call at a time; here each has one in all.
		out = append(out, porcupine.Operation{ClientId: len(out), Input: s, Call: from, Output: a, Return: to})
	}
	for _, op := range ops {
		for _, name := range op.names() {
			s, a, to := op.step(name), op.answer(), op.End
			if a.open() {
				if op.looks() {
					continue
				}
				to, s.id = never, int64(len(out)+1)
			}
			add(s, a, op.Start, to)
			if a.open() && op.takes() {
				s.undo = true
				add(s, a, op.Start, never)
			}
		}
	}
	return out
}

func (op *Op) names() []string {
	if len(op.Names) > 0 {
		return op.Names
	}
	return []string{op.Name}
}

func (op *Op) step(name string) step {
	s := step{name: name, call: op.Call, flavor: op.Flavor, owner: op.Owner, n: op.N, ids: op.Of, token: op.Granted}
	if len(op.IDs) > 0 {
		s.ids = op.IDs
	}
	s.text = fmt.Sprintf("%d/%d", op.Process, op.ID)
	return s
}

func (op *Op) answer() answer { return answer{outcome: op.Outcome, value: op.Value} }

// takes reports whether a call takes something that is given back.
func (op *Op) takes() bool { return op.Call == Acquire || op.Call == Read }

// gives reports whether a call gives something back.
func (op *Op) gives() bool { return op.Call == Release || op.Call == ReadEnd }

// looks reports whether a call changes nothing.
func (op *Op) looks() bool {
	return op.Call == IsLocked || op.Call == HoldCount || op.Call == ReadCount || op.Call == Available
}

// byName splits a history: names have nothing to do with each other.
func byName(calls []porcupine.Operation) [][]porcupine.Operation {
	parts := make(map[string][]porcupine.Operation)
	for _, c := range calls {
		name := c.Input.(step).name
		parts[name] = append(parts[name], c)
	}
	var out [][]porcupine.Operation
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		out = append(out, parts[name])
	}
	return out
}

func describe(in, out any) string {
	s, a := in.(step), out.(answer)
	if s.reset {
		return "data lost"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", s.text, s.call)
	if s.undo {
		b.WriteString(" undone")
	}
	if s.owner != "" {
		fmt.Fprintf(&b, " by %s", s.owner[:min(8, len(s.owner))])
	}
	if s.n != 0 {
		fmt.Fprintf(&b, " %d", s.n)
	}
	if s.token != 0 {
		fmt.Fprintf(&b, " token %d", s.token)
	}
	switch {
	case a.open():
		b.WriteString(": ?")
	case a.outcome != Done:
		fmt.Fprintf(&b, ": %s", a.outcome)
	case s.looks():
		fmt.Fprintf(&b, ": %d", a.value)
		if s.slack > 0 {
			fmt.Fprintf(&b, " (or up to %d more)", s.slack)
		}
	}
	return b.String()
}

func (s step) looks() bool { op := Op{Call: s.call}; return op.looks() }
