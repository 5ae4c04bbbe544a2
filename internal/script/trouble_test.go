package script

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A server that can't be reached is another matter than a caller who left.
func TestTroubleOf(t *testing.T) {
	timedOut := &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}
	for what, c := range map[string]struct {
		err  error
		want int32
	}{
		"the caller left":            {context.Canceled, none},
		"the caller's time was over": {context.DeadlineExceeded, none},
		"a dial that the caller left": {
			fmt.Errorf("redis: %w", &net.OpError{Op: "dial", Err: context.Canceled}), none,
		},
		"a dial that took too long": {fmt.Errorf("redis: %w", timedOut), moved},
		"refused":                   {&net.OpError{Op: "dial", Err: errors.New("connection refused")}, moved},
		"broken":                    {io.EOF, moved},
		"no answer":                 {&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, silent},
		"the pool":                  {redis.ErrPoolTimeout, none},
		"not a master":              {reply("READONLY You can't write against a read only replica."), moved},
		"another reply":             {reply("ERR wrong number of arguments"), none},
	} {
		require.Equal(t, c.want, troubleOf(c.err), what)
	}
}

// Commands that work again after failures tell of it, once, and what they were.
func TestRecovered(t *testing.T) {
	var told []bool
	r := &Runner{Recovered: func(moved bool) { told = append(told, moved) }}
	r.recovered()
	require.Empty(t, told, "nothing had failed")
	r.failed(&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded})
	r.recovered()
	r.recovered()
	require.Equal(t, []bool{false}, told)
	r.failed(io.EOF)
	r.failed(&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded})
	r.failed(context.Canceled)
	r.recovered()
	require.Equal(t, []bool{false, true}, told, "the worst counts")
}
