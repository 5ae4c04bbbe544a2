package history

// permits is the state of a semaphore.
type permits struct {
	is    bool // it was set
	maybe bool // by a call without an answer, perhaps
	free  int64
	taken set[int64] // open calls that took effect
}

// semaphoreModel is the semaphore whose permits have no names. It has none before
// it is set.
var semaphoreModel = model(permits{}, func(s permits, in step, out answer) (bool, permits) {
	if in.undo {
		var took bool
		if s.taken, took = s.taken.without(in.id); took {
			s.free += in.n
		}
		return true, s
	}
	switch in.call {
	case Set:
		switch {
		case !s.is:
			s.is, s.maybe, s.free = true, out.open(), in.n
			return true, s
		case s.maybe && !out.open():
			s.maybe = false // then the open one didn't
			return true, s
		}
		return out.open(), s
	case Acquire:
		if s.free < in.n {
			return out.open(), s
		}
		if out.open() {
			s.taken = s.taken.with(in.id)
		}
		s.free -= in.n
		return true, s
	case Release:
		s.free += in.n
		return true, s
	case Available:
		return s.free-in.slack <= out.value && out.value <= s.free, s
	}
	return false, s
}, func(a, b permits) bool {
	return a.is == b.is && a.maybe == b.maybe && a.free == b.free && a.taken.equal(b.taken)
})

// expirable is the state of a semaphore whose permits have names.
type expirable struct {
	total int64
	out   set[string] // permits that are held
	open  set[int64]  // open calls that took effect
	taken int64       // permits that they took
}

// expirableModel is the semaphore with expiring permits: no more of them are out
// than there are, and none twice.
var expirableModel = model(expirable{}, func(s expirable, in step, out answer) (bool, expirable) {
	if in.reset {
		return true, s // what is held then is not looked at for a while
	}
	if in.undo {
		var took bool
		if s.open, took = s.open.without(in.id); took {
			s.taken -= in.n
		}
		return true, s
	}
	free := s.total - s.taken - int64(len(s.out))
	switch in.call {
	case Set:
		if s.total != 0 && s.total != in.n {
			return out.open(), s
		}
		s.total = in.n
		return true, s
	case Acquire:
		if free < in.n {
			return out.open(), s
		}
		if out.open() {
			s.open, s.taken = s.open.with(in.id), s.taken+in.n
			return true, s
		}
		for _, id := range in.ids {
			if _, twice := s.out.without(id); twice {
				return false, s
			}
		}
		s.out = s.out.with(in.ids...)
		return int64(len(in.ids)) == in.n, s
	case Release:
		for _, id := range in.ids {
			var was bool
			if s.out, was = s.out.without(id); !was && !out.open() {
				return false, s
			}
		}
		return true, s
	case Available:
		return free-in.slack <= out.value && out.value <= free, s
	}
	return false, s
}, func(a, b expirable) bool {
	return a.total == b.total && a.taken == b.taken && a.out.equal(b.out) && a.open.equal(b.open)
})

// latchModel is the count-down latch; its state is the count. Slack is how many
// open count-downs began before the call ended: each may have taken effect.
var latchModel = model(int64(0), func(count int64, in step, out answer) (bool, int64) {
	switch in.call {
	case Set:
		if count-in.slack > 0 {
			return out.open(), count
		}
		return true, in.n
	case CountDown:
		return true, max(0, count-1)
	case Await:
		return count-in.slack <= 0 || out.open(), count
	case Available:
		return count-in.slack <= out.value && out.value <= count, count
	}
	return false, count
}, func(a, b int64) bool { return a == b })
