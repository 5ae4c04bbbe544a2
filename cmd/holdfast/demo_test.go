package main

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// verdict is the last line of demo --json.
type verdict struct {
	Event string
	OK    bool
	result
}

func decode[T any](t *testing.T, line string) (v T) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(line), &v), line)
	return v
}

func TestDemoForPrograms(t *testing.T) {
	t.Parallel()
	c := begin(t, []string{urlVariable + "="}, "demo", "--json")
	code, stdout, stderr := c.end()
	require.Zero(t, code, stdout+stderr)
	require.Empty(t, stderr)

	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	acts := map[string]bool{}
	last := 0.0
	for _, l := range lines[:len(lines)-1] {
		e := decode[event](t, l)
		require.NotEmpty(t, e.Event, l)
		require.NotEmpty(t, e.Text, l)
		require.GreaterOrEqual(t, e.At, last)
		last = e.At
		acts[e.Act] = true
	}
	require.Len(t, acts, 5)

	v := decode[verdict](t, lines[len(lines)-1])
	require.Equal(t, "verdict", v.Event)
	require.True(t, v.OK)
	require.Len(t, v.Checks, 5)
	for _, c := range v.Checks {
		require.True(t, c.OK, c.Name)
	}
	require.Equal(t, 1, v.NightlyRuns)
	require.Equal(t, demoStock, v.SoldLocked)
	require.Zero(t, v.LowestLocked)
	require.Equal(t, demoPods*demoStock, v.SoldUnlocked, "each of them sells each item")
	require.Equal(t, demoStock-demoPods*demoStock, v.LowestUnlocked)
	require.Equal(t, demoLease.Seconds(), v.Lease)
	require.Greater(t, v.Takeover, demoLease.Seconds()/2)
	require.Less(t, v.Takeover, (demoLease + demoSlack).Seconds())
}

func TestDemoForPeople(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--requirepass", "pa55word")
	c := begin(t, []string{"TERM=xterm-256color"}, "demo", "--redis", srv.URL())
	code, stdout, stderr := c.end()
	require.Zero(t, code, stdout+stderr)
	require.Contains(t, stdout, "every check holds")
	require.NotContains(t, stdout, "\x1b", "this is no terminal")
	require.NotContains(t, stdout+stderr, "pa55word")

	keys, err := srv.Client(t).Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.Empty(t, keys, "it cleans up")
}

// podProcess answers the process of the first pod that comes up.
func podProcess(t *testing.T, c *child) *os.Process {
	t.Helper()
	for {
		if e := decode[event](t, c.line()); e.Event == podUp {
			pid, err := strconv.Atoi(strings.TrimPrefix(e.Text, "up, process "))
			require.NoError(t, err)
			p, err := os.FindProcess(pid)
			require.NoError(t, err)
			return p
		}
	}
}

func TestDemoFailsWithItsPods(t *testing.T) {
	t.Parallel()
	c := begin(t, nil, "demo", "--json")
	require.NoError(t, podProcess(t, c).Kill())
	code, stdout, _ := c.end()
	require.Equal(t, exitFailed, code)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	v := decode[verdict](t, lines[len(lines)-1])
	require.False(t, v.OK)
	last := v.Checks[len(v.Checks)-1]
	require.Equal(t, "finished", last.Name)
	require.False(t, last.OK)
	require.Contains(t, last.Text, "its process has ended: signal: killed")
}

func TestDemoEndsWithItsPods(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]os.Signal{"interrupted": os.Interrupt, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := begin(t, nil, "demo", "--json")
			podProcess(t, c)
			c.signal(s)
			from := time.Now()
			code, _, stderr := c.end() // pods have its stderr
			require.Less(t, time.Since(from), patience)
			if s == os.Interrupt {
				require.Equal(t, exitSignal+2, code)
				require.Contains(t, stderr, "stopped by a signal: interrupt")
			}
		})
	}
}

func TestDemoWithoutRedis(t *testing.T) {
	t.Parallel()
	code, _, stderr := holdfastRun(t, "demo", "--redis", "redis://:pa55word@127.0.0.1:1")
	require.Equal(t, exitUnavailable, code)
	require.NotContains(t, stderr, "pa55word")
}
