//go:build unix

package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// script is a shell command that says ready, does what a trap says when it is
// signalled, and never ends by itself. Its sleeps are processes of their own.
func script(traps string) []string {
	return []string{"--", "sh", "-c", traps + "\n" + `echo ready; while :; do sleep 0.05; done`}
}

// lose takes the lock away from its holder.
func lose(t *testing.T) {
	t.Helper()
	n, err := rdb(t).Del(t.Context(), lockName(t)).Result()
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
}

func TestLostHoldTerminatesTheCommand(t *testing.T) {
	c := begin(t, nil, append([]string{"run", lockName(t), "--watchdog", "3s"}, script(`trap 'echo bye; exit 0' TERM`)...)...)
	require.Equal(t, "ready", c.line())
	lose(t)
	require.Equal(t, "bye", c.line())
	code, _, stderr := c.end()
	require.Equal(t, exitLost, code, "whatever the command's own code is")
	require.Contains(t, stderr, "hold lost")
	require.Contains(t, stderr, "the command gets SIGTERM, and in 10s SIGKILL")
	require.NotContains(t, stderr, "it gets SIGKILL")
}

func TestLostHoldKillsAfterGrace(t *testing.T) {
	// A command that doesn't want to go, and a child of it that would stay.
	c := begin(t, nil, append([]string{"run", lockName(t), "--watchdog", "3s", "--grace", "3s"},
		script(`trap 'echo no' TERM; (trap "" TERM; exec sleep 600) &`)...)...)
	require.Equal(t, "ready", c.line())
	lose(t)
	require.Equal(t, "no", c.line())
	code, _, stderr := c.end() // of both: they share stdout
	require.Equal(t, exitLost, code)
	require.Contains(t, stderr, "didn't end within 3s: it gets SIGKILL")
}

func TestLostHoldKillsAtOnceWithoutGrace(t *testing.T) {
	c := begin(t, nil, append([]string{"run", lockName(t), "--watchdog", "3s", "--grace", "0s"}, script(`trap 'echo no' TERM`)...)...)
	require.Equal(t, "ready", c.line())
	lose(t)
	code, stdout, _ := c.end()
	require.Equal(t, exitLost, code)
	require.Equal(t, "ready\n", stdout, "it had no time to say no")
}

// TestLostHoldIsToldAfterTheCommand: nothing was renewed in between, but the
// command wasn't alone any more.
func TestLostHoldIsToldAfterTheCommand(t *testing.T) {
	c := begin(t, nil, "run", lockName(t), "--", "sh", "-c", "echo ready; read line")
	require.Equal(t, "ready", c.line())
	lose(t)
	require.NoError(t, c.stdin.Close())
	code, _, stderr := c.end()
	require.Equal(t, exitLost, code)
	require.Contains(t, stderr, "the lock was lost before the command had ended")
}

func TestSignalsArePassedOn(t *testing.T) {
	for s, name := range map[syscall.Signal]string{
		syscall.SIGHUP: "HUP", syscall.SIGINT: "INT", syscall.SIGTERM: "TERM", syscall.SIGQUIT: "QUIT", syscall.SIGUSR1: "USR1",
	} {
		t.Run(name, func(t *testing.T) {
			c := begin(t, nil, append([]string{"run", lockName(t)}, script("trap 'echo got "+name+"; exit 7' "+name)...)...)
			require.Equal(t, "ready", c.line())
			c.signal(s)
			require.Equal(t, "got "+name, c.line())
			code, _, _ := c.end()
			require.Equal(t, 7, code)
			requireFree(t, lockName(t))
		})
	}
}

func TestCommandThatDiesOfASignal(t *testing.T) {
	c := begin(t, nil, "run", lockName(t), "--", "sh", "-c", "echo ready; exec sleep 60")
	require.Equal(t, "ready", c.line())
	c.signal(syscall.SIGINT)
	code, _, _ := c.end()
	require.Equal(t, exitSignal+2, code)
	requireFree(t, lockName(t))
}

// TestCtrlZDoesNotStopRenewal: the command, in a group of its own, would go on.
func TestCtrlZDoesNotStopRenewal(t *testing.T) {
	t.Parallel()
	c := begin(t, nil, "run", lockName(t), "--watchdog", "3s", "--", "sh", "-c", "echo ready; sleep 4; echo done")
	require.Equal(t, "ready", c.line())
	c.signal(syscall.SIGTSTP)
	require.Equal(t, "done", c.line())
	code, _, stderr := c.end()
	require.Zero(t, code, stderr)
}

func TestSignalEndsTheWait(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(s.String(), func(t *testing.T) {
			hold, err := client(t).Lock(lockName(t)).Lock(t.Context())
			require.NoError(t, err)
			c := begin(t, nil, "run", lockName(t), "--wait", "forever", "--", "echo", "ran")
			awaitWaiter(t, lockName(t))
			c.signal(s)
			code, stdout, stderr := c.end()
			require.Equal(t, exitSignal+int(s), code)
			require.Empty(t, stdout)
			require.Equal(t, "holdfast: stopped by a signal: "+s.String(), strings.TrimSpace(stderr))

			require.NoError(t, hold.Unlock(t.Context()))
			requireFree(t, lockName(t))
		})
	}
}
