package hold

import (
	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/owner"
)

// maxEndings bounds what is remembered of owners whose id was chosen.
const maxEndings = 1024

// rememberLocked notes how the owner's last hold of the name ended.
func (e *entry) rememberLocked(reason errs.Reason) {
	if !e.chosen {
		if t := e.tokenLocked(); t != nil {
			t.Ended(e.ledgerKey, reason)
		}
		return
	}
	// Any context may be this owner: the token is not the place.
	l, k := &e.ledger, entryKey{e.ledgerKey, e.field}
	if l.endings == nil {
		l.endings = make(map[entryKey]errs.Reason)
	}
	if _, ok := l.endings[k]; !ok {
		if len(l.endingOrder) == maxEndings {
			delete(l.endings, l.endingOrder[0])
			l.endingOrder = l.endingOrder[1:]
		}
		l.endingOrder = append(l.endingOrder, k)
	}
	l.endings[k] = reason
}

// ending is how the owner's last hold of a key ended.
func (s *Services) ending(t *owner.Token, key, field string) errs.Reason {
	if !t.Chosen() {
		return t.Last(key)
	}
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	return s.ledger.endings[entryKey{key, field}]
}
