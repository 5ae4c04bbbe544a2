package history

import (
	"maps"
	"slices"

	"github.com/anishathalye/porcupine"
)

// An open call takes effect in a model wherever it can. That it may never have
// done so needs no words: then its place is at the end, where nobody looks.

// Models by kind. A refusal is always right: a lock that is free may refuse, when a
// hold is handed on for example, but none may be granted that is taken.
var models = map[Kind]porcupine.Model{
	Lock:      lockModel,
	Fair:      lockModel,
	Fenced:    lockModel,
	RW:        rwModel,
	Semaphore: semaphoreModel,
	Expirable: expirableModel,
	Latch:     latchModel,
}

// Model answers the model of a kind. It partitions by name. A limiter has none,
// since time is part of what it does.
func Model(k Kind) (porcupine.Model, bool) {
	m, ok := models[k]
	return m, ok
}

// model makes a model of typed states.
func model[S any](init S, next func(S, step, answer) (bool, S), equal func(a, b S) bool) porcupine.Model {
	return porcupine.Model{
		Partition: byName,
		Init:      func() any { return init },
		Step: func(state, in, out any) (bool, any) {
			if out.(answer).outcome == Refused {
				return true, state
			}
			ok, s := next(state.(S), in.(step), out.(answer))
			return ok, s
		},
		Equal:             func(a, b any) bool { return equal(a.(S), b.(S)) },
		DescribeOperation: describe,
	}
}

// set is a small set that is never changed, only made anew.
type set[T comparable] []T

func (s set[T]) with(v ...T) set[T] { return append(slices.Clone(s), v...) }

func (s set[T]) without(v T) (set[T], bool) {
	i := slices.Index(s, v)
	if i < 0 {
		return s, false
	}
	return slices.Delete(slices.Clone(s), i, i+1), true
}

// equal compares sets; two orders of the same elements are one set.
func (s set[T]) equal(o set[T]) bool {
	return len(s) == len(o) && !slices.ContainsFunc(s, func(v T) bool { return !slices.Contains(o, v) })
}

// locked is the state of a lock.
type locked struct {
	owner string
	holds int64
	taken set[int64] // open calls that took effect

	token int64  // the largest so far
	of    string // whose it is
}

// lockModel is the lock, re-entrant unless its flavor says otherwise; with
// tokens, if they are granted.
var lockModel = model(locked{}, func(s locked, in step, out answer) (bool, locked) {
	switch {
	case in.reset:
		s.token, s.of = 0, ""
		return true, s
	case in.undo:
		var took bool
		if s.taken, took = s.taken.without(in.id); took {
			s = s.released(in.owner)
		}
		return true, s
	}
	switch in.call {
	case Acquire:
		if s.holds > 0 && (s.owner != in.owner || in.flavor == NonReentrant) {
			return out.open(), s
		}
		if out.open() {
			s.taken = s.taken.with(in.id)
		} else if in.token != 0 {
			// Re-entry has the token of the outer hold. No two owners have one.
			if in.token < s.token || in.token == s.token && s.of != in.owner {
				return false, s
			}
			s.token, s.of = in.token, in.owner
		}
		s.owner, s.holds = in.owner, s.holds+1
		return true, s
	case Release:
		return s.held(in.owner) > 0 || out.open(), s.released(in.owner)
	case IsLocked:
		return (out.value == 1) == (s.holds > 0) || in.loose && out.value == 1, s
	case HoldCount:
		return out.value == s.held(in.owner) || in.loose && out.value > s.held(in.owner), s
	}
	return false, s
}, func(a, b locked) bool {
	return a.owner == b.owner && a.holds == b.holds && a.token == b.token && a.of == b.of && a.taken.equal(b.taken)
})

func (s locked) held(owner string) int64 {
	if s.owner != owner {
		return 0
	}
	return s.holds
}

func (s locked) released(owner string) locked {
	if s.held(owner) == 0 {
		return s
	}
	if s.holds--; s.holds == 0 {
		s.owner = ""
	}
	return s
}

// shared is the state of a read-write lock: holds by owner.
type shared struct {
	writers, readers map[string]int64 // of writers one at most
	taken            set[int64]
}

// more answers holds with n more of owner, who may get fewer than none of them:
// then nothing is changed.
func more(holds map[string]int64, owner string, n int64) (map[string]int64, bool) {
	if holds[owner]+n < 0 {
		return holds, false
	}
	holds = maps.Clone(holds)
	if holds == nil {
		holds = make(map[string]int64)
	}
	if holds[owner] += n; holds[owner] == 0 {
		delete(holds, owner)
	}
	return holds, true
}

// rwModel is the read-write lock.
var rwModel = model(shared{}, func(s shared, in step, out answer) (bool, shared) {
	switch {
	case in.reset:
		return true, s
	case in.undo:
		var took bool
		if s.taken, took = s.taken.without(in.id); took {
			if in.call == Acquire {
				s.writers, _ = more(s.writers, in.owner, -1)
			} else {
				s.readers, _ = more(s.readers, in.owner, -1)
			}
		}
		return true, s
	}
	var did bool
	writes := s.writers[in.owner] > 0
	switch in.call {
	case Acquire:
		if did = len(s.writers) == 0 && len(s.readers) == 0 || writes; did {
			s.writers, _ = more(s.writers, in.owner, 1)
		}
	case Read:
		if did = len(s.writers) == 0 || writes; did {
			s.readers, _ = more(s.readers, in.owner, 1)
		}
	case Release:
		s.writers, did = more(s.writers, in.owner, -1)
	case ReadEnd:
		s.readers, did = more(s.readers, in.owner, -1)
	case HoldCount:
		return out.value == s.writers[in.owner] || in.loose && out.value > s.writers[in.owner], s
	case ReadCount:
		return out.value == s.readers[in.owner] || in.loose && out.value > s.readers[in.owner], s
	}
	if did && out.open() && (in.call == Acquire || in.call == Read) {
		s.taken = s.taken.with(in.id)
	}
	return did || out.open(), s
}, func(a, b shared) bool {
	return maps.Equal(a.writers, b.writers) && maps.Equal(a.readers, b.readers) && a.taken.equal(b.taken)
})
