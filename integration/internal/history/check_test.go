package history

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

// Made-up histories count in milliseconds.
const ms = int64(time.Millisecond)

// calls gives made-up calls of one kind and name their ids, and turns them into
// milliseconds.
func calls(k Kind, name string, ops ...Op) []Op {
	for i := range ops {
		op := &ops[i]
		op.Kind, op.Name, op.ID = k, name, int64(i+1)
		op.Start *= ms
		op.End *= ms
		op.Seen *= ms
		op.Queue *= ms
		op.Told *= ms
		if op.Lease == 0 {
			op.Lease = 100 * time.Millisecond
		}
	}
	return ops
}

func made(events []Event, parts ...[]Op) *History {
	h := &History{Ops: slices.Concat(parts...), Events: events}
	for i := range h.Events {
		h.Events[i].Begin *= ms
		h.Events[i].End *= ms
	}
	h.sort()
	return h
}

func lookedAt(at int64) func(*Op) { return func(op *Op) { op.Seen = at } }
func queued(at int64) func(*Op)   { return func(op *Op) { op.Queue = at } }
func by(process int) func(*Op)    { return func(op *Op) { op.Process = process } }
func about(hold int64) func(*Op)  { return func(op *Op) { op.Hold = hold } }
func bound(d time.Duration) func(*Op) {
	return func(op *Op) { op.Bound = d }
}

func lasts(d time.Duration) func(*Op) { return func(op *Op) { op.Lease = d } }

// open is a call of which only the begin was recorded.
func open(op *Op) { op.Result = Result{} }

func fixed(op *Op) { op.Fixed = true }

func told(at int64) func(*Op) { return func(op *Op) { op.Told = at } }

// gone is a release of what had been lost.
func gone(op *Op) { op.Outcome = Lost }

func failed(op *Op) { op.Outcome, op.Error = Failed, "it can't be" }

func with(t int64) func(*Op) { return func(op *Op) { op.Token = t } }

var (
	process1 = 1
	killed1  = killed1At(50)
)

func stopped(process int, from, to int64) Event {
	return Event{What: "freeze", Process: &process, Begin: from, End: to}
}

func killed1At(at int64) Event {
	return Event{What: "kill", Process: &process1, Killed: true, Begin: at}
}

