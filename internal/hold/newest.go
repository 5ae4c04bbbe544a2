package hold

import (
	"context"
	"fmt"
	"hash/maphash"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/internal/owner"
)

// An Unlock by the lock, of several locks as one, must not choose member by member:
// another acquisition of its owner may be under way, or have other members, and what
// is the latest on each would be part of two holds. So whole holds are noted here.

// groups are the holds of several locks as one that aren't over, the oldest first.
// Like the ledger they don't lead to an owner, nor to a Locker of the user's own,
// which may keep a Hold. There is one for all clients: members may be of several, or
// of none that we know.
var groups struct {
	mu sync.Mutex // a leaf: nothing is called under it
	by map[groupKey][]*groupState
}

// groupKey is a lock of several, see lockOf, and an owner's id.
type groupKey struct{ lock, owner string }

// note has unlockNewest find the group until all of its records are over.
func (s *groupState) note(lock string, t *owner.Token) {
	k := groupKey{lock, t.ID()}
	groups.mu.Lock()
	if groups.by == nil {
		groups.by = make(map[groupKey][]*groupState)
	}
	groups.by[k] = append(groups.by[k], s)
	groups.mu.Unlock()
	rs := s.records()
	var left atomic.Int64
	left.Store(int64(len(rs)))
	forget := func(error) {
		if left.Add(-1) == 0 {
			s.forget(k)
		}
	}
	for _, r := range rs {
		r.watch(forget)
	}
}

func (s *groupState) forget(k groupKey) {
	groups.mu.Lock()
	defer groups.mu.Unlock()
	rest := slices.DeleteFunc(groups.by[k], func(o *groupState) bool { return o == s })
	if groups.by[k] = rest; len(rest) == 0 {
		delete(groups.by, k)
	}
}

// unlockNewest gives back the newest hold that an owner has of a lock of several, as
// a whole. It answers false if there is none.
func unlockNewest(ctx context.Context, lock string, t *owner.Token) (found bool, err error) {
	k := groupKey{lock, t.ID()}
	groups.mu.Lock()
	of := slices.Clone(groups.by[k])
	groups.mu.Unlock()
	for _, s := range slices.Backward(of) {
		if !s.stands() {
			continue // it ran out: the one around it is meant
		}
		if taken := s.free(); taken != nil {
			// Somebody else is about to give it back: then it is the turn of the one
			// before it, but none of what is left of this one.
			found, err = true, taken
			continue
		}
		return true, shell(s).group.giveBack(ctx)
	}
	return found, err
}

// stands reports whether some of it can be given back, and counts.
func (s *groupState) stands() bool {
	s.look()
	return slices.ContainsFunc(s.records(), func(r *record) bool {
		r.entry.ledger.mu.Lock()
		defer r.entry.ledger.mu.Unlock()
		return r.status == held && !r.void
	})
}

// records are those of its parts, and of their parts.
func (s *groupState) records() []*record {
	var rs []*record
	for _, p := range s.parts {
		switch p := p.(type) {
		case *record:
			rs = append(rs, p)
		case *groupState:
			rs = append(rs, p.records()...)
		}
	}
	return rs
}

// shell is a Hold without a context or an owner, to be given back.
func shell(of subject) *Hold {
	h := &Hold{}
	h.ctx.of = of
	switch of := of.(type) {
	case *record:
		h.record = of
	case *groupState:
		h.group = &group{groupState: of}
		for _, p := range of.parts {
			h.group.members = append(h.group.members, shell(p))
		}
	}
	return h
}

// What locks of several are called.
const (
	allOf      = "all of "
	majorityOf = "a majority of "
)

// lockOf tells a lock of several from all others, and is the same for all objects
// that stand for it: members given anew are the same, a user's own as far as they
// are equal. It leads to none of them.
func lockOf(what string, ms []Member) string {
	ids := make([]string, len(ms))
	for i, m := range ms {
		ids[i] = m.id()
	}
	return joinIDs(what, ids)
}

// lockOfHolds is lockOf for the lock of records, or "" if some are no records.
func lockOfHolds(hs []*Hold) string {
	ids := make([]string, len(hs))
	for i, h := range hs {
		if h.group != nil {
			return ""
		}
		ids[i] = h.record.entry.id()
	}
	return joinIDs(allOf, ids)
}

func joinIDs(what string, ids []string) string {
	slices.Sort(ids)
	return what + strings.Join(ids, ",")
}

var (
	lockSeed = maphash.MakeSeed()
	unlike   atomic.Uint64 // so many members that are equal to nothing
)

func (m Member) id() string {
	if m.mutex != nil {
		return m.mutex.id()
	}
	v := reflect.ValueOf(m.Locker)
	if !v.Comparable() {
		return fmt.Sprint(unlike.Add(1))
	}
	return fmt.Sprintf("%s %q %x", v.Type(), m.Name(), maphash.Comparable(lockSeed, m.Locker))
}

func (n *names) id() string { return fmt.Sprintf("%p %q", n.Services, n.ledgerKey) }
