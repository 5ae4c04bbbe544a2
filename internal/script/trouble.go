package script

import (
	"context"
	"errors"
	"net"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// trouble is what the last commands without an answer say about the way to the
// server.
type trouble struct{ atomic.Int32 }

const (
	none int32 = iota
	// silent: no answer came in time.
	silent
	// moved: a connection broke or couldn't be made, or the server isn't a master.
	moved
)

// troubleOf tells the kinds of failures apart.
func troubleOf(err error) int32 {
	var reply redis.Error
	var timeout net.Error
	var op *net.OpError
	switch {
	case errors.As(err, &reply):
		if hasAnyPrefix(bare(reply), notMaster) {
			return moved
		}
		return none
	case errors.As(err, &op) && op.Op == "dial" && !errors.Is(err, context.Canceled):
		return moved // before the next: a dial that took too long matches DeadlineExceeded
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, redis.ErrClosed),
		errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return none // nothing to do with the server
	case errors.As(err, &timeout) && timeout.Timeout():
		return silent
	default:
		return moved
	}
}

var notMaster = []string{"READONLY", "MASTERDOWN"}

// failed notes that a command had no answer, or one that means "later".
func (r *Runner) failed(err error) {
	for kind := troubleOf(err); ; {
		old := r.trouble.Load()
		if old >= kind || r.trouble.CompareAndSwap(old, kind) {
			return
		}
	}
}

// recovered notes that one was answered.
func (r *Runner) recovered() {
	if r.trouble.Load() == none { // nearly always
		return
	}
	if kind := r.trouble.Swap(none); kind != none && r.Recovered != nil {
		r.Recovered(kind == moved)
	}
}
