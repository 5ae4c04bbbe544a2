package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// asProgram makes the test binary the program itself: so the program that is
// tested has the race detector, and so have the pods of its demo.
const asProgram = "HOLDFAST_TEST_AS_PROGRAM"

// patience is for what takes a moment.
const patience = 20 * time.Second

// shared is the Redis server of all tests that don't change it.
var shared *redistest.Server

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	// What is ignored here, in the background of a script or under nohup, children
	// would ignore too.
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGHUP} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	goleak.VerifyTestMain(withServer{m})
}

type withServer struct{ *testing.M }

func (m withServer) Run() int {
	srv, stop, err := redistest.StartMain()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer stop()
	shared = srv
	return m.M.Run()
}

// child is a run of the program.
type child struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan string // of stdout; closed when nobody can write to it any more
	all    bytes.Buffer
	stderr bytes.Buffer
}

// begin starts the program with the shared server in its environment, which
// env adds to.
func begin(t *testing.T, env []string, args ...string) *child {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	c := &child{t: t, cmd: exec.CommandContext(ctx, self, args...), lines: make(chan string, 1000)}
	c.cmd.Env = environ(os.Environ()).with(map[string]string{
		asProgram: "1", urlVariable: shared.URL(), "GORACE": "atexit_sleep_ms=0",
	})
	c.cmd.Env = append(c.cmd.Env, env...)
	c.cmd.Stderr = &c.stderr
	c.stdin, err = c.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.cmd.Start())

	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(c.lines)
		_, _ = io.Copy(io.MultiWriter(&c.all, &splitter{to: c.lines}), out)
	}()
	t.Cleanup(func() {
		cancel()
		<-read
		_ = c.cmd.Wait() // of tests that didn't
	})
	return c
}

// splitter sends whole lines on.
type splitter struct {
	rest []byte
	to   chan<- string
}

func (s *splitter) Write(b []byte) (int, error) {
	s.rest = append(s.rest, b...)
	for {
		line, rest, ok := bytes.Cut(s.rest, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		s.to <- string(line)
		s.rest = rest
	}
}

// line answers the next line of stdout.
func (c *child) line() string {
	c.t.Helper()
	select {
	case l, ok := <-c.lines:
		if !ok {
			_ = c.cmd.Wait() // so that stderr is complete
			c.t.Fatalf("the output ended; stderr: %s", c.stderr.String())
		}
		return l
	case <-time.After(patience):
		c.t.Fatal("no output")
	}
	return ""
}

func (c *child) signal(s os.Signal) {
	c.t.Helper()
	require.NoError(c.t, c.cmd.Process.Signal(s))
}

// end answers the exit code, and everything on stdout, when the program and all
// that it left behind have ended.
func (c *child) end() (code int, stdout, stderr string) {
	c.t.Helper()
	for {
		select {
		case _, ok := <-c.lines:
			if ok {
				continue
			}
		case <-time.After(patience):
			c.t.Fatal("it doesn't end")
		}
		break
	}
	_ = c.cmd.Wait() // its error is the exit code
	return c.cmd.ProcessState.ExitCode(), c.all.String(), c.stderr.String()
}

// holdfastRun is begin and end, without anything on stdin.
func holdfastRun(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	c := begin(t, nil, args...)
	require.NoError(t, c.stdin.Close())
	return c.end()
}

// client is a client of the library on the shared server.
func client(t *testing.T) *holdfast.Client {
	t.Helper()
	c, err := holdfast.Open(shared.URL())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// lockName is a name that no other test has.
func lockName(t *testing.T) string { return strings.ReplaceAll(t.Name(), "/", ":") }

func requireFree(t *testing.T, name string) {
	t.Helper()
	n, err := rdb(t).Exists(t.Context(), name).Result()
	require.NoError(t, err)
	require.Zero(t, n, "the lock is still taken")
}

func rdb(t *testing.T) *redis.Client { return shared.Client(t) }
