package holdfast_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/rlock"
)

// A multi lock one of whose members is lost, and another of which can't be taken up,
// is of no use to anybody: what was taken up of it is given back.
func TestResumeOfAMultiLockInPieces(t *testing.T) {
	rdb := server.Client(t)
	for name, second := range map[string]func(c *holdfast.Client, names ...string) rlock.Locker{
		"plain": func(c *holdfast.Client, names ...string) rlock.Locker { return c.Lock(names[0]) },
		"nested": func(c *holdfast.Client, names ...string) rlock.Locker {
			return c.MultiLock(c.Lock(names[0]), c.Lock(names[1]))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, c := connectVia(t, server, readTimeout(100*time.Millisecond), holdfast.WithLease(never), holdfast.WithCommandTimeout(400*time.Millisecond))
			first, last := t.Name()+"-0", t.Name()+"-2"
			// Their order is that of their names, for locks whose server isn't known.
			h, err := c.MultiLock(alone{c.Lock(first)}, alone{second(c, t.Name()+"-1", t.Name()+"-1b")}, alone{c.Lock(last)}).Lock(t.Context())
			require.NoError(t, err)
			handle, err := h.Detach()
			require.NoError(t, err)
			require.NoError(t, rdb.Del(t.Context(), first).Err())
			transfer := sending(t, "transfer.lua")
			p.Add(faultproxy.Rule{
				Match: func(cmd []string) bool { return transfer(cmd) && slices.Contains(cmd, last) },
				Do:    faultproxy.DropRequest,
			})
			_, err = c.Resume(t.Context(), handle)
			require.ErrorIs(t, err, holdfast.ErrUnavailable)
			eventually(t, "the second member is given back", func() bool {
				return slices.Equal(leftKeys(t, rdb, t.Name()), []string{last})
			})
			require.ErrorIs(t, err, holdfast.ErrLost)
			require.NoError(t, rdb.Del(t.Context(), last).Err(), "it is left to its lease")
		})
	}
}

// A member that was resumed and can't be put back, because its new owner has entered
// it once more, is given back, instead of being renewed for nobody.
func TestResumedMemberThatCannotBePutBack(t *testing.T) {
	p, c := connectVia(t, server, readTimeout(100*time.Millisecond), holdfast.WithLease(never), holdfast.WithCommandTimeout(400*time.Millisecond))
	first, last := t.Name()+"-0", t.Name()+"-1"
	h, err := c.MultiLock(alone{c.Lock(first)}, alone{c.Lock(last)}).Lock(t.Context())
	require.NoError(t, err)
	handle, err := h.Detach()
	require.NoError(t, err)
	transfer := sending(t, "transfer.lua")
	asked := p.Add(faultproxy.Rule{
		Match: func(cmd []string) bool { return transfer(cmd) && slices.Contains(cmd, last) },
		Do:    faultproxy.DropRequest,
	})
	ctx := holdfast.WithOwnerID(t.Context(), t.Name())
	call := async(func() (*holdfast.Hold, error) { return c.Resume(ctx, handle) })
	<-asked.Done()
	in, err := c.Lock(first).Lock(ctx)
	require.NoError(t, err)
	require.ErrorIs(t, await(t, call, prompt, "its patience is over").err, holdfast.ErrUnavailable)
	eventually(t, "the resumed hold is given back", func() bool {
		n, err := c.Lock(first).HoldCount(ctx)
		return err == nil && n == 1
	})
	require.NoError(t, in.Unlock(t.Context()))
	rdb := server.Client(t)
	require.Equal(t, []string{last}, leftKeys(t, rdb, t.Name()))
	require.NoError(t, rdb.Del(t.Context(), last).Err(), "it is left to its lease")
}

// Who left a resumption makes the handle good again behind: until that is done
// other calls with it wait, whoever they are.
func TestResumeLeftAndTriedAgain(t *testing.T) {
	for name, lock := range map[string]func(t *testing.T, c *holdfast.Client) rlock.Locker{
		"one": func(t *testing.T, c *holdfast.Client) rlock.Locker { return c.Lock(t.Name()) },
		"multi": func(t *testing.T, c *holdfast.Client) rlock.Locker {
			return c.MultiLock(members(t, c, multiWays["one call"], 3)...)
		},
		"nested": func(t *testing.T, c *holdfast.Client) rlock.Locker {
			return c.MultiLock(c.MultiLock(members(t, c, multiWays["one call"], 3)...), c.Lock(t.Name()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, c := connectVia(t, server, readTimeout(never), holdfast.WithLease(never), holdfast.WithCommandTimeout(time.Minute))
			h, err := lock(t, c).Lock(t.Context())
			require.NoError(t, err)
			handle, err := h.Detach()
			require.NoError(t, err)
			resume := func(ctx context.Context) func() (*holdfast.Hold, error) {
				return func() (*holdfast.Hold, error) { return c.Resume(ctx, handle) }
			}
			at := int32(2)
			if name == "one" {
				at = 1
			}
			arrives := make(chan struct{})
			held := p.Add(faultproxy.Rule{Match: nth(at, sending(t, "transfer.lua")), Times: 1, Do: faultproxy.HoldReply(arrives)})
			ctx, cancel := context.WithCancel(t.Context())
			call := async(resume(ctx))
			<-held.Done()
			cancel()
			require.ErrorIs(t, await(t, call, prompt, "the caller leaves").err, context.Canceled)

			ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, err = c.Resume(ctx, handle)
			require.ErrorIs(t, err, context.DeadlineExceeded, "nobody has it for good")
			require.NotErrorIs(t, err, holdfast.ErrLost)

			again := async(resume(t.Context()))
			close(arrives)
			r := await(t, again, prompt, "the handle is good again")
			require.NoError(t, r.err)
			_, err = c.Resume(t.Context(), handle)
			require.ErrorIs(t, err, holdfast.ErrLost, "it works once")
			require.NoError(t, r.hold.Unlock(t.Context()))

			down := async(func() (*holdfast.Hold, error) { return nil, c.Shutdown(t.Context()) })
			require.NoError(t, await(t, down, prompt, "nothing is left that a shutdown waits for").err)
		})
	}
}

// Of two who resume at once one has the hold.
func TestResumedTwiceAtOnce(t *testing.T) {
	p, c := connectVia(t, server, readTimeout(never), holdfast.WithLease(never))
	h, err := c.Lock(t.Name()).Lock(t.Context())
	require.NoError(t, err)
	handle, err := h.Detach()
	require.NoError(t, err)
	arrives := make(chan struct{})
	held := p.Add(faultproxy.Rule{Match: sending(t, "transfer.lua"), Times: 1, Do: faultproxy.HoldReply(arrives)})
	resume := func() (*holdfast.Hold, error) { return c.Resume(t.Context(), handle) }
	first := async(resume)
	<-held.Done()
	second := async(resume)
	close(arrives)
	r := await(t, first, prompt, "the first has it")
	require.NoError(t, r.err)
	require.ErrorIs(t, await(t, second, prompt, "the second has not").err, holdfast.ErrLost)
	require.NoError(t, r.hold.Unlock(t.Context()))
}
