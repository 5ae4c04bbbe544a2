package rlatch

import (
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
