package worker

import (
	"github.com/holdfast-go/holdfast/integration/internal/history"
	"github.com/holdfast-go/holdfast/integration/internal/register"
	"github.com/holdfast-go/holdfast/rlock"
)

// write writes to what the lock guards, once or twice under one token.
func (a *actor) write(id int64, name, owner string, h *rlock.Hold) {
	op := history.Op{
		Kind: history.Register, Name: "register of " + name, Call: history.Write,
		Owner: owner, Hold: id, Token: h.Token(), Bound: register.Patience,
	}
	for range 1 + a.IntN(2) {
		a.call(op, func(_ int64, r *history.Result) error {
			newest, err := a.link.Write(name, owner, h.Token())
			r.Value = newest
			switch {
			case err != nil:
				r.Outcome = history.Unknown
			case newest > h.Token():
				r.Outcome = history.Refused
			}
			return err
		})
	}
}
