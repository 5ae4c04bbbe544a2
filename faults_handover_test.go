package holdfast_test

import (
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
			h, err := c.MultiLock(c.Lock(first), second(c, t.Name()+"-1", t.Name()+"-1b"), c.Lock(last)).Lock(t.Context())
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
			require.ErrorIs(t, err, holdfast.ErrLost)
			eventually(t, "the second member is given back", func() bool {
				return slices.Equal(leftKeys(t, rdb, t.Name()), []string{last})
			})
		})
	}
}
