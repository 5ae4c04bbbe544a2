// Package examples runs every example as what it is: a program.
package examples

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// programs are the examples: the line that each ends with, and, where it can be
// run without its protection, what it then complains of.
var programs = map[string]struct{ says, without, complains string }{
	"api":     {"20 calls, 5 in any 500ms", "limiter", "20 calls took"},
	"batch":   {"4 pods started, each of them when all were ready", "latch", "were ready"},
	"layers":  {says: "three layers, one lock; the balance is 70"},
	"nightly": {"one report was made", "lock", "the report was made"},
	"orders":  {"2 tickets, 2 sold", "lock", "2 tickets were there, and"},
	"payment": {"25 paid, 25 booked", "lock", "25 were paid, and"},
	"pool":    {"10 queries, never more than 3 at a time; all 3 permits are back", "permits", "too many connections"},

	"writebehind": {"the counter is 11", "fence", "the counter is 10"},
}

func TestExamples(t *testing.T) {
	bin := build(t)
	server := redistest.Start(t)
	rdb := server.Client(t)
	for name, p := range programs {
		program := filepath.Join(bin, name)
		t.Run(name, func(t *testing.T) {
			code, out, errs := run(t, server.URL(), program)
			require.Zero(t, code, "%s%s", out, errs)
			lines := strings.Split(strings.TrimSpace(out), "\n")
			require.Equal(t, p.says, strings.TrimSpace(lines[len(lines)-1]), out)
			require.Empty(t, errs)
			left, err := rdb.Keys(t.Context(), "*").Result()
			require.NoError(t, err)
			require.Empty(t, left, "it left something behind")
		})
		t.Run(name+" on a server of its own", func(t *testing.T) {
			code, out, errs := run(t, "", program)
			require.Zero(t, code, "%s%s", out, errs)
			require.Contains(t, out, p.says)
		})
		if p.without == "" {
			continue
		}
		t.Run(name+" without its "+p.without, func(t *testing.T) {
			code, out, errs := run(t, server.URL(), program, "-without-"+p.without)
			require.Equal(t, 1, code, out)
			require.Contains(t, errs, p.complains)
		})
	}
	t.Run("without Redis", func(t *testing.T) { // the same for all
		code, _, errs := run(t, "redis://127.0.0.1:1", filepath.Join(bin, "orders"))
		require.Equal(t, 1, code)
		require.Contains(t, errs, "ask Redis")
	})
}

// Each example is run here, and has its line in the README.
func TestEachExampleIsKnown(t *testing.T) {
	found, err := filepath.Glob("*/main.go")
	require.NoError(t, err)
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for i, path := range found {
		found[i] = filepath.Dir(path)
		require.Contains(t, programs, found[i])
		require.Contains(t, string(readme), "]("+found[i]+")", "no line in README.md")
	}
	require.Len(t, found, len(programs))
}

// build makes all programs, with the race detector if this test has it.
func build(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	args := []string{"build", "-o", dir + string(filepath.Separator)}
	if race {
		args = append(args, "-race")
	}
	out, err := exec.CommandContext(t.Context(), "go", append(args, "./...")...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return dir
}

// run runs a program with the Redis at url, or none.
func run(t *testing.T, url string, program string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	const limit = time.Minute // for a busy machine
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "HOLDFAST_REDIS_URL="+url, "GORACE=atexit_sleep_ms=0")
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	require.NoError(t, ctx.Err(), "it doesn't end:\n%s%s", &out, &errs)
	require.NotNil(t, cmd.ProcessState, "%v", err)
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}
