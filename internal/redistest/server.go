package redistest

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	startTimeout = 10 * time.Second
	portAttempts = 20
)

// Server is one server process. Its address stays the same over Kill and
// Restart. The methods may be called from any goroutine.
type Server struct {
	tb       testing.TB // nil for a server of StartMain
	bin      string
	dir      string
	args     []string
	password string
	port     int

	life sync.Mutex // one Kill or Restart at a time
	proc atomic.Pointer[process]
}

// Start starts a server with the given extra arguments and returns once it
// answers. It fails the test when there is no binary or the server doesn't come
// up. The end of the test ends the server; if the test failed or the server died
// by itself, the end of the server's log is in the test's output.
//
// A password given as --requirepass is part of Options and URL.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return startAt(tb, tb.TempDir(), plainArgs(args))
}

// startAt starts a server in dir and ties it to the test.
func startAt(tb testing.TB, dir string, args []string) *Server {
	tb.Helper()
	s, err := start("", dir, args)
	if err != nil {
		tb.Fatal(err)
	}
	s.tb = tb
	tb.Cleanup(func() {
		died := s.stop()
		if died {
			tb.Logf("redistest: server %s died during the test", s.Addr())
		}
		if died || tb.Failed() {
			tb.Logf("redistest: log of server %s:\n%s", s.Addr(), s.logTail())
		}
	})
	return s
}

// StartMain is Start for TestMain, so that the tests of one package can share a
// server. The caller runs stop after the tests; os.Exit skips deferred calls.
//
//	func TestMain(m *testing.M) {
//		srv, stop, err := redistest.StartMain()
//		if err != nil {
//			log.Fatal(err)
//		}
//		shared = srv
//		code := m.Run()
//		stop()
//		os.Exit(code)
//	}
func StartMain(args ...string) (srv *Server, stop func(), err error) {
	dir, err := os.MkdirTemp("", "redistest-")
	if err != nil {
		return nil, nil, fmt.Errorf("redistest: %w", err)
	}
	s, err := start("", dir, plainArgs(args))
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, sync.OnceFunc(func() {
		if s.stop() {
			fmt.Fprintf(os.Stderr, "redistest: server %s died during the tests:\n%s\n", s.Addr(), s.logTail())
		}
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, "redistest:", err)
		}
	}), nil
}

// plainArgs are the arguments of a server that is not a sentinel.
func plainArgs(extra []string) []string {
	return append([]string{"--save", "", "--appendonly", "no", "--daemonize", "no"}, extra...)
}

// start runs a server in dir on a port that was free. A port may be taken
// between the look and the server's bind: then another one is tried. An empty bin
// is the one that findBinary knows.
func start(bin, dir string, args []string) (*Server, error) {
	if bin == "" {
		var err error
		if bin, err = findBinary(); err != nil {
			return nil, err
		}
	}
	var err error
	s := &Server{bin: bin, dir: dir, args: args, password: argValue(args, "--requirepass")}
	for range portAttempts {
		if s.port, err = FreePort(); err != nil {
			return nil, err
		}
		if err = s.launch(time.Now().Add(startTimeout)); !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("redistest: start %s %q: %w\n%s", bin, args, err, s.logTail())
	}
	return s, nil
}

// launch starts the process on s.port and waits until it answers.
func (s *Server) launch(deadline time.Time) error {
	argv := append([]string{}, s.args...)
	argv = append(argv, "--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir)
	p, err := startProcess(s.bin, argv, s.logPath())
	if err != nil {
		return err
	}
	if err := awaitReady(p, s.Addr(), s.password, deadline); err != nil {
		p.kill()
		return err
	}
	s.proc.Store(p)
	return nil
}

// stop ends the process for good and reports whether it had died before.
func (s *Server) stop() (died bool) {
	s.life.Lock()
	defer s.life.Unlock()
	p := s.proc.Load()
	return p.kill()
}

// Addr is the server's host:port.
func (s *Server) Addr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
}

// URL is the server's redis:// URL, for redis.ParseURL.
func (s *Server) URL() string {
	u := url.URL{Scheme: "redis", Host: s.Addr(), Path: "/0"}
	if s.password != "" {
		u.User = url.UserPassword("", s.password)
	}
	return u.String()
}

// Options are go-redis' defaults with the server's address and password. Each
// call returns a new value, free to be changed.
func (s *Server) Options() *redis.Options {
	return &redis.Options{Addr: s.Addr(), Password: s.password}
}

// Client returns a client of its own that the end of the test closes. Each mod
// may change its options.
func (s *Server) Client(tb testing.TB, mod ...func(*redis.Options)) *redis.Client {
	tb.Helper()
	opts := s.Options()
	for _, m := range mod {
		m(opts)
	}
	rdb := redis.NewClient(opts)
	closeAtEnd(tb, rdb)
	return rdb
}

// closeAtEnd closes c in the test's cleanup; the test may have closed it before.
func closeAtEnd(tb testing.TB, c interface{ Close() error }) {
	tb.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
			tb.Errorf("redistest: close client: %v", err)
		}
	})
}

// Pid is the id of the running process, 0 while there is none.
func (s *Server) Pid() int {
	if p := s.proc.Load(); p.running() {
		return p.pid()
	}
	return 0
}

// Kill ends the server with SIGKILL and waits until it is gone. What it held is
// lost. Without a running server it does nothing.
func (s *Server) Kill() {
	s.life.Lock()
	defer s.life.Unlock()
	s.proc.Load().kill()
}

// Restart brings the server up again on the same port and returns once it
// answers: empty, unless it was told to keep its data. A server that still runs is
// killed first. On failure the test is marked as failed (a server of StartMain
// panics).
func (s *Server) Restart() { s.fail("restart", s.TryRestart()) }

// TryRestart is Restart for those who look at the error themselves.
func (s *Server) TryRestart() error {
	s.life.Lock()
	defer s.life.Unlock()
	s.proc.Load().kill()

	// The port can't be changed any more: wait for whoever took it meanwhile.
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	deadline := time.Now().Add(startTimeout)
	for {
		err := s.launch(deadline)
		if !errors.Is(err, errPortTaken) || !time.Now().Before(deadline) {
			return err
		}
		<-tick.C
	}
}

// Pause freezes the server with SIGSTOP and returns once it stands still:
// connections stay open and new ones are accepted by the kernel, but nothing is
// answered. On failure the test is marked as failed (a server of StartMain panics).
func (s *Server) Pause() { s.fail("pause", s.TryPause()) }

// TryPause is Pause for those who look at the error themselves.
func (s *Server) TryPause() error { return s.proc.Load().pause() }

// Resume lets a paused server go on; it then works off what was sent meanwhile.
func (s *Server) Resume() { s.fail("resume", s.TryResume()) }

// TryResume is Resume for those who look at the error themselves.
func (s *Server) TryResume() error { return s.proc.Load().resume() }

// fail uses Errorf, not Fatal: faults are often made from other goroutines.
func (s *Server) fail(what string, err error) {
	if err == nil {
		return
	}
	msg := fmt.Sprintf("redistest: %s %s: %v", what, s.Addr(), err)
	if s.tb == nil {
		panic(msg)
	}
	s.tb.Errorf("%s", msg)
}
