package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/integration/internal/topology"
)

// The test binary is also the client process, as the program is.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(clientMain(role))
	}
	goleak.VerifyTestMain(m)
}

// play makes a short run, and answers its exit code, its output and its last line.
func play(t *testing.T, args ...string) (code int, output, last string) {
	t.Helper()
	var out bytes.Buffer
	code = chaos(t.Context(), append([]string{"-clients", "3", "-goroutines", "4", "-v"}, args...), &out)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	return code, out.String(), lines[len(lines)-1]
}

func TestShortRunOfASingleServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	code, output, last := play(t, "-topology", "single", "-duration", "6s", "-seed", "7", "-out", dir)
	require.Equal(t, passed, code, output)
	require.True(t, strings.HasPrefix(last, "PASS: single, seed 7"), last)
	require.NotContains(t, last, " 0 operations")
	require.NotContains(t, last, " 0 faults")
	require.NoDirExists(t, dir, "all was well")
}

// A run that can't fail would prove nothing: clients that are broken on purpose
// must be noticed, and what shows it kept.
func TestBrokenClientsAreNoticed(t *testing.T) {
	for _, control := range []string{trespasser, deaf} {
		t.Run(control, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "out")
			code, output, last := play(t, "-duration", "3s", "-faults", noFaults, "-control", control, "-out", dir)
			require.Equal(t, violated, code, output)
			require.True(t, strings.HasPrefix(last, "FAIL: single"), last)
			require.Contains(t, output, "VIOLATION: ")
			require.NotContains(t, output, "by itself", "the control could not do what it was for")
			require.Contains(t, output, dir, "nobody is told where to look")
			for _, name := range []string{
				"violations.txt", "schedule.txt", "nemesis.jsonl", "client-01.jsonl", "client-01.log",
				"servers/server/server.log", "verdict/verdict.txt", "verdict/history.jsonl", "verdict/*.html",
			} {
				found, err := filepath.Glob(filepath.Join(dir, name))
				require.NoError(t, err)
				require.NotEmpty(t, found, name)
			}
		})
	}
}

func TestScheduleDependsOnTheSeedAlone(t *testing.T) {
	for _, k := range []topology.Kind{topology.Single, topology.Sentinel, topology.Cluster} {
		all := kindsFor(k)
		one := plan(all, 1, 10*time.Minute)
		require.Equal(t, one, plan(all, 1, 10*time.Minute))
		require.NotEqual(t, one, plan(all, 2, 10*time.Minute))
		end := map[lane]time.Duration{}
		for _, e := range one {
			l := kindOf(e.Kind).lane
			require.GreaterOrEqual(t, e.At, end[l], "two faults of lane %s at the same time", l)
			end[l] = e.At + e.For
			require.LessOrEqual(t, end[l], 10*time.Minute-quiet)
		}
		// Each kind comes, in the short form too.
		seen := map[string]bool{}
		for _, e := range plan(all, 1, 30*time.Second) {
			seen[e.Kind] = true
		}
		for _, k := range all {
			require.True(t, seen[k.name], "%s of lane %s doesn't happen within 30s", k.name, k.lane)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		{"-topology", "ring"},
		{"-topology", "replicated"},
		{"-duration", "1ms"},
		{"-clients", "0"},
		{"-faults", "no-such-fault"},
		{"-no-such-flag"},
		{"argument"},
	} {
		code, output, _ := play(t, args...)
		require.Equal(t, usage, code, "%v: %s", args, output)
	}
	code, output, _ := play(t, "-list", "-topology", "cluster")
	require.Equal(t, passed, code)
	require.Contains(t, output, "move-slowly")
}

// Whoever stops a run finds no server and no client of it afterwards.
func TestInterruptedRunLeavesNoProcess(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	out := &watched{seen: make(chan struct{}), word: "begins"}
	dir := filepath.Join(t.TempDir(), "out")
	done := make(chan int, 1)
	go func() {
		done <- chaos(ctx, []string{"-duration", "1m", "-clients", "2", "-v", "-out", dir}, out)
	}()
	select {
	case <-out.seen: // a fault: all is running
	case <-time.After(time.Minute):
		t.Fatal("no fault")
	}
	stop()
	require.Equal(t, broken, <-done)
	require.Empty(t, children(t))
}

// children are the processes that this one has started and that are still there.
func children(t *testing.T) (pids []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		// pid (name) state parent …
		pid, rest, _ := bytes.Cut(stat, []byte(" ("))
		fields := bytes.Fields(rest[bytes.LastIndexByte(rest, ')')+1:])
		if string(fields[1]) == strconv.Itoa(os.Getpid()) {
			n, err := strconv.Atoi(string(pid))
			require.NoError(t, err)
			pids = append(pids, n)
		}
	}
	return pids
}

// watched tells when a word is written.
type watched struct {
	bytes.Buffer
	word string
	seen chan struct{}
	told bool
}

func (w *watched) Write(p []byte) (int, error) {
	if !w.told && bytes.Contains(p, []byte(w.word)) {
		w.told = true
		close(w.seen)
	}
	return w.Buffer.Write(p)
}