// Each invariant accepts what is right and rejects what is broken. want is the kind
// of the violation; empty: none.
func TestCheck(t *testing.T) {
	lost := func(from, to int64) Event { return Event{What: "lost", Loses: true, Begin: from, End: to} }
	type events = []Event
	for name, c := range map[string]struct {
		want   string
		events events
		calls  []Op
	}{
		"lock: looks of two holders cross": {"order", nil, calls(Lock, "n",
			did(1, 2, Acquire, "a", lookedAt(10)), did(3, 4, Acquire, "b", lookedAt(5)),
		)},
		"lock: the first was not seen any more": {"", nil, calls(Lock, "n",
			did(1, 2, Acquire, "a", lookedAt(3)), did(3, 4, Acquire, "b", lookedAt(5)), did(9, 10, Release, "a", about(1)),
		)},
		"lock: stopped between grant and look": {"", nil, calls(Lock, "n",
			did(1, 20, Acquire, "a"), did(3, 4, Acquire, "b", lookedAt(30)),
		)},
		"lock: seen free while certain": {"order", nil, calls(Lock, "n",
			did(1, 2, Acquire, "a", lookedAt(10)), did(3, 4, IsLocked, "", value(0)),
		)},
		"lock: seen taken after the last look": {"", nil, calls(Lock, "n",
			did(1, 2, Acquire, "a", lookedAt(3)), did(5, 6, IsLocked, "", value(1)),
		)},
		"lock: a hold is not counted": {"order", nil, calls(Lock, "n",
			did(1, 2, Acquire, "a", lookedAt(10)), did(3, 4, Acquire, "a", lookedAt(10)), did(5, 6, HoldCount, "a", value(1)),
		)},
		"lock: a member of a multi lock is held by another": {"order", nil, calls(Lock, "n",
			did(1, 2, Acquire, "a", lookedAt(10)), did(3, 4, Acquire, "b", lookedAt(5), func(op *Op) { op.Names = []string{"m", "n"} }),
		)},

		// The window: from the loss until one lease after the data are there again.
		"loss: two hold it in the window": {"", events{lost(5, 10)}, calls(Lock, "n",
			did(1, 2, Acquire, "a", lookedAt(90)), did(11, 12, Acquire, "b", lookedAt(80)),
		)},
		"loss: granted before, told after": {"", events{lost(5, 10)}, calls(Lock, "n",
			did(1, 7, Acquire, "a", lookedAt(90)), did(11, 12, Acquire, "b", lookedAt(80)),
		)},
		"loss: two hold it before": {"order", events{lost(50, 60)}, calls(Lock, "n",
			did(1, 2, Acquire, "a", lookedAt(90)), did(3, 4, Acquire, "b", lookedAt(80)),
		)},
		"loss: two hold it after the window": {"order", events{lost(5, 10)}, calls(Lock, "n",
			did(1, 2, Acquire, "a", lookedAt(120)), did(11, 12, Acquire, "b", lookedAt(120)),
		)},
		"loss: a longer lease, a longer window": {"", events{lost(5, 10)}, calls(Lock, "n",
			did(1, 2, Acquire, "a", lookedAt(120)), did(3, 4, Extend, "a", about(1), lasts(200*time.Millisecond)), did(11, 12, Acquire, "b", lookedAt(120)),
		)},
		"loss: two acquire after it": {"order", events{lost(5, 10)}, calls(Lock, "n",
			did(11, 12, Acquire, "a", lookedAt(90)), did(13, 14, Acquire, "b", lookedAt(80)),
		)},
		"loss: it is not over": {"", events{lost(5, 0)}, calls(Lock, "n",
			did(1, 2, Acquire, "a", lookedAt(900)), did(13, 14, Acquire, "b", lookedAt(800)),
		)},
		"loss: of another name": {"order", events{{What: "lost", Loses: true, Begin: 5, End: 10, Scope: Scope{Names: []string{"m"}}}}, calls(Lock, "n",
			did(1, 2, Acquire, "a", lookedAt(90)), did(11, 12, Acquire, "b", lookedAt(80)),
		)},
		"loss: of this slot": {"", events{{What: "lost", Loses: true, Begin: 5, End: 10, Scope: Scope{Slots: [][2]int{{0, 16383}}}}}, calls(Lock, "n",
			did(1, 2, Acquire, "a", lookedAt(90)), did(11, 12, Acquire, "b", lookedAt(80)),
		)},
		"loss: of another slot": {"order", events{{What: "lost", Loses: true, Begin: 5, End: 10, Scope: Scope{Slots: [][2]int{{0, 1}}}}}, calls(Lock, "n",
			did(1, 2, Acquire, "a", lookedAt(90)), did(11, 12, Acquire, "b", lookedAt(80)),
		)},
		"loss: a fault that loses nothing": {"order", events{{What: "cut", Begin: 5, End: 10}}, calls(Lock, "n",
			did(1, 2, Acquire, "a", lookedAt(90)), did(11, 12, Acquire, "b", lookedAt(80)),
		)},
		"loss: tokens begin anew": {"", events{lost(5, 10)}, calls(Fenced, "n",
			did(1, 2, Acquire, "a", token(7), lookedAt(3)), did(11, 12, Acquire, "b", token(1), lookedAt(80)),
		)},
		"loss: tokens fall later": {"order", events{lost(5, 10)}, calls(Fenced, "n",
			did(11, 12, Acquire, "a", token(7), lookedAt(13)), did(14, 15, Acquire, "b", token(1), lookedAt(80)),
		)},
		"loss: permits are not known any more": {"", events{lost(5, 10)}, calls(Semaphore, "n",
			did(1, 2, Set, "", n(1)), did(3, 4, Acquire, "", n(1)), did(11, 12, Set, "", n(1)), did(13, 14, Acquire, "", n(1)),
		)},
		"loss: permits of a name that came later": {"order", events{lost(5, 10)}, calls(Semaphore, "n",
			did(11, 12, Set, "", n(1)), did(13, 14, Acquire, "", n(1)), did(15, 16, Acquire, "", n(1)),
		)},
		"loss: permits set before it, answered after": {"", events{lost(5, 10)}, calls(Semaphore, "n",
			did(1, 12, Set, "", n(1)), did(2, 3, Available, "", value(1)), did(3, 4, Acquire, "", n(1)),
		)},
		"loss: permits set before it, refused after": {"", events{lost(5, 10)}, calls(Semaphore, "n",
			did(1, 20, Set, "", n(5), refused), did(2, 3, Acquire, "", n(1)),
		)},
		"loss: counted down before it, answered after": {"", events{lost(5, 10)}, calls(Latch, "n",
			did(1, 2, Set, "", n(1)), did(2, 12, CountDown, ""), did(3, 4, Await, ""),
		)},
		"loss: a latch is open": {"", events{lost(5, 10)}, calls(Latch, "n",
			did(1, 2, Set, "", n(1)), did(11, 12, Await, ""),
		)},

		"fenced: a token twice": {"order", nil, calls(Fenced, "n",
			did(1, 2, Acquire, "a", token(7), lookedAt(3)), did(11, 12, Acquire, "b", token(7), lookedAt(80)),
		)},
		"rw: readers together": {"", nil, calls(RW, "n",
			did(1, 2, Read, "a", lookedAt(10)), did(3, 4, Read, "b", lookedAt(12)),
		)},
		"rw: a writer among readers": {"order", nil, calls(RW, "n",
			did(1, 2, Read, "a", lookedAt(10)), did(3, 4, Acquire, "b", lookedAt(12)),
		)},
		"rw: the writer goes on reading": {"", nil, calls(RW, "n",
			did(1, 2, Acquire, "a", lookedAt(10)), did(3, 4, Read, "a", lookedAt(30)), did(12, 13, Read, "b", lookedAt(20)),
		)},
		"rw: a writer beside one who went on reading": {"order", nil, calls(RW, "n",
			did(1, 2, Acquire, "a", lookedAt(10)), did(3, 4, Read, "a", lookedAt(30)), did(12, 13, Acquire, "b", lookedAt(20)),
		)},

		"semaphore: conserved": {"", nil, calls(Semaphore, "n",
			did(1, 2, Set, "", n(2)), did(3, 4, Acquire, "", n(2)), did(5, 6, Release, "", n(2), maybe), did(70, 71, Available, "", value(2), by(Judge)),
		)},
		"semaphore: more than there were": {"order", nil, calls(Semaphore, "n",
			did(1, 2, Set, "", n(2)), did(3, 4, Acquire, "", n(2)), did(5, 6, Release, "", n(2)), did(70, 71, Available, "", value(3), by(Judge)),
		)},
		"semaphore: a permit is gone": {"order", nil, calls(Semaphore, "n",
			did(1, 2, Set, "", n(2)), did(3, 4, Acquire, "", n(2)), did(5, 6, Release, "", n(2)), did(70, 71, Available, "", value(1), by(Judge)),
		)},
		"semaphore: a call without an answer took it, and was killed": {"", events{killed1}, calls(Semaphore, "n",
			did(1, 2, Set, "", n(2)), did(3, 0, Acquire, "", n(1), open), did(70, 71, Available, "", value(1), by(Judge)),
		)},
		"semaphore: set by nobody, as far as known": {"", nil, calls(Semaphore, "n",
			did(1, 2, Set, "", n(2), maybe), did(70, 71, Available, "", by(Judge)),
		)},
		"semaphore: taken by one that was killed": {"", events{killed1}, calls(Semaphore, "n",
			did(1, 2, Set, "", n(2)), did(3, 4, Acquire, "", n(1)), did(70, 71, Available, "", value(1), by(Judge)),
		)},
		"semaphore: one that was killed had found them set": {"order", events{killed1}, calls(Semaphore, "n",
			did(1, 2, Set, "", n(2), by(2)), did(3, 4, Set, "", n(2), refused), did(5, 6, Acquire, "", n(1), by(2)), did(7, 8, Release, "", n(1), by(2)),
			did(70, 71, Available, "", value(1), by(Judge)),
		)},
		"semaphore: seen before they were set": {"", nil, calls(Semaphore, "n",
			did(1, 10, Set, "", n(2)), did(2, 9, Set, "", n(2), refused), did(3, 4, Available, "", value(0)),
		)},
		"semaphore: not undone, and killed long after": {"order", events{killed1At(20_000)}, calls(Semaphore, "n",
			did(1, 2, Set, "", n(2)), did(3, 4, Acquire, "", n(1), maybe), did(30_000, 30_001, Available, "", value(1), by(Judge)),
		)},
		"semaphore: killed before it was undone": {"", events{killed1At(5_000)}, calls(Semaphore, "n",
			did(1, 2, Set, "", n(2)), did(3, 4, Acquire, "", n(1), refused), did(30_000, 30_001, Available, "", value(1), by(Judge)),
		)},
		"semaphore: killed before it was undone, as a fault had lasted": {"", events{{What: "cut", Begin: 2, End: 15_000}, killed1At(20_000)}, calls(Semaphore, "n",
			did(1, 2, Set, "", n(2)), did(3, 4, Acquire, "", n(1), maybe), did(30_000, 30_001, Available, "", value(1), by(Judge)),
		)},

		"expirable: one too many": {"order", nil, calls(Expirable, "n",
			did(1, 2, Set, "", n(1)), did(3, 4, Acquire, "", ids("x"), lookedAt(10)), did(5, 6, Acquire, "", ids("y"), lookedAt(10)),
		)},
		"expirable: one after the other": {"", nil, calls(Expirable, "n",
			did(1, 2, Set, "", n(1)), did(3, 4, Acquire, "", ids("x"), lookedAt(4)), did(5, 6, Acquire, "", ids("y"), lookedAt(10)),
		)},
		"expirable: not all come back": {"order", nil, calls(Expirable, "n",
			did(1, 2, Set, "", n(1)), did(3, 4, Acquire, "", ids("x"), lookedAt(4)), did(70, 71, Available, "", value(0), by(Judge)),
		)},

		"latch: opened by a call without an answer": {"", nil, calls(Latch, "n",
			did(1, 2, Set, "", n(1)), did(3, 4, CountDown, "", maybe), did(5, 6, Await, ""),
		)},
		"latch: opened by nobody": {"order", nil, calls(Latch, "n",
			did(1, 2, Set, "", n(2)), did(3, 4, CountDown, "", maybe), did(5, 6, Await, ""), did(7, 8, CountDown, ""),
		)},

		"limiter: as fast as it may": {"", nil, calls(Limiter, "n",
			did(1, 2, Set, "", n(2)), did(3, 4, Acquire, "", n(2)), did(102, 103, Acquire, "", n(2)),
		)},
		"limiter: too fast": {"rate", nil, calls(Limiter, "n",
			did(1, 2, Set, "", n(2)), did(3, 4, Acquire, "", n(2)), did(90, 91, Acquire, "", n(1)),
		)},
		"limiter: too fast, though each waited for long": {"rate", nil, calls(Limiter, "n",
			did(1, 2, Set, "", n(2)), did(3, 150, Acquire, "", n(2)), did(3, 151, Acquire, "", n(2)), did(3, 152, Acquire, "", n(2)),
		)},
		"limiter: each waited for long": {"", nil, calls(Limiter, "n",
			did(1, 2, Set, "", n(2)), did(3, 90, Acquire, "", n(2)), did(3, 150, Acquire, "", n(2)), did(3, 250, Acquire, "", n(2)),
		)},

		"fair: in order": {"", nil, calls(Fair, "n",
			did(1, 20, Acquire, "a", queued(3), lookedAt(21)), did(5, 30, Acquire, "b", lookedAt(31)),
		)},
		"fair: overtaken": {"queue", nil, calls(Fair, "n",
			did(1, 20, Acquire, "a", queued(3), lookedAt(21)), did(5, 10, Acquire, "b", lookedAt(11)),
		)},
		"fair: overtaken before the queue knew": {"", nil, calls(Fair, "n",
			did(1, 20, Acquire, "a", queued(9), lookedAt(21)), did(5, 10, Acquire, "b", lookedAt(11)),
		)},
		"fair: the grant came when its lease was over": {"", nil, calls(Fair, "n",
			did(1, 400, Acquire, "a", queued(3), lookedAt(401)), did(5, 150, Acquire, "b", lookedAt(160)),
		)},
		"fair: overtaken while others went by": {"queue", nil, calls(Fair, "n",
			did(1, 2, Acquire, "c", lookedAt(90)), did(1, 400, Acquire, "a", queued(3), lookedAt(401)), did(5, 150, Acquire, "b", lookedAt(160)),
		)},
		"fair: the holder enters again": {"", nil, calls(Fair, "n",
			did(1, 2, Acquire, "b", lookedAt(12)), did(1, 20, Acquire, "a", queued(3), lookedAt(21)), did(5, 10, Acquire, "b", lookedAt(11)),
		)},
		"fair: silent for too long": {"", nil, calls(Fair, "n",
			did(1, 16_000, Acquire, "a", queued(3), lookedAt(16_001), bound(20*time.Second)), did(5, 10, Acquire, "b", lookedAt(11)),
		)},

		"hang: a call has no end": {"hang", nil, calls(Lock, "n", did(1, 0, Acquire, "a", open))},
		"hang: its process was killed": {"", events{killed1}, calls(Lock, "n",
			did(1, 0, Acquire, "a", open),
		)},
		"hang: longer than its bound": {"hang", nil, calls(Lock, "n",
			did(1, 11_500, Acquire, "a", refused, bound(time.Second)),
		)},
		"hang: longer, but for a fault": {"", events{{What: "cut", Begin: 100, End: 5_000}}, calls(Lock, "n",
			did(1, 11_500, Acquire, "a", refused, bound(time.Second)),
		)},
		"hang: longer, whatever was noted": {"hang", events{{What: "note", Begin: 100, End: 5_000, Harmless: true}}, calls(Lock, "n",
			did(1, 11_500, Acquire, "a", refused, bound(time.Second)),
		)},
		"hang: its process was killed, long after its bound": {"hang", events{killed1At(20_000)}, calls(Lock, "n",
			did(1, 0, Acquire, "a", open, bound(time.Second)),
		)},
		"hang: its process was killed, and there was a fault before": {"", events{{What: "cut", Begin: 100, End: 15_000}, killed1At(20_000)}, calls(Lock, "n",
			did(1, 0, Acquire, "a", open, bound(time.Second)),
		)},
		"hang: longer, while another one was stopped": {"hang", events{stopped(2, 100, 5_000)}, calls(Lock, "n",
			did(1, 11_500, Acquire, "a", refused, bound(time.Second)),
		)},
		"hang: longer, but it was stopped": {"", events{stopped(1, 100, 5_000)}, calls(Lock, "n",
			did(1, 11_500, Acquire, "a", refused, bound(time.Second)),
		)},
		"hang: nobody had it, as far as known, while another one was stopped": {"", events{stopped(2, 5_000, 15_000)}, calls(Lock, "n",
			did(1, 2, Acquire, "b", lookedAt(3)), did(3, 4, Release, "b", about(1)), did(2, 20_000, Acquire, "a", lookedAt(20_001)),
		)},
		"hang: nobody had it": {"hang", nil, calls(Lock, "n",
			did(1, 2, Acquire, "b", lookedAt(3)), did(3, 4, Release, "b", about(1)), did(2, 20_000, Acquire, "a", lookedAt(20_001)),
		)},
		"hang: others had it": {"", nil, calls(Lock, "n",
			did(1, 2, Acquire, "b", lookedAt(3), lasts(15*time.Second)), did(2, 20_000, Acquire, "a", lookedAt(20_001)),
		)},
		"unexplained: no answer": {"unexplained", events{{What: "cut", Begin: 1_000, End: 2_000}, stopped(2, 4_000, 6_000)}, calls(Lock, "n",
			did(1, 2, IsLocked, ""), did(5_000, 5_100, IsLocked, "", unanswered),
		)},
		"unexplained: no answer shortly after a fault": {"", events{{What: "cut", Begin: 1_000, End: 4_000}}, calls(Lock, "n",
			did(1, 2, IsLocked, ""), did(5_000, 5_100, IsLocked, "", unanswered),
		)},
		"unexplained: no answer for one that got no time": {"", events{{What: Stall, Harmless: true, Begin: 5_010, End: 5_080}}, calls(Lock, "n",
			did(1, 2, IsLocked, ""), did(5_000, 5_100, IsLocked, "", unanswered),
		)},
		"unexplained: no answer, whatever was noted": {"unexplained", events{{What: "note", Harmless: true, Begin: 5_010, End: 5_080}}, calls(Lock, "n",
			did(1, 2, IsLocked, ""), did(5_000, 5_100, IsLocked, "", unanswered),
		)},
		"unexplained: no answer for one that has just begun": {"", nil, calls(Lock, "n",
			did(1, 2, IsLocked, ""), did(500, 600, IsLocked, "", unanswered),
		)},
		"unexplained: no answer for one that has left": {"", nil, calls(Lock, "n",
			did(1, 2, IsLocked, ""), did(5_000, 5_100, Acquire, "a", maybe),
		)},
		"unexplained: a loss": {"unexplained", events{{What: "cut", Begin: 1_000, End: 2_000}}, calls(Lock, "n",
			did(1, 2, IsLocked, ""), did(5_000, 5_001, Acquire, "a", lookedAt(5_020), told(5_050)),
		)},
		"unexplained: a loss that was told by its release": {"unexplained", nil, calls(Lock, "n",
			did(1, 2, IsLocked, ""), did(5_000, 5_001, Acquire, "a", lookedAt(5_020)), did(5_050, 5_060, Release, "a", about(2), gone),
		)},
		"unexplained: a loss a lease after a fault": {"", events{{What: "cut", Begin: 1_000, End: 3_000}}, calls(Lock, "n",
			did(1, 2, IsLocked, ""), did(2_000, 2_001, Acquire, "a", lookedAt(5_020), told(5_050), lasts(time.Second)),
		)},
		"unexplained: a lease that nobody renewed": {"", nil, calls(Lock, "n",
			did(1, 2, IsLocked, ""), did(5_000, 5_001, Acquire, "a", lookedAt(5_050), told(5_099), fixed), did(5_100, 5_101, Release, "a", about(2), gone),
		)},
		"unexplained: half a lease that nobody renewed": {"unexplained", nil, calls(Lock, "n",
			did(1, 2, IsLocked, ""), did(5_000, 5_001, Acquire, "a", lookedAt(5_040), told(5_050), fixed),
		)},
		"unexplained: entered again, and the lease of the first hold ran out": {"", nil, calls(Lock, "n",
			did(1, 2, IsLocked, ""), did(5_000, 5_001, Acquire, "a", lookedAt(5_050), told(5_099), fixed), did(5_080, 5_081, Acquire, "a", lookedAt(5_085), told(5_099)),
		)},
		"error: one that nothing explains": {"error", nil, calls(Lock, "n", did(1, 2, Acquire, "a", failed))},
	} {
		t.Run(name, func(t *testing.T) {
			v := Check(made(c.events, c.calls), Options{})
			if c.want == "" {
				require.Empty(t, v.Violations)
				return
			}
			require.Len(t, v.Violations, 1)
			require.Equal(t, c.want, v.Violations[0].Kind, v.Violations[0])
		})
	}
}

