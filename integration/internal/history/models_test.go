package history

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

// did is one call of a made-up history, from and to in any unit.
func did(from, to int64, c Call, owner string, mods ...func(*Op)) Op {
	op := Op{Process: 1, Name: "n", Call: c, Owner: owner, Start: from, Result: Result{End: to, Outcome: Done}}
	for _, m := range mods {
		m(&op)
	}
	return op
}

func n(n int64) func(*Op)         { return func(op *Op) { op.N = n } }
func value(n int64) func(*Op)     { return func(op *Op) { op.Value = n } }
func token(n int64) func(*Op)     { return func(op *Op) { op.Granted = n } }
func ids(ids ...string) func(*Op) { return func(op *Op) { op.IDs, op.N = ids, int64(len(ids)) } }
func of(ids ...string) func(*Op)  { return func(op *Op) { op.Of = ids } }
func once(op *Op)                 { op.Flavor = NonReentrant }
func refused(op *Op)              { op.Outcome = Refused }

// maybe is a call without an answer, whose caller had left.
func maybe(op *Op) { op.Outcome, op.Left = Unknown, true }

// unanswered is one whose caller had not.
func unanswered(op *Op) { op.Outcome = Unknown }

// A model that accepts everything would prove nothing: each accepts what is
// right, and rejects what is broken.
func TestModelsTellRightFromWrong(t *testing.T) {
	type calls = []Op
	for name, c := range map[string]struct {
		kind  Kind
		right bool
		calls calls
	}{
		"lock: one after the other": {Lock, true, calls{
			did(1, 2, Acquire, "a"), did(3, 4, Release, "a"), did(3, 9, Acquire, "b"),
		}},
		"lock: two hold it": {Lock, false, calls{
			did(1, 2, Acquire, "a"), did(3, 4, Acquire, "b"), did(5, 6, Release, "a"),
		}},
		"lock: granted before the unlock began": {Lock, false, calls{
			did(1, 2, Acquire, "a"), did(3, 4, Acquire, "b"), did(5, 6, Release, "a"), did(7, 8, Release, "b"),
		}},
		"lock: an inner unlock frees it": {Lock, false, calls{
			did(1, 2, Acquire, "a"), did(3, 4, Acquire, "a"), did(5, 6, Release, "a"), did(7, 8, Acquire, "b"),
		}},
		"lock: an open call took it, and gave it back": {Lock, true, calls{
			did(1, 2, Acquire, "a", maybe), did(3, 4, IsLocked, "", value(1)), did(5, 6, Acquire, "b"),
		}},
		"lock: an open unlock freed it": {Lock, true, calls{
			did(1, 2, Acquire, "a"), did(3, 4, Release, "a", maybe), did(5, 6, Acquire, "b"),
		}},
		"lock: seen free while held": {Lock, false, calls{
			did(1, 2, Acquire, "a"), did(3, 4, IsLocked, "", value(0)), did(5, 6, Release, "a"),
		}},
		"lock: a wrong count": {Lock, false, calls{
			did(1, 2, Acquire, "a"), did(3, 4, HoldCount, "a", value(2)),
		}},
		"lock: refused although free":    {Lock, true, calls{did(1, 2, Acquire, "a", refused)}},
		"lock: given back by a stranger": {Lock, false, calls{did(1, 2, Acquire, "a"), did(3, 4, Release, "b")}},
		"lock: entered again":            {Lock, true, calls{did(1, 2, Acquire, "a"), did(3, 4, Acquire, "a")}},
		"lock: entered again, although not re-entrant": {Lock, false, calls{
			did(1, 2, Acquire, "a", once), did(3, 4, Acquire, "a", once),
		}},

		"fenced: tokens rise": {Fenced, true, calls{
			did(1, 2, Acquire, "a", token(3)), did(3, 4, Release, "a"), did(5, 6, Acquire, "b", token(5)),
		}},
		"fenced: a re-entry has the same token": {Fenced, true, calls{
			did(1, 2, Acquire, "a", token(3)), did(3, 4, Acquire, "a", token(3)),
		}},
		"fenced: two owners have one token": {Fenced, false, calls{
			did(1, 2, Acquire, "a", token(3)), did(3, 4, Release, "a"), did(5, 6, Acquire, "b", token(3)),
		}},
		"fenced: a token falls": {Fenced, false, calls{
			did(1, 2, Acquire, "a", token(3)), did(3, 4, Release, "a"), did(5, 6, Acquire, "b", token(2)),
		}},
		"fenced: one in between took a token": {Fenced, true, calls{
			did(1, 9, Acquire, "b", token(2)), did(1, 2, Acquire, "a", token(1)), did(3, 4, Release, "a"),
		}},

		"rw: two readers": {RW, true, calls{
			did(1, 2, Read, "a"), did(3, 4, Read, "b"), did(5, 6, ReadEnd, "a"),
		}},
		"rw: a writer beside a reader": {RW, false, calls{
			did(1, 2, Read, "a"), did(3, 4, Acquire, "b"), did(5, 6, ReadEnd, "a"),
		}},
		"rw: a reader beside a writer": {RW, false, calls{
			did(1, 2, Acquire, "a"), did(3, 4, Read, "b"), did(5, 6, Release, "a"),
		}},
		"rw: a reader becomes the writer": {RW, false, calls{
			did(1, 2, Read, "a"), did(3, 4, Acquire, "a"),
		}},
		"rw: the writer reads, and stays": {RW, true, calls{
			did(1, 2, Acquire, "a"), did(3, 4, Read, "a"), did(5, 6, Release, "a"), did(7, 8, Read, "b"),
		}},
		"rw: a writer gets in beside one who stayed to read": {RW, false, calls{
			did(1, 2, Acquire, "a"), did(3, 4, Read, "a"), did(5, 6, Release, "a"), did(7, 8, Acquire, "b"),
		}},
		"rw: an open reader was undone": {RW, true, calls{
			did(1, 2, Read, "a", maybe), did(3, 4, ReadCount, "a", value(1)), did(5, 6, Acquire, "b"),
		}},

		"semaphore: all permits": {Semaphore, true, calls{
			did(1, 2, Set, "", n(2)), did(3, 4, Acquire, "", n(2)), did(5, 6, Available, ""),
		}},
		"semaphore: set by a call without an answer": {Semaphore, true, calls{
			did(1, 2, Set, "", n(2), maybe), did(3, 4, Acquire, "", n(2)),
		}},
		"semaphore: before it was set": {Semaphore, false, calls{
			did(1, 2, Acquire, "", n(2)), did(3, 4, Set, "", n(2)),
		}},
		"semaphore: set twice": {Semaphore, false, calls{
			did(1, 2, Set, "", n(2)), did(3, 4, Set, "", n(2)),
		}},
		"semaphore: more than there are": {Semaphore, false, calls{
			did(1, 2, Set, "", n(2)), did(3, 4, Acquire, "", n(2)), did(5, 6, Acquire, "", n(1)),
		}},
		"semaphore: a permit is lost": {Semaphore, false, calls{
			did(1, 2, Set, "", n(2)), did(3, 4, Acquire, "", n(1)), did(5, 6, Release, "", n(1)), did(7, 8, Available, "", value(1)),
		}},
		"semaphore: released twice": {Semaphore, false, calls{
			did(1, 2, Set, "", n(2)), did(3, 4, Acquire, "", n(1)), did(5, 6, Release, "", n(1)), did(7, 8, Available, "", value(3)),
		}},
		"semaphore: an open call took a permit, and gave it back": {Semaphore, true, calls{
			did(1, 2, Set, "", n(1)), did(3, 4, Acquire, "", n(1), maybe), did(5, 6, Available, ""), did(7, 8, Available, "", value(1)),
		}},
		"semaphore: an open call gave back what it never took": {Semaphore, false, calls{
			did(1, 2, Set, "", n(1)), did(3, 4, Acquire, "", n(1), maybe), did(5, 6, Available, "", value(2)),
		}},

		"expirable: given back by id": {Expirable, true, calls{
			did(1, 2, Set, "", n(2)), did(3, 4, Acquire, "a", ids("x", "y")), did(5, 6, Release, "", of("x")), did(7, 8, Acquire, "b", ids("z")),
		}},
		"expirable: one too many": {Expirable, false, calls{
			did(1, 2, Set, "", n(2)), did(3, 4, Acquire, "a", ids("x", "y")), did(7, 8, Acquire, "b", ids("z")),
		}},
		"expirable: one permit twice": {Expirable, false, calls{
			did(1, 2, Set, "", n(2)), did(3, 4, Acquire, "a", ids("x")), did(7, 8, Acquire, "b", ids("x")),
		}},
		"expirable: given back twice": {Expirable, false, calls{
			did(1, 2, Set, "", n(2)), did(3, 4, Acquire, "a", ids("x")), did(5, 6, Release, "", of("x")), did(7, 8, Release, "", of("x")),
		}},
		"expirable: a permit vanished": {Expirable, false, calls{
			did(1, 2, Set, "", n(2)), did(3, 4, Acquire, "a", ids("x")), did(5, 6, Release, "", of("x")), did(7, 8, Available, "", value(1)),
		}},
		"expirable: an open call gave it back": {Expirable, true, calls{
			did(1, 2, Set, "", n(1)), did(3, 4, Acquire, "a", ids("x")), did(5, 6, Release, "", of("x"), maybe), did(7, 8, Acquire, "b", ids("z")),
		}},

		"latch: opened by the last": {Latch, true, calls{
			did(1, 2, Set, "", n(2)), did(3, 20, Await, ""), did(5, 6, CountDown, ""), did(7, 8, CountDown, ""),
		}},
		"latch: opened too early": {Latch, false, calls{
			did(1, 2, Set, "", n(2)), did(3, 6, Await, ""), did(5, 6, CountDown, ""), did(7, 8, CountDown, ""),
		}},
		"latch: set while it counts": {Latch, false, calls{
			did(1, 2, Set, "", n(2)), did(3, 4, Set, "", n(2)),
		}},
		"latch: counted down twice by one call": {Latch, false, calls{
			did(1, 2, Set, "", n(2)), did(3, 4, CountDown, ""), did(5, 6, Available, "", value(0)),
		}},
		"latch: an open call counted down, late": {Latch, true, calls{
			did(1, 2, Set, "", n(1)), did(3, 4, CountDown, "", maybe), did(5, 6, Available, "", value(1)), did(7, 8, Await, ""),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m, ok := Model(c.kind)
			require.True(t, ok)
			want := porcupine.Illegal
			if c.right {
				want = porcupine.Ok
			}
			require.Equal(t, want, porcupine.CheckOperationsTimeout(m, Exact(c.calls), time.Minute))
		})
	}
}
