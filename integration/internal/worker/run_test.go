package worker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/integration/internal/history"
	"github.com/holdfast-go/holdfast/integration/internal/register"
)

// runWorkers lets n processes work for d, and answers what they wrote.
func runWorkers(t *testing.T, n int, d time.Duration, mod func(*Config)) *history.History {
	t.Helper()
	require.NoError(t, server.Client(t).FlushAll(t.Context()).Err())
	dir, epoch := t.TempDir(), history.Now()
	guarded, err := register.Listen()
	require.NoError(t, err)
	defer guarded.Close()
	var paths []string
	var ends []func() error
	for i := range n {
		c := Config{
			Process: i + 1, Seed: 1, Goroutines: 8, Addrs: []string{server.Addr()}, Epoch: epoch,
			History: filepath.Join(dir, fmt.Sprintf("%d.jsonl", i+1)),
			Lease:   time.Second, Generation: time.Second, Register: guarded.Addr(),
		}
		if mod != nil {
			mod(&c)
		}
		paths = append(paths, c.History)
		ends = append(ends, start(t, c))
	}
	<-time.After(d)
	for _, end := range ends {
		require.NoError(t, end())
	}
	h, err := history.Load(paths...)
	require.NoError(t, err)

	last := filepath.Join(dir, "0.jsonl")
	w, err := history.Create(last, history.Judge)
	require.NoError(t, err)
	require.NoError(t, Conserve(t.Context(), Config{Addrs: []string{server.Addr()}, Lease: time.Second}, h, w))
	require.NoError(t, w.Close())
	h, err = history.Load(append(paths, last)...)
	require.NoError(t, err)
	return h
}

// start starts a process, and answers how to end it.
func start(t *testing.T, c Config) (end func() error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), asWorker+"=1")
	var says bytes.Buffer
	cmd.Stdout, cmd.Stderr = &says, &says
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	require.NoError(t, json.NewEncoder(in).Encode(c))
	return func() error {
		if err := in.Close(); err != nil {
			return err
		}
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("%w: %s", err, says.String())
		}
		return nil
	}
}

// Two processes on one server that nobody disturbs: nothing is wrong, and the
// history tells of all that can happen.
func TestTwoProcesses(t *testing.T) {
	h := runWorkers(t, 2, 2*time.Second, nil)
	v := history.Check(h, history.Options{})
	t.Log(v)
	for _, x := range v.Violations {
		t.Error(x)
	}
	require.Zero(t, v.Open)
	require.Len(t, h.Reports, 2)
	require.Greater(t, v.Calls, 100)
	seen := make(map[history.Kind]map[history.Call]map[history.Outcome]int)
	for _, op := range h.Ops {
		if seen[op.Kind] == nil {
			seen[op.Kind] = make(map[history.Call]map[history.Outcome]int)
		}
		if seen[op.Kind][op.Call] == nil {
			seen[op.Kind][op.Call] = make(map[history.Outcome]int)
		}
		seen[op.Kind][op.Call][op.Outcome]++
		if op.Outcome == history.Failed || op.Outcome == history.Unknown && op.Error != "" && testing.Verbose() {
			t.Log(op, op.Error)
		}
	}
	for k, calls := range seen {
		t.Log(k, calls)
	}
}