// A write that a newer token kept out comes from a hold that was over.
func TestCheckOfTheGuardedResource(t *testing.T) {
	hold := func(last int64) []Op { return calls(Fenced, "n", did(1, 2, Acquire, "a", token(1), lookedAt(last))) }
	write := func(mods ...func(*Op)) Op { return did(5, 6, Write, "a", append(mods, about(1), with(1))...) }
	check := func(events []Event, last int64, writes ...Op) []Violation {
		return Check(made(events, hold(last), calls(Register, "r", writes...)), Options{}).Violations
	}
	require.Empty(t, check(nil, 10, write()))
	require.Empty(t, check(nil, 4, write(refused)))
	require.Len(t, check(nil, 10, write(refused)), 1)
	require.Empty(t, check([]Event{{Loses: true, Begin: 3, End: 4}}, 10, write(refused)))
	require.Len(t, check([]Event{{Loses: true, Begin: -2, End: -1}}, 10, write(refused)), 1, "before the name was used")
	require.Empty(t, check(nil, 10, write(), write()))
	other := write()
	other.Owner = "b"
	require.Len(t, check(nil, 10, write(), other), 1)
}

// A name that came after a loss of data, or lies elsewhere, has lost nothing.
func TestLostOf(t *testing.T) {
	h := made([]Event{{Loses: true, Begin: 5, End: 10, Scope: Scope{Names: []string{"n"}}}, {What: "cut", Begin: 20, End: 30}},
		calls(Lock, "n", did(1, 2, Acquire, "a")), calls(Lock, "m", did(1, 2, Acquire, "a")))
	require.True(t, h.LostOf("n"))
	require.False(t, h.LostOf("m"))
	require.False(t, h.LostOf("nobody's"))
	require.False(t, made([]Event{{Loses: true, Begin: 5, End: 10}}, calls(Lock, "n", did(10, 12, Acquire, "a"))).LostOf("n"))
}

