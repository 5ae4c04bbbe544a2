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
}

// lineKey is a name, and the number of permits that is wanted of it: 0 where
// only one can hold it.
type lineKey struct {
	name   string
	wanted int64
}

// line is where goroutines of one client that want the same name stand. Only
// the first asks Redis. It goes when the last one leaves.
type line struct {
	key lineKey

	opener      place // of who made the line: it is one allocation with it
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
	prev, next *place
}

var (
	errNoAnswerYet = fmt.Errorf("%w: no answer yet", errs.ErrUnavailable)
	open           = make(chan struct{})
)

func init() { close(open) }

// standing reports whether anybody stands in a line.
func (ls *lines) standing(key lineKey) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.byKey[key] != nil
}

func (ls *lines) join(key lineKey) *place {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byKey[key]
	if l == nil {
		if ls.byKey == nil {
			ls.byKey = make(map[lineKey]*line)
		}
		l = &line{key: key, known: Outcome{TTL: -1}, err: errNoAnswerYet}
		ls.byKey[key] = l
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &l.opener
	if l.last == nil {
		p.line, p.turn = l, open
		l.first = p
	} else {
		p = &place{line: l, turn: make(chan struct{}), prev: l.last}
		l.last.next = p
	}
	l.last = p
	return p
}

func (ls *lines) leave(p *place, granted bool) {
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
	if l.first == nil {
		delete(ls.byKey, l.key)
		if l.sub != nil {
			l.sub.Close()
		}
		return
	}
	if first {
		l.neighbour = granted && l.sub != nil && isClosed(l.sub.Ready())
		close(l.first.turn)
	}
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

// learn notes what Redis answered the first in line.
func (l *line) learn(out Outcome, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if out.Granted {
		// TTL is the lease that the first was just given.
		l.known, l.err = Outcome{TTL: out.TTL, Free: l.known.Free}, nil
		return
	}
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
	l.lines.mu.Lock()
	ln := l.lines.byKey[lineKey{name: key}]
	l.lines.mu.Unlock()
	if ln != nil {
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
