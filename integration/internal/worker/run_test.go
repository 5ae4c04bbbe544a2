package worker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/integration/internal/history"
	"github.com/holdfast-go/holdfast/integration/internal/register"
)

// party is some processes on one server.
type party struct {
	*testing.T
	dir   string
	paths []string
	all   []*client
}

type client struct {
	*exec.Cmd
	in   io.WriteCloser
	says bytes.Buffer
}

// begin starts n processes.
func begin(t *testing.T, n int) *party {
	t.Helper()
	require.NoError(t, server.Client(t).FlushAll(t.Context()).Err())
	guarded, err := register.Listen()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, guarded.Close()) })
	p, epoch := &party{T: t, dir: t.TempDir()}, history.Now()
	for i := range n {
		c := Config{
			Process: i + 1, Seed: 1, Goroutines: 8, Addrs: []string{server.Addr()}, Epoch: epoch,
			History: filepath.Join(p.dir, fmt.Sprintf("%d.jsonl", i+1)),
			Lease:   time.Second, Generation: time.Second, Register: guarded.Addr(),
		}
		cmd := &client{Cmd: exec.CommandContext(t.Context(), os.Args[0])}
		cmd.Env = append(os.Environ(), asWorker+"=1")
		cmd.Stdout, cmd.Stderr = &cmd.says, &cmd.says
		cmd.in, err = cmd.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		require.NoError(t, json.NewEncoder(cmd.in).Encode(c))
		p.paths, p.all = append(p.paths, c.History), append(p.all, cmd)
	}
	return p
}

// end waits for a process that was told to end.
func (p *party) end(c *client) {
	p.Helper()
	require.NoError(p, c.Wait(), c.says.String())
}

// history is what all have written, with the permits that are left.
func (p *party) history() *history.History {
	p.Helper()
	h, err := history.Load(p.paths...)
	require.NoError(p, err)
	last := filepath.Join(p.dir, "0.jsonl")
	w, err := history.Create(last, history.Judge)
	require.NoError(p, err)
	require.NoError(p, Conserve(p.Context(), Config{Addrs: []string{server.Addr()}, Lease: time.Second}, h, w))
	require.NoError(p, w.Close())
	h, err = history.Load(append(p.paths, last)...)
	require.NoError(p, err)
	return h
}

// check fails for all that is wrong.
func check(t *testing.T, h *history.History) history.Verdict {
	t.Helper()
	v := history.Check(h, history.Options{})
	t.Log(v)
	for _, x := range v.Violations {
		t.Error(x)
	}
	return v
}

// Two processes on one server that nobody disturbs: nothing is wrong, and the
// history tells of all primitives. One is told to stop by its input, one by a
// signal.
func TestTwoProcesses(t *testing.T) {
	p := begin(t, 2)
	<-time.After(2 * time.Second)
	require.NoError(t, p.all[0].in.Close())
	require.NoError(t, p.all[1].Process.Signal(syscall.SIGTERM))
	p.end(p.all[0])
	p.end(p.all[1])

	h := p.history()
	v := check(t, h)
	require.Zero(t, v.Open)
	require.Len(t, h.Reports, 2)
	done := make(map[history.Kind]int)
	for _, op := range h.Ops {
		if op.Outcome == history.Done && op.Process != history.Judge {
			done[op.Kind]++
		}
	}
	t.Log(done)
	for _, k := range append([]history.Kind{history.Register}, All...) {
		require.NotZero(t, done[k], k)
	}
}

// One that is killed leaves its calls open, and takes its permits along; all else
// it held comes back.
func TestKilledProcess(t *testing.T) {
	p := begin(t, 2)
	<-time.After(time.Second)
	victim := 1
	path := filepath.Join(p.dir, "nemesis.jsonl")
	w, err := history.Create(path, history.Judge)
	require.NoError(t, err)
	w.Begins(history.Event{What: "kill", Process: &victim, Killed: true})
	require.NoError(t, w.Close())
	require.NoError(t, p.all[0].Process.Kill())
	require.Error(t, p.all[0].Wait())
	<-time.After(time.Second)
	require.NoError(t, p.all[1].in.Close())
	p.end(p.all[1])

	p.paths = append(p.paths, path)
	h := p.history()
	check(t, h)
	require.Len(t, h.Reports, 1)
}

// What makes no sense is refused before anything is done.
func TestConfig(t *testing.T) {
	for want, c := range map[string]Config{
		"no address":        {History: "h"},
		"no file":           {Addrs: []string{"a"}},
		"nobody knows":      {Addrs: []string{"a"}, History: "h", Kinds: []history.Kind{"door"}},
		"-1 goroutines":     {Addrs: []string{"a"}, History: "h", Goroutines: -1},
		"topology \"ring\"": {Addrs: []string{"a"}, History: filepath.Join(t.TempDir(), "h"), Topology: "ring"},
	} {
		require.ErrorContains(t, Run(t.Context(), c), want)
	}
}
