package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestExitCodeIsTheCommands(t *testing.T) {
	for want, args := range map[int][]string{
		0:   {"--", "true"},
		1:   {"false"},
		42:  {"--", "sh", "-c", "exit 42"},
		137: {"sh", "-c", "kill -KILL $$"},
	} {
		t.Run(fmt.Sprint(want), func(t *testing.T) {
			code, _, stderr := holdfastRun(t, append([]string{"run", lockName(t)}, args...)...)
			require.Equal(t, want, code)
			require.Empty(t, stderr, "that is the command's own doing")
			requireFree(t, lockName(t))
		})
	}
}

func TestCommandGetsStreamsAndEnvironment(t *testing.T) {
	// As in a run within a run: what the outer one said must not show.
	c := begin(t, []string{"HOLDFAST_NAME=outer", "HOLDFAST_OWNER=outer", "HOLDFAST_TOKEN=7", urlVariable + "="},
		"run", lockName(t), "--redis", shared.URL(), "--", "sh", "-c",
		`echo "$HOLDFAST_NAME"; echo "$HOLDFAST_OWNER"; echo "${HOLDFAST_TOKEN-unset}"; echo "$HOLDFAST_REDIS_URL"; echo oops >&2; cat`)
	require.Equal(t, lockName(t), c.line())
	owner := c.line()
	require.Equal(t, "unset", c.line())
	require.Empty(t, c.line(), "the URL isn't handed on")

	fields, err := rdb(t).HGetAll(t.Context(), lockName(t)).Result()
	require.NoError(t, err)
	require.Equal(t, map[string]string{owner: "1"}, fields, "the lock is held while the command runs")

	_, err = fmt.Fprintln(c.stdin, "hello")
	require.NoError(t, err)
	require.Equal(t, "hello", c.line())
	require.NoError(t, c.stdin.Close())
	code, _, stderr := c.end()
	require.Zero(t, code)
	require.Equal(t, "oops\n", stderr)
	requireFree(t, lockName(t))
}

func TestTaken(t *testing.T) {
	hold, err := client(t).Lock(lockName(t)).Lock(t.Context())
	require.NoError(t, err)
	for _, args := range [][]string{{"run", lockName(t)}, {"run", lockName(t), "--wait", "100ms"}} {
		var code int
		var stdout, stderr string
		for range 4 { // on a busy machine nobody may answer in such a time
			if code, stdout, stderr = holdfastRun(t, append(args, "--", "echo", "ran")...); code != exitUnavailable {
				break
			}
		}
		require.Equal(t, exitTaken, code, stderr)
		require.Empty(t, stdout)
		require.Contains(t, stderr, lockName(t))
		require.Regexp(t, `another \d+\.\d+s`, stderr)
	}
	require.NoError(t, hold.Unlock(t.Context()))
}

func TestWaitsUntilItIsFree(t *testing.T) {
	for _, wait := range []string{"30s", "forever"} {
		t.Run(wait, func(t *testing.T) {
			hold, err := client(t).Lock(lockName(t)).Lock(t.Context())
			require.NoError(t, err)
			c := begin(t, nil, "run", lockName(t), "--wait", wait, "echo", "ran")
			awaitWaiter(t, lockName(t))
			require.NoError(t, hold.Unlock(t.Context()))
			code, stdout, _ := c.end()
			require.Zero(t, code)
			require.Equal(t, "ran\n", stdout)
		})
	}
}

// awaitWaiter returns once somebody waits for a lock to be free.
func awaitWaiter(t *testing.T, name string) {
	t.Helper()
	channel := "redisson_lock__channel:{" + name + "}"
	r := rdb(t)
	redistest.Eventually(t, patience, func() bool {
		n, err := r.PubSubNumSub(t.Context(), channel).Result()
		return err == nil && n[channel] > 0
	}, "nobody waits on %s", channel)
}

func TestCommandThatCannotBeRun(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	require.NoError(t, os.WriteFile(text, []byte("no script\n"), 0o600))
	strange := filepath.Join(dir, "strange") // which only the kernel finds out
	require.NoError(t, os.WriteFile(strange, []byte("\x00\x01\x02\x03"), 0o700))
	orphan := filepath.Join(dir, "orphan")
	require.NoError(t, os.WriteFile(orphan, []byte("#!/no/such/interpreter\n"), 0o700))

	for command, want := range map[string]int{
		"no-such-command-anywhere": exitNotFound,
		filepath.Join(dir, "gone"): exitNotFound,
		text:                       exitCannotRun,
		dir:                        exitCannotRun,
		strange:                    exitCannotRun,
		orphan:                     exitNotFound,
	} {
		code, _, stderr := holdfastRun(t, "run", lockName(t), "--", command)
		require.Equal(t, want, code, stderr)
		require.Contains(t, stderr, command)
		requireFree(t, lockName(t))
	}
}

func TestNoAnswerFromRedis(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := holdfastRun(t, "run", "x", "--redis", "redis://:pa55word@127.0.0.1:1", "--", "echo", "ran")
	require.Equal(t, exitUnavailable, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "127.0.0.1:1")
	require.NotContains(t, stderr, "pa55word")
}

func TestRedisRefuses(t *testing.T) {
	srv := redistest.Start(t, "--requirepass", "right")
	for _, args := range [][]string{{"run", "x", "--", "echo", "ran"}, {"demo"}} {
		code, stdout, stderr := holdfastRun(t, append(args[:1:1], append([]string{"--redis", "redis://:pa55word@" + srv.Addr()}, args[1:]...)...)...)
		require.Equal(t, exitDenied, code, stderr)
		require.NotContains(t, stdout, "ran")
		require.NotContains(t, stdout+stderr, "pa55word")
	}
}

// TestLeaseIsRenewed: the command runs longer than the lease.
func TestLeaseIsRenewed(t *testing.T) {
	t.Parallel()
	code, _, stderr := holdfastRun(t, "run", lockName(t), "--watchdog", "3s", "--", "sleep", "4")
	require.Zero(t, code, stderr)
	requireFree(t, lockName(t))
}

func TestFixedLeaseEndsTheCommand(t *testing.T) {
	from := time.Now()
	code, _, stderr := holdfastRun(t, "run", lockName(t), "--lease", "300ms", "--", "sleep", "60")
	require.Equal(t, exitLost, code)
	require.Less(t, time.Since(from), patience)
	require.Contains(t, stderr, "its lease ran out: the command gets SIGTERM")
}
