package suites

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/internal/scenario"
	"github.com/holdfast-go/holdfast/integration/internal/topology"
)

// serversEnv names the servers of TestVersions, as PATH does folders. Without it
// they are those that scripts/servers.sh has fetched.
const serversEnv = "HOLDFAST_TEST_SERVERS"

// fetched is how many there are if none is missing.
const fetched = 3

func servers(t *testing.T) []string {
	t.Helper()
	if list := os.Getenv(serversEnv); list != "" {
		return filepath.SplitList(list)
	}
	found, err := filepath.Glob("../../.cache/servers/*")
	require.NoError(t, err)
	if len(found) < fetched {
		text := fmt.Sprintf("NOT RUN: OTHER SERVER VERSIONS, OF WHICH %d OF %d ARE HERE: RUN scripts/servers.sh OR SET %s", len(found), fetched, serversEnv)
		fmt.Fprintln(os.Stderr, text)
		if os.Getenv("CI") == "true" {
			t.Error(text)
		}
	}
	return found
}

// Every script, and what is around them, on other servers than the one from PATH,
// on which all the other tests run: what works alone may fail on a cluster, or on a
// server that knows no sharded channels.
func TestVersions(t *testing.T) {
	for _, binary := range servers(t) {
		for _, kind := range []topology.Kind{topology.Single, topology.Cluster} {
			t.Run(filepath.Base(binary)+"/"+string(kind), func(t *testing.T) {
				t.Parallel()
				top := topology.Run(t, kind, topology.Options{Binary: binary, DownAfter: quiet})
				info, err := top.Nodes()[0].Admin().Info(t.Context(), "server").Result()
				require.NoError(t, err)
				for line := range strings.Lines(info) {
					if strings.HasPrefix(line, "redis_version:") || strings.HasPrefix(line, "valkey_version:") {
						t.Log(strings.TrimSpace(line))
					}
				}
				p := scenario.On(top)
				t.Run("Contract", func(t *testing.T) { t.Parallel(); p.Contract(t, scenario.Locks()[0]) })
				t.Run("Smoke", func(t *testing.T) { t.Parallel(); p.Smoke(t) })
				t.Run("A18A19PermitsCountOnce", func(t *testing.T) { t.Parallel(); p.PermitsCountOnce(t) })
				if kind == topology.Cluster {
					t.Run("A45SlotMoves", func(t *testing.T) { t.Parallel(); scenario.SlotMovesWhileSomeoneWaits(t, top, holdfast.Auto) })
				}
			})
		}
	}
}
