package rlimiter

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// Server is what the package's tests share; each uses names of its own.
func Server() *redistest.Server { return server }

// Scripts is how many scripts it has run.
func Scripts(t testing.TB) (n int) {
	t.Helper()
	info, err := server.Client(t).InfoMap(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	for _, name := range []string{"cmdstat_evalsha", "cmdstat_eval"} {
		var calls int
		if stats, ok := info["Commandstats"][name]; ok {
			_, err := fmt.Sscanf(stats, "calls=%d", &calls)
			require.NoError(t, err)
		}
		n += calls
	}
	return n
}

// permitsOf is how many permits a member of the sorted set stands for.
func permitsOf(member string) int64 {
	return int64(binary.LittleEndian.Uint32([]byte(member[len(member)-4:])))
}

// Grant is one grant as it stands in Redis.
type Grant struct {
	Member string
	At, N  int64 // ms of the server's clock; permits
}

// Grants are those in the window over all clients of a name, oldest first.
func Grants(t testing.TB, name string) (all []Grant) {
	t.Helper()
	zs, err := server.Client(t).ZRangeWithScores(context.Background(), "{"+name+"}:permits", 0, -1).Result()
	require.NoError(t, err)
	for _, z := range zs {
		m := z.Member.(string)
		all = append(all, Grant{m[:17], int64(z.Score), permitsOf(m)})
	}
	return all
}
