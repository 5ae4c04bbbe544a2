package hold

import (
	"context"
	"sync"
	"time"
	"weak"
)

// subject is what a hold's context is about: the record of one hold, or the
// state of a group of them. Like all that the ledger can reach, it doesn't lead
// to the owner.
type subject interface {
	// attach gives it the means to end a context, and answers why it is over
	// already, or nil.
	attach(end context.CancelCauseFunc, free context.CancelFunc, t weak.Pointer[tie]) (over error)
	// endContext ends the context alone: the hold goes on.
	endContext(why error)
	// finish ends the context, if there is one, and lets go of the caller's. The
	// first cause counts.
	finish(why error)
	// look ends it if its deadline has passed.
	look()
	// ended answers why it is over, or nil.
	ended() error
	// lapse ends it if its lease is fixed and will be over in a moment.
	lapse(now time.Time)
	// discount has nobody count it any more, if its lease is fixed: what it is a
	// part of has run out. It is there to be given back.
	discount()
	// watch has f called once when it is over, at once if it is. f gets the
	// cause, and leads to no owner.
	watch(f func(why error))
	title() string
}

// ending is how a hold's context ends. Its owner's mutex, which the methods are
// given, guards it.
type ending struct {
	cause error // why it is over
	// end, free and tie are of the context, if somebody has asked for it.
	end     context.CancelCauseFunc
	free    context.CancelFunc // of the deadline under it; may be nil
	tie     weak.Pointer[tie]
	watcher func(why error)
}

func (e *ending) attachUnder(mu *sync.Mutex, end context.CancelCauseFunc, free context.CancelFunc, t weak.Pointer[tie]) (over error) {
	mu.Lock()
	defer mu.Unlock()
	e.end, e.free, e.tie = end, free, t
	return e.cause
}

func (e *ending) endedUnder(mu *sync.Mutex) error {
	mu.Lock()
	defer mu.Unlock()
	return e.cause
}

func (e *ending) endContextUnder(mu *sync.Mutex, why error) {
	mu.Lock()
	end := e.end
	mu.Unlock()
	end(why)
}

func (e *ending) watchUnder(mu *sync.Mutex, f func(why error)) {
	mu.Lock()
	over := e.cause
	if before := e.watcher; over == nil && before != nil {
		e.watcher = func(why error) { before(why); f(why) }
	} else if over == nil {
		e.watcher = f
	}
	mu.Unlock()
	if over != nil {
		f(over)
	}
}

// finishLocked is finish as far as it goes without calling out. It reports whether that
// was all: nobody has asked for the context, and nobody watches.
func (e *ending) finishLocked(why error) bool {
	if e.cause == nil {
		e.cause = why
	}
	return e.end == nil && e.watcher == nil
}

func (e *ending) finishUnder(mu *sync.Mutex, why error) {
	mu.Lock()
	e.finishLocked(why)
	why = e.cause
	end, free, t, watcher := e.end, e.free, e.tie.Value(), e.watcher
	e.watcher = nil
	mu.Unlock()
	if end != nil {
		end(why)
		if t != nil {
			t.stop()
		}
		if free != nil {
			free()
		}
	}
	if watcher != nil {
		watcher(why)
	}
}
