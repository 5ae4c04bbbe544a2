//go:build unix

package scenario

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/internal/topology"
	"github.com/holdfast-go/holdfast/internal/locktest"
)

// childEnv makes a test binary a holder that is going to be stopped: the name of
// its lock, and the endpoint as JSON.
const childEnv = "HOLDFAST_SCENARIO_HOLDER"

const (
	stoppedLease = time.Second
	stoppedFor   = 2 * stoppedLease
)

// Child is what a TestMain calls first: where the process is the child of Stopped it
// plays its part and doesn't return.
func Child() {
	name, endpoint, ok := strings.Cut(os.Getenv(childEnv), " ")
	if !ok {
		return
	}
	if err := hold(name, endpoint); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// hold is stopped for longer than the lease of its hold.
func hold(name, endpoint string) error {
	var e topology.Endpoint
	if err := json.Unmarshal([]byte(endpoint), &e); err != nil {
		return err
	}
	c, err := holdfast.New(e.Client(), holdfast.WithLease(stoppedLease))
	if err != nil {
		return err
	}
	return errors.Join(locktest.HoldThroughStop(c.Lock(name), stoppedFor), c.Close())
}

// Stopped is A15 for a process that stands still for longer than its lease: at its
// first look it knows, and the other's hold isn't touched. The TestMain has to call
// Child.
func (p Place) Stopped(t *testing.T) {
	endpoint, err := json.Marshal(p.Endpoint)
	require.NoError(t, err)
	name := strings.ReplaceAll(t.Name(), " ", "-")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+name+" "+string(endpoint))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill() // it has ended already, if all went well
		_ = cmd.Wait()         // killed, or ended: either is an error here that says nothing
	}()
	lines := bufio.NewScanner(out)
	says := func(want string) {
		t.Helper()
		require.True(t, lines.Scan(), "the process has ended")
		require.Equal(t, want, lines.Text())
	}
	says("held")
	require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
	at := time.Now()
	h, err := p.Connect(t).Lock(name).TryLock(t.Context(), holdfast.Wait(2*prompt))
	require.NoError(t, err, "the lease of a stopped process doesn't end")
	<-time.After(time.Until(at.Add(stoppedFor + 200*time.Millisecond)))
	require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	says("true true") // the first look at the context
	says("true true") // the unlock
	require.NoError(t, h.Unlock(t.Context()), "the other's hold was touched")
}
