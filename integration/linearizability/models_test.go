package linearizability

import (
	"maps"
	"slices"

	"github.com/anishathalye/porcupine"
)

// An open call takes effect in a model wherever it can. That it may never have
// done so needs no words: then its place is at the end, where nobody looks.

// ids is a small set that is never changed, only made anew.
type ids []int

func (s ids) with(id int) ids { return append(slices.Clone(s), id) }

func (s ids) without(id int) (ids, bool) {
	i := slices.Index(s, id)
	if i < 0 {
		return s, false
	}
	return slices.Delete(slices.Clone(s), i, i+1), true
}

// equal compares sets; two orders of the same ids are one set.
func (s ids) equal(o ids) bool {
	return len(s) == len(o) && !slices.ContainsFunc(s, func(id int) bool { return !slices.Contains(o, id) })
}

// model makes a model of typed states.
func model[S any](init S, step func(S, input, output) (bool, S), equal func(a, b S) bool) porcupine.Model {
	return porcupine.Model{
		Partition: byName,
		Init:      func() any { return init },
		Step: func(state, in, out any) (bool, any) {
			if out.(output).refused {
				return true, state
			}
			ok, next := step(state.(S), in.(input), out.(output))
			return ok, next
		},
		Equal:             func(a, b any) bool { return equal(a.(S), b.(S)) },
		DescribeOperation: describe,
	}
}

// locked is the state of a lock.
type locked struct {
	owner string
	holds int64
	taken ids // open calls that took effect
}

// lockModel is the re-entrant lock.
var lockModel = model(locked{}, func(s locked, in input, out output) (bool, locked) {
	switch in.verb {
	case lock:
		if s.holds > 0 && s.owner != in.owner {
			return out.open, s
		}
		if out.open {
			s.taken = s.taken.with(in.id)
		}
		s.owner, s.holds = in.owner, s.holds+1
		return true, s
	case unlock:
		return s.release(in.owner) || out.open, s.released(in.owner)
	case undo:
		var took bool
		if s.taken, took = s.taken.without(in.id); took {
			s = s.released(in.owner)
		}
		return true, s
	case isLocked:
		return (out.n == 1) == (s.holds > 0), s
	case holdCount:
		return out.n == s.of(in.owner), s
	}
	return false, s
}, func(a, b locked) bool {
	return a.owner == b.owner && a.holds == b.holds && a.taken.equal(b.taken)
})

func (s locked) of(owner string) int64 {
	if s.owner != owner {
		return 0
	}
	return s.holds
}

func (s locked) release(owner string) bool { return s.of(owner) > 0 }

func (s locked) released(owner string) locked {
	if !s.release(owner) {
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
	taken            ids
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
var rwModel = model(shared{}, func(s shared, in input, out output) (bool, shared) {
	var did bool
	writes := s.writers[in.owner] > 0
	switch in.verb {
	case lock:
		if did = len(s.writers) == 0 && len(s.readers) == 0 || writes; did {
			s.writers, _ = more(s.writers, in.owner, 1)
		}
	case readLock:
		if did = len(s.writers) == 0 || writes; did {
			s.readers, _ = more(s.readers, in.owner, 1)
		}
	case unlock:
		s.writers, did = more(s.writers, in.owner, -1)
	case readUnlock:
		s.readers, did = more(s.readers, in.owner, -1)
	case undo:
		var took bool
		if s.taken, took = s.taken.without(in.id); took {
			if in.n == 0 {
				s.writers, _ = more(s.writers, in.owner, -1)
			} else {
				s.readers, _ = more(s.readers, in.owner, -1)
			}
		}
		return true, s
	case holdCount:
		return out.n == s.writers[in.owner], s
	case readCount:
		return out.n == s.readers[in.owner], s
	}
	if did && out.open && (in.verb == lock || in.verb == readLock) {
		s.taken = s.taken.with(in.id)
	}
	return did || out.open, s
}, func(a, b shared) bool {
	return maps.Equal(a.writers, b.writers) && maps.Equal(a.readers, b.readers) && a.taken.equal(b.taken)
})

// permits is the state of a semaphore.
type permits struct {
	free  int64
	taken ids
}

// semaphoreModel is a semaphore that has n permits free.
func semaphoreModel(n int64) porcupine.Model {
	return model(permits{free: n}, func(s permits, in input, out output) (bool, permits) {
		switch in.verb {
		case acquire:
			if s.free < in.n {
				return out.open, s
			}
			if out.open {
				s.taken = s.taken.with(in.id)
			}
			s.free -= in.n
			return true, s
		case release:
			s.free += in.n
			return true, s
		case undo:
			var took bool
			if s.taken, took = s.taken.without(in.id); took {
				s.free += in.n
			}
			return true, s
		case available:
			return out.n == s.free, s
		}
		return false, s
	}, func(a, b permits) bool { return a.free == b.free && a.taken.equal(b.taken) })
}
