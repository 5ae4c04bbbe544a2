package hold

import (
	"github.com/holdfast-go/holdfast/internal/errs"
)

// MaxToken is the largest fencing token: a grant carries one bit beside it, and
// a number of a Lua script is exact below 2^53.
const MaxToken = 1<<52 - 1

// Fenced is a Kind whose holds have a fencing token. Its acquire script answers
// a grant as -2·token where the lock was free, and as -2·token - 1 where the
// owner was in it.
type Fenced interface {
	Kind
	// TokenKey is where the last token of key stands.
	TokenKey(key string) string
}

// fence adds what a fenced acquisition has to know.
func (a *attempt) fence(args *Args) {
	if a.tokenKey == nil {
		return
	}
	args.TokenKey, args.Token = a.tokenKey, a.entry.token()
	if args.Token == 0 {
		// Over here, a lost hold may still stand in Redis. Who gets in then isn't
		// to be taken for its own earlier copy, and given the old token.
		args.MaybeIn = a.entry.written == unknown || a.ending(a.owner, a.key, a.entry.field) == errs.Lost
	}
}

// readToken takes the token out of the answer to a fenced acquisition, and leaves there
// what other locks are answered.
func (g *granted) readToken() {
	n := -g.reply.Int()
	if g.reply.Err != nil || n <= 0 {
		return
	}
	g.token = n / 2
	g.reply.Val = int64(grantedFirst)
	if n%2 == 1 {
		g.reply.Val = int64(grantedAgain)
	}
}

// token is the fencing token of the owner's holds, or 0 if none is fenced.
func (e *entry) token() (token int64) {
	l := &e.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range e.holds {
		token = max(token, r.token)
	}
	return token
}

// ErrToken is the error of a name whose token can't be used.
func ErrToken(name, key string) error {
	return errs.Invalid("name %s: the key %s holds no fencing token that could still grow (an integer from 0 to 2^52 - 2); nothing was touched: choose another name, or mend the key", errs.Quote(name), errs.Quote(key))
}
