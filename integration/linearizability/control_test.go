package linearizability

import (
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

// did is one call of a made-up history, from and to in any unit.
func did(from, to int64, in input, out output) porcupine.Operation {
	in.name = "n"
	return porcupine.Operation{Input: in, Call: from, Output: out, Return: to}
}

var (
	yes   = output{}
	maybe = output{open: true}
	no    = output{refused: true}
)

// A model that accepts everything would prove nothing: each accepts what is
// right, and rejects what is broken.
func TestModelsTellRightFromWrong(t *testing.T) {
	type calls = []porcupine.Operation
	by := func(v verb, owner string) input { return input{verb: v, owner: owner} }
	for name, c := range map[string]struct {
		model porcupine.Model
		right bool
		calls calls
	}{
		"lock: one after the other": {lockModel, true, calls{
			did(1, 2, by(lock, "a"), yes), did(3, 4, by(unlock, "a"), yes), did(3, 9, by(lock, "b"), yes),
		}},
		"lock: two hold it": {lockModel, false, calls{
			did(1, 2, by(lock, "a"), yes), did(3, 4, by(lock, "b"), yes), did(5, 6, by(unlock, "a"), yes),
		}},
		"lock: granted before the unlock began": {lockModel, false, calls{
			did(1, 2, by(lock, "a"), yes), did(3, 4, by(lock, "b"), yes), did(5, 6, by(unlock, "a"), yes), did(7, 8, by(unlock, "b"), yes),
		}},
		"lock: an inner unlock frees it": {lockModel, false, calls{
			did(1, 2, by(lock, "a"), yes), did(3, 4, by(lock, "a"), yes), did(5, 6, by(unlock, "a"), yes), did(7, 8, by(lock, "b"), yes),
		}},
		"lock: an open call took it, and gave it back": {lockModel, true, calls{
			did(1, end, input{verb: lock, owner: "a", id: 1}, maybe), did(1, end, input{verb: undo, owner: "a", id: 1}, maybe),
			did(3, 4, by(isLocked, ""), output{n: 1}), did(5, 6, by(lock, "b"), yes),
		}},
		"lock: an open call took it, and kept it": {lockModel, false, calls{
			did(1, end, input{verb: lock, owner: "a", id: 1}, maybe),
			did(3, 4, by(isLocked, ""), output{n: 1}), did(5, 6, by(lock, "b"), yes),
		}},
		"lock: an open unlock freed it": {lockModel, true, calls{
			did(1, 2, by(lock, "a"), yes), did(3, end, by(unlock, "a"), maybe), did(5, 6, by(lock, "b"), yes),
		}},
		"lock: seen free while held": {lockModel, false, calls{
			did(1, 2, by(lock, "a"), yes), did(3, 4, by(isLocked, ""), yes), did(5, 6, by(unlock, "a"), yes),
		}},
		"lock: a wrong count": {lockModel, false, calls{
			did(1, 2, by(lock, "a"), yes), did(3, 4, by(holdCount, "a"), output{n: 2}),
		}},
		"lock: refused although free": {lockModel, true, calls{did(1, 2, by(lock, "a"), no)}},

		"rw: two readers": {rwModel, true, calls{
			did(1, 2, by(readLock, "a"), yes), did(3, 4, by(readLock, "b"), yes), did(5, 6, by(readUnlock, "a"), yes),
		}},
		"rw: a writer beside a reader": {rwModel, false, calls{
			did(1, 2, by(readLock, "a"), yes), did(3, 4, by(lock, "b"), yes), did(5, 6, by(readUnlock, "a"), yes),
		}},
		"rw: a reader becomes the writer": {rwModel, false, calls{
			did(1, 2, by(readLock, "a"), yes), did(3, 4, by(lock, "a"), yes),
		}},
		"rw: the writer reads, and stays": {rwModel, true, calls{
			did(1, 2, by(lock, "a"), yes), did(3, 4, by(readLock, "a"), yes), did(5, 6, by(unlock, "a"), yes), did(7, 8, by(readLock, "b"), yes),
		}},
		"rw: a writer gets in beside one who stayed to read": {rwModel, false, calls{
			did(1, 2, by(lock, "a"), yes), did(3, 4, by(readLock, "a"), yes), did(5, 6, by(unlock, "a"), yes), did(7, 8, by(lock, "b"), yes),
		}},
		"rw: an open reader kept its hold": {rwModel, false, calls{
			did(1, end, input{verb: readLock, owner: "a", n: 1, id: 1}, maybe),
			did(3, 4, by(readCount, "a"), output{n: 1}), did(5, 6, by(lock, "b"), yes),
		}},
		"rw: an open reader was undone": {rwModel, true, calls{
			did(1, end, input{verb: readLock, owner: "a", n: 1, id: 1}, maybe), did(1, end, input{verb: undo, owner: "a", n: 1, id: 1}, maybe),
			did(3, 4, by(readCount, "a"), output{n: 1}), did(5, 6, by(lock, "b"), yes),
		}},

		"semaphore: all permits": {semaphoreModel(2), true, calls{
			did(1, 2, input{verb: acquire, n: 2}, yes), did(3, 4, input{verb: available}, yes),
		}},
		"semaphore: more than there are": {semaphoreModel(2), false, calls{
			did(1, 2, input{verb: acquire, n: 2}, yes), did(3, 4, input{verb: acquire, n: 1}, yes),
		}},
		"semaphore: a permit is lost": {semaphoreModel(2), false, calls{
			did(1, 2, input{verb: acquire, n: 1}, yes), did(3, 4, input{verb: release, n: 1}, yes), did(5, 6, input{verb: available}, output{n: 1}),
		}},
		"semaphore: released twice": {semaphoreModel(2), false, calls{
			did(1, 2, input{verb: acquire, n: 1}, yes), did(3, 4, input{verb: release, n: 1}, yes), did(5, 6, input{verb: available}, output{n: 3}),
		}},
		"semaphore: an open call took a permit, and gave it back": {semaphoreModel(1), true, calls{
			did(1, end, input{verb: acquire, n: 1, id: 1}, maybe), did(1, end, input{verb: undo, n: 1, id: 1}, maybe),
			did(3, 4, input{verb: available}, yes), did(5, 6, input{verb: available}, output{n: 1}),
		}},
		"semaphore: an open call gave back what it never took": {semaphoreModel(1), false, calls{
			did(1, end, input{verb: acquire, n: 1, id: 1}, maybe), did(1, end, input{verb: undo, n: 1, id: 1}, maybe),
			did(5, 6, input{verb: available}, output{n: 2}),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.right, porcupine.CheckOperationsTimeout(c.model, c.calls, searchLimit) == porcupine.Ok)
			if !c.right {
				reject(t, c.model, c.calls)
			}
		})
	}
}