// What processes say of themselves counts.
func TestCheckOfReports(t *testing.T) {
	h := &History{Reports: []Report{{Process: 1}, {Process: 2, Leaks: "a goroutine"}, {Process: 3, Error: "a call that didn't end"}}}
	v := Check(h, Options{})
	require.Len(t, v.Violations, 2)
	require.Equal(t, "leak", v.Violations[0].Kind)
	require.Equal(t, "process", v.Violations[1].Kind)
}

// A search that is over without a result has failed.
func TestCheckThatTakesTooLong(t *testing.T) {
	ops := []Op{did(1, 2, Set, "", n(40))}
	for range 39 {
		ops = append(ops, did(3, 100, CountDown, ""))
	}
	ops = append(ops, did(101, 102, Await, ""))
	v := Check(made(nil, calls(Latch, "n", ops...)), Options{Limit: 50 * time.Millisecond})
	require.Len(t, v.Violations, 1)
	require.Equal(t, "undecided", v.Violations[0].Kind)
}

// The artifacts of a failure: the verdict, the history, and a picture of the name.
func TestArtifacts(t *testing.T) {
	h := made([]Event{killed1}, calls(Lock, "a:b/c",
		did(1, 2, Acquire, "a", lookedAt(10)), did(3, 4, Acquire, "b", lookedAt(5)), did(5, 0, Acquire, "c", open),
	))
	h.Reports = []Report{{Process: 2, Calls: map[string]int{"done": 2}}}
	v := Check(h, Options{})
	require.NotEmpty(t, v.Violations)
	dir := filepath.Join(t.TempDir(), "verdict")
	require.NoError(t, v.Save(dir))
	again, err := Load(filepath.Join(dir, "history.jsonl"))
	require.NoError(t, err)
	require.Equal(t, h, again)
	text, err := os.ReadFile(filepath.Join(dir, "verdict.txt"))
	require.NoError(t, err)
	require.Contains(t, string(text), "both held it")
	require.Contains(t, string(text), "FAILED: 1 violations: 2 calls (1 open)")
	html, err := os.ReadFile(filepath.Join(dir, "a_b_c.html"))
	require.NoError(t, err)
	require.Contains(t, string(html), "acquire by a")
}

