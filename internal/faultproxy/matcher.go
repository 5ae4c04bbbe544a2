package faultproxy

import (
	"slices"
	"strings"
)

// subscribing are the commands that are answered per channel. The word is also
// the first element of each confirmation.
var subscribing = map[string]struct {
	set  string // which kind of subscription it changes
	adds bool
}{
	"subscribe":    {"channel", true},
	"unsubscribe":  {"channel", false},
	"psubscribe":   {"pattern", true},
	"punsubscribe": {"pattern", false},
	"ssubscribe":   {"shard", true},
	"sunsubscribe": {"shard", false},
}

// record is a request that was forwarded and not yet answered in full, or a
// marker for one that was not forwarded: a marker takes effect when all requests
// before it are answered.
type record struct {
	name   string // lower case
	cmd    []string
	fault  *Fault
	marker bool
	hit    bool // the fault was counted

	begun bool // some confirmations of a subscribing command have come
	left  int  // how many are still to come
}

func newRecord(cmd []string, fault *Fault) *record {
	return &record{name: strings.ToLower(cmd[0]), cmd: cmd, fault: fault}
}

func (r *record) subscribes() bool {
	_, ok := subscribing[r.name]
	return ok
}

// matcher finds the request that a reply belongs to: replies come in the order of
// requests, one each. Pub/sub is the exception:
//
//   - RESP3: messages and other news are push values and answer nothing. A
//     subscribing command is answered by one push per channel, in its place in the
//     order, or by one ordinary error. Every other value is an ordinary reply.
//   - RESP2: the same content comes in plain arrays. Messages are told apart by
//     their first word, while the connection has subscriptions: the server answers
//     hardly anything else in that state. Confirmations are told apart by their
//     first word, when such a command is next in line.
//
// UNSUBSCRIBE without channels is answered once for each subscription there is,
// so the matcher keeps account of them. Inside MULTI a subscribing command gets
// the ordinary QUEUED, and its confirmations are nested in the answer to EXEC.
type matcher struct {
	waiting []*record
	resp3   bool
	subs    map[string]map[string]bool // set -> names
}

func (m *matcher) push(r *record) { m.waiting = append(m.waiting, r) }

func (m *matcher) head() *record {
	if len(m.waiting) == 0 {
		return nil
	}
	return m.waiting[0]
}

func (m *matcher) pop() *record {
	r := m.waiting[0]
	m.waiting[0] = nil
	m.waiting = m.waiting[1:]
	return r
}

// subscribed reports whether the connection has subscriptions.
func (m *matcher) subscribed() bool {
	for _, names := range m.subs {
		if len(names) > 0 {
			return true
		}
	}
	return false
}

// reply returns the request that v answers, or nil if v was not asked for.
// Requests that are answered in full have left the line of waiting ones.
func (m *matcher) reply(v value) *record {
	isPush := v.kind() == '>'
	if isPush || v.kind() == '*' && !m.resp3 {
		// Both exist in RESP2 only where subscriptions do, or are about to.
		if isPush || m.subscribed() || m.head() != nil && m.head().subscribes() {
			if r, ok := m.pubsub(v, isPush); ok {
				return r
			}
		}
	}

	// A subscribing command that was confirmed is over once anything else is answered.
	for r := m.head(); r != nil && r.begun; r = m.head() {
		m.pop()
	}
	if m.head() == nil || m.head().marker {
		return nil
	}
	r := m.pop()
	m.follow(r, v)
	return r
}

// pubsub handles what may be a message or a confirmation, and reports whether it
// was one.
func (m *matcher) pubsub(v value, isPush bool) (*record, bool) {
	words := v.words(2)
	if len(words) == 0 {
		return nil, isPush
	}
	word := strings.ToLower(words[0])
	change, confirms := subscribing[word]
	if !confirms {
		isMessage := word == "message" || word == "pmessage" || word == "smessage"
		return nil, isPush || isMessage && m.subscribed()
	}

	name := ""
	if len(words) > 1 {
		name = words[1]
	}
	r := m.head()
	if r == nil || r.marker || r.name != word || len(r.cmd) > 1 && !slices.Contains(r.cmd[1:], name) {
		// Not asked for: the server ends shard subscriptions when a slot moves.
		if isPush || m.subscribed() {
			m.note(change.set, name, change.adds)
			return nil, true
		}
		return nil, false
	}
	if !r.begun {
		r.begun = true
		r.left = len(r.cmd) - 1
		if r.left == 0 {
			r.left = max(1, len(m.subs[change.set]))
		}
	}
	m.note(change.set, name, change.adds)
	r.left--
	if r.left == 0 {
		m.pop()
	}
	return r, true
}

// note keeps account of subscriptions.
func (m *matcher) note(set, name string, adds bool) {
	if !adds {
		delete(m.subs[set], name)
		return
	}
	if m.subs == nil {
		m.subs = make(map[string]map[string]bool)
	}
	if m.subs[set] == nil {
		m.subs[set] = make(map[string]bool)
	}
	m.subs[set][name] = true
}

// follow keeps up with commands that change how the connection speaks.
func (m *matcher) follow(r *record, v value) {
	if v.kind() == '-' || v.kind() == '!' {
		return
	}
	switch r.name {
	case "hello":
		if len(r.cmd) > 1 {
			m.resp3 = r.cmd[1] == "3"
		}
	case "reset":
		m.resp3, m.subs = false, nil
	}
}
