package wait

import (
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast/internal/errs"
)

// lines are the local lines of a client, by key.
type lines struct {
	mu    sync.Mutex
	byKey map[lineKey]*line
	// resting is the line that emptied last. It stays, so that a name which is locked
	// again and again doesn't make one each time.
	resting *line
}

// lineKey is a name, and the number of permits that is wanted of it: 0 where
// only one can hold it.
type lineKey struct {
	name   string
	wanted int64
}

// line is where goroutines of one client that want the same name stand. Only
// the first asks Redis. It rests when the last one leaves, and goes when the next line
// comes to rest.
type line struct {
	key lineKey

	opener      place // of who finds the line empty
	mu          sync.Mutex
	first, last *place
	sub         Subscription
	// known is what Redis answered last, err why it didn't.
	known Outcome
	err   error
	// neighbour: the place before the present first was granted while the
	// subscription stood, so a release after that will be heard.
	neighbour bool
	// poke wakes the first where no message will: one slot. Made when somebody
	// sleeps; poked keeps one that came before.
	poke  chan struct{}
	poked bool
}

// place is one waiter's place in a line.
type place struct {
	line       *line
	turn       chan struct{} // closed when it is first
	opens      bool          // nobody stood there before it
	prev, next *place
}

var (
	errNoAnswerYet = fmt.Errorf("%w: no answer yet", errs.ErrUnavailable)
	open           = make(chan struct{})
)

func init() { close(open) }

// standing answers a line if anybody stands in it, else nil.
func (ls *lines) standing(key lineKey) *line {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if r := ls.resting; r != nil && (r.key == key || len(ls.byKey) == 1) {
		return nil // without a look at the map, nearly always
	}
	return ls.byKey[key]
}

// join answers a place at the end of a line, which it opens if nobody stood there.
func (ls *lines) join(key lineKey) *place {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.resting
	if l == nil || l.key != key {
		l = ls.byKey[key]
	}
	if l == nil {
		if ls.byKey == nil {
			ls.byKey = make(map[lineKey]*line)
		}
		l = &line{key: key}
		ls.byKey[key] = l
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == nil {
		if l == ls.resting {
			ls.resting = nil
		}
		// Whoever came too late for those who stood here may have poked it since.
		l.known, l.err, l.neighbour, l.poke, l.poked = Outcome{TTL: -1}, errNoAnswerYet, false, nil, false
		l.opener = place{line: l, turn: open, opens: true}
		l.first, l.last = &l.opener, &l.opener
		return l.last
	}
	p := &place{line: l, turn: make(chan struct{}), prev: l.last}
	l.last.next = p
	l.last = p
	return p
}

// leave gives a place up. out is what its waiter was granted, if it was.
func (ls *lines) leave(p *place, out Outcome) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := p.line
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.first == p
	if first {
		l.first = p.next
	} else {
		p.prev.next = p.next
	}
	if l.last == p {
		l.last = p.prev
	} else {
		p.next.prev = p.prev
	}
	p.prev, p.next = nil, nil // the opener is the line's own, and must not keep the others
	if l.first == nil {
		ls.restLocked(l)
		return
	}
	if out.Granted {
		// TTL is the lease that it was just given.
		l.known, l.err = Outcome{TTL: out.TTL, Free: l.known.Free}, nil
	}
	if first {
		l.neighbour = out.Granted && l.key.wanted == 0 && l.sub != nil && isClosed(l.sub.Ready())
		close(l.first.turn)
	}
}

// restLocked lets a line rest in which nobody stands. It needs the line's mu, too.
func (ls *lines) restLocked(l *line) {
	if l.sub != nil {
		l.sub.Close()
		l.sub = nil
	}
	if ls.resting != nil {
		delete(ls.byKey, ls.resting.key)
	}
	ls.resting = l
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// listen answers the line's subscription and its poke, and makes them at the
// first call.
func (l *line) listen(subscribe func(string) Subscription, channel string) (Subscription, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sub == nil {
		l.sub = subscribe(channel)
	}
	return l.sub, l.earLocked()
}

// ear answers the line's poke alone.
func (l *line) ear() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.earLocked()
}

func (l *line) earLocked() <-chan struct{} {
	if l.poke == nil {
		l.poke = make(chan struct{}, 1)
		if l.poked {
			l.poke <- struct{}{}
		}
	}
	return l.poke
}

// listens reports whether the line's subscription stands.
func (l *line) listens() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sub != nil && isClosed(l.sub.Ready())
}

// learn notes what Redis answered the first in line, who was not granted.
func (l *line) learn(out Outcome, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && !errors.Is(err, errs.ErrUnavailable) {
		return // concerns that one caller, not the name
	}
	l.known, l.err = out, err
}

func (l *line) lastKnown() (Outcome, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known, l.err
}

// takenByNeighbour reports, once, whether the place before was granted.
func (l *line) takenByNeighbour() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.neighbour
	l.neighbour = false
	return n
}

// Released tells the line of key, if there is one, of a release by this client.
// heard says that a notification was published: then a line whose subscription
// stands needs no more.
func (l *Loop) Released(key string, heard bool) {
	if ln := l.lines.standing(lineKey{name: key}); ln != nil {
		ln.released(heard)
	}
}

// Freed tells all lines for permits of a name that some came free of which no
// notification tells.
func (l *Loop) Freed(name string) {
	l.freed.Add(1) // first: who isn't in line yet looks at it when it is
	var all []*line
	l.lines.mu.Lock()
	for k, ln := range l.lines.byKey {
		if k.name == name && k.wanted > 0 {
			all = append(all, ln)
		}
	}
	l.lines.mu.Unlock()
	for _, ln := range all {
		ln.released(false)
	}
}

func (l *line) released(heard bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.poke == nil {
		l.poked = true // nobody sleeps yet
		return
	}
	if heard && l.sub != nil && isClosed(l.sub.Ready()) {
		return // they will hear
	}
	select {
	case l.poke <- struct{}{}:
	default:
	}
}