// Of a hold of 98 ms a loss takes 5 and a lease; a hold that began after it has all of
// its time judged.
func TestShareOfWhatIsJudged(t *testing.T) {
	h := made([]Event{{What: "lost", Loses: true, Begin: 15, End: 20}}, calls(Lock, "n",
		did(1, 2, Acquire, "a", lookedAt(100), lasts(40*time.Millisecond)),
		did(101, 102, Acquire, "b", lookedAt(104)),
	))
	v := Check(h, Options{})
	require.Equal(t, 2, v.Holds)
	require.Equal(t, 1, v.Excused)
	require.Equal(t, "55 %", v.Share()) // 98 and 2 less 45
	require.Equal(t, "none", Verdict{}.Share())
}

// What Check looks at instead of the whole history says the same: where all looks
// are left out, an order explains the one if and only if one explains the other.
func TestCertainSaysTheSame(t *testing.T) {
	wrong := 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		kind := []Kind{Lock, RW, Semaphore}[seed%3]
		ops := anyHistory(r, kind)
		exact := porcupine.CheckOperationsTimeout(models[kind], Exact(ops), time.Minute)
		v := &view{kind: kind, name: "n"}
		for i := range ops {
			v.ops = append(v.ops, &ops[i])
		}
		v.certain()
		require.Equal(t, exact, porcupine.CheckOperationsTimeout(models[kind], v.calls, time.Minute), "seed %d: %v", seed, ops)
		if exact == porcupine.Illegal {
			wrong++
		}
	}
	t.Logf("%d of 3000 histories were wrong", wrong)
	require.Greater(t, wrong, 500)
	require.Less(t, wrong, 2500)
}

// anyHistory makes up holds of some owners, right or wrong.
func anyHistory(r *rand.Rand, k Kind) []Op {
	var ops []Op
	if k == Semaphore {
		ops = append(ops, did(0, 1, Set, "", n(2)))
	}
	for i := range 4 + r.IntN(3) {
		owner := string(rune('a' + i))
		from := 2 + r.Int64N(60)
		got := from + 1 + r.Int64N(20)
		last := got + r.Int64N(8)
		take := did(from, got, Acquire, owner, n(1), lookedAt(last))
		give := did(last, last+1+r.Int64N(20), Release, owner, n(1))
		if k == RW && r.IntN(2) == 0 {
			take.Call, give.Call = Read, ReadEnd
		}
		switch r.IntN(8) {
		case 0:
			give.Outcome = Unknown
		case 1:
			take.Outcome = Unknown
		case 2:
			take.Outcome = Refused
		}
		ops = append(ops, take)
		if take.Outcome == Done {
			ops = append(ops, give)
		}
	}
	slices.SortStableFunc(ops, func(a, b Op) int { return compare(a.Start, b.Start) })
	for i := range ops {
		ops[i].Kind, ops[i].ID = k, int64(i+1)
	}
	return ops
}
