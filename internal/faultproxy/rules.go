package faultproxy

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Match says whether a rule applies to a request; cmd is its words as they were
// sent. Calls for one proxy come one at a time, so a Match may keep state; it must
// not call the proxy's methods and must not wait.
type Match func(cmd []string) bool

// Cmd matches requests by command name, in any case.
func Cmd(names ...string) Match {
	return func(cmd []string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, cmd[0]) })
	}
}

// Prob matches a request with probability p, in [0, 1]. The same seed gives the
// same sequence of decisions.
func Prob(p float64, seed uint64) Match {
	var mu sync.Mutex // one Match may serve two proxies
	rnd := rand.New(rand.NewPCG(seed, seed))
	return func([]string) bool {
		mu.Lock()
		defer mu.Unlock()
		return rnd.Float64() < p
	}
}

// All matches what every one of ms matches. A later one is asked only when those
// before it said yes: put Prob last to give it the commands that matter.
func All(ms ...Match) Match {
	return func(cmd []string) bool {
		for _, m := range ms {
			if !m(cmd) {
				return false
			}
		}
		return true
	}
}

// Not matches what m doesn't match.
func Not(m Match) Match {
	return func(cmd []string) bool { return !m(cmd) }
}

type kind int

const (
	pass kind = iota
	dropReply
	dropRequest
	closeAfterForward
	closeBeforeForward
	delayReply
	holdReply
	holdRequest
	answerRequest
)

// onRequest reports whether the fault happens before the request is forwarded.
func (k kind) onRequest() bool {
	return k == dropRequest || k == closeBeforeForward || k == holdRequest || k == answerRequest
}

// Action is what a rule does to a request or its reply.
type Action struct {
	kind  kind
	delay time.Duration
	until <-chan struct{}
	text  string
}

// The actions without a parameter.
var (
	// Pass does nothing, but counts and keeps the rules behind it away. It is the
	// zero Action.
	Pass = Action{kind: pass}
	// DropReply forwards the request and swallows its reply. The connection stays
	// open and silent, see the package comment. Of a SUBSCRIBE and its kin all
	// confirmations are swallowed, and nothing else.
	DropReply = Action{kind: dropReply}
	// DropRequest swallows the request: the server never sees it. The connection
	// stays open and silent, see the package comment.
	DropRequest = Action{kind: dropRequest}
	// CloseAfterForward closes the client's connection in place of the reply: the
	// server has carried out the request. Earlier replies are delivered.
	CloseAfterForward = Action{kind: closeAfterForward}
	// CloseBeforeForward closes the client's connection in place of forwarding the
	// request and any later one. Replies to earlier requests are delivered first.
	CloseBeforeForward = Action{kind: closeBeforeForward}
)

// Delay delivers the reply later by d, and so what follows it on the connection.
func Delay(d time.Duration) Action { return Action{kind: delayReply, delay: d} }

// HoldReply keeps the reply, and what follows it on the connection, until ch is closed.
func HoldReply(ch <-chan struct{}) Action { return Action{kind: holdReply, until: ch} }

// HoldRequest keeps the request, and what follows it on the connection, until ch
// is closed. It is delivered then even if the client has closed the connection
// meanwhile or Cut has: a copy that arrives late. Only the proxy's Close, or the
// end of the server's connection, makes it vanish.
func HoldRequest(ch <-chan struct{}) Action { return Action{kind: holdRequest, until: ch} }

// Refusal answers with an error reply of that text ("LOADING Redis is loading …") in
// the server's place, which never sees the request.
func Refusal(text string) Action { return Action{kind: answerRequest, text: text} }

// Rule says which requests meet with which fault.
type Rule struct {
	Match Match  // nil: every request, those that set up a connection included
	Times int    // how many requests it applies to; 0: no limit
	Do    Action // what happens to them
}

// Fault is a rule in force, see Proxy.Add.
type Fault struct {
	rule  Rule
	set   *ruleSet
	used  int // guarded by set.mu
	hits  atomic.Int64
	first chan struct{}
	once  sync.Once
}

// Hits is how often the fault has happened. What concerns a reply happens when
// the reply reaches the proxy, so the server has carried the request out; what
// concerns a request happens when it is its turn to be forwarded.
func (f *Fault) Hits() int { return int(f.hits.Load()) }

// Done is closed at the first hit.
func (f *Fault) Done() <-chan struct{} { return f.first }

// Remove takes the rule out of force. Requests that it matched before keep their
// fate: a held one stays held until its channel is closed.
func (f *Fault) Remove() { f.set.remove(f) }

func (f *Fault) hit() {
	f.hits.Add(1)
	f.once.Do(func() { close(f.first) })
}

// kindOf is the action's kind; no fault is pass.
func (f *Fault) kindOf() kind {
	if f == nil {
		return pass
	}
	return f.rule.Do.kind
}

// ruleSet is the list of rules in force, in the order they were added.
type ruleSet struct {
	any atomic.Bool // whether faults is not empty: spares most requests the lock

	mu     sync.Mutex
	faults []*Fault
}

func (s *ruleSet) add(r Rule) *Fault {
	f := &Fault{rule: r, set: s, first: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, f)
	s.any.Store(true)
	return f
}

func (s *ruleSet) remove(f *Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = slices.DeleteFunc(s.faults, func(g *Fault) bool { return g == f })
	s.any.Store(len(s.faults) > 0)
}

// match returns the first rule that applies to cmd, and uses it once.
func (s *ruleSet) match(cmd []string) *Fault {
	if !s.any.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.faults {
		if f.rule.Times > 0 && f.used >= f.rule.Times {
			continue
		}
		if f.rule.Match == nil || f.rule.Match(cmd) {
			f.used++
			return f
		}
	}
	return nil
}
