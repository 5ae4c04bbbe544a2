package script

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// unanswered is a server that fails each command after a while.
type unanswered struct {
	after time.Duration
	err   error
	sent  int
}

func (u *unanswered) DialHook(next redis.DialHook) redis.DialHook { return next }

func (u *unanswered) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		u.sent++
		time.Sleep(u.after)
		cmd.SetErr(u.err)
		return u.err
	}
}

func (u *unanswered) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A server that is silent costs a read timeout each time, and no pause on top, in which
// a failover may have ended; one that fails at once isn't hammered.
func TestPausesCountFromTheSending(t *testing.T) {
	const patience = 10 * time.Second
	timeout := &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	for name, c := range map[string]struct {
		server      unanswered
		least, most int
	}{
		"silent":  {unanswered{after: 500 * time.Millisecond, err: timeout}, 19, 20},
		"refuses": {unanswered{err: errors.New("connection refused")}, 20, 50},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
				defer rdb.Close()
				rdb.AddHook(&c.server)
				now := time.Now()
				r := NewRunner(rdb, slog.New(slog.DiscardHandler), nil).Do(t.Context(), now, now.Add(patience), NewCall(New("nothing", "return 1"), []string{"key"}))
				require.Error(t, r.Err)
				require.GreaterOrEqual(t, c.server.sent, c.least)
				require.LessOrEqual(t, c.server.sent, c.most)
			})
		})
	}
}
