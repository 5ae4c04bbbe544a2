package holdfast

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/rlock"
)

// Guard wraps fn so that it runs while holding the lock key(request): one at a
// time per key, over all processes. It waits as Lock does, or as long as Wait
// says; Lease gives a fixed lease. fn gets Hold.Context, which ends when the
// lock is lost. The lock is given back after fn has returned, so after the
// commit of a transaction inside it, also if fn panics.
//
// An acquisition that fails is its error, with fn not called. Otherwise the
// answer is fn's, and so is the error, joined with that of the release if there
// is one: ErrLost if the lock didn't last as long as fn ran, ErrUncertain if only
// the release got no answer.
func Guard[Req, Resp any](c *Client, key func(Req) string, fn func(context.Context, Req) (Resp, error), opts ...rlock.Option) func(context.Context, Req) (Resp, error) {
	return func(ctx context.Context, req Req) (resp Resp, err error) {
		if c == nil || key == nil || fn == nil {
			return resp, errs.Invalid("Guard needs a client, a key function and a function to guard: one of them is nil")
		}
		if err := checkContext(ctx, "Guard"); err != nil {
			return resp, err
		}
		err = c.Lock(key(req)).Do(ctx, func(ctx context.Context) (err error) {
			resp, err = fn(ctx, req)
			return err
		}, opts...)
		return resp, err
	}
}
