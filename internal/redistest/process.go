package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"
)

const (
	binaryEnv = "HOLDFAST_REDIS_SERVER"

	// Ports are taken from below the ranges that systems use for outgoing
	// connections, so that no client's own port collides with a server that is
	// down for a moment. A cluster node also binds its port + 10000.
	portMin, portMax = 10240, 22240
	busOffset        = 10000

	tailBytes = 4096
)

var (
	errPortTaken = errors.New("another process has the port")
	errExited    = errors.New("the server exited")
	errNoProcess = errors.New("the server is not running")
)

// process is one run of the server binary.
type process struct {
	cmd    *exec.Cmd
	log    string
	logAt  int64         // where this run begins in log
	exited chan struct{} // closed once the process was waited for
	killed atomic.Bool   // its end was asked for
}

// findBinary returns the server's path, or an error that says what to install.
func findBinary() (string, error) {
	if name := os.Getenv(binaryEnv); name != "" {
		path, err := exec.LookPath(name)
		if err != nil {
			return "", fmt.Errorf("redistest: the server that %s names: %w", binaryEnv, err)
		}
		return path, nil
	}
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("redistest: neither redis-server nor valkey-server is in PATH: install one "+
		"(Debian and Ubuntu: apt-get install redis-server; macOS: brew install redis) or name one in %s", binaryEnv)
}

// FreePort finds a port on 127.0.0.1 that nobody listens on just now.
func FreePort() (int, error) {
	var err error
	for range 200 {
		port := portMin + rand.IntN(portMax-portMin)
		if err = errors.Join(tryListen(port), tryListen(port+busOffset)); err == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("redistest: no free port: %w", err)
}

func tryListen(port int) error {
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return err
	}
	return l.Close()
}

// startProcess runs bin and appends its output to the file log.
func startProcess(bin string, argv []string, log string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the child has its own descriptor
	at, err := out.Seek(0, 2)
	if err != nil {
		return nil, err
	}

	cmd := exec.Command(bin, argv...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = dieWithParent()
	p := &process{cmd: cmd, log: log, logAt: at, exited: make(chan struct{})}

	started := make(chan error, 1)
	go func() {
		// The kernel sends the parent-death signal when the thread that forked
		// ends, so this thread is kept for as long as the server runs.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // "signal: killed" is the usual end
		close(p.exited)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// kill ends the process, waits for it, and reports whether it had died before
// anybody asked for it. A stopped process dies of SIGKILL as well.
func (p *process) kill() (died bool) {
	died = !p.running() && !p.killed.Load()
	p.killed.Store(true)
	_ = p.cmd.Process.Kill() // the only error is that it has ended already
	<-p.exited
	return died
}

// output is what this run has written so far, up to its last max bytes.
func (p *process) output() []byte { return readTail(p.log, p.logAt, 64*tailBytes) }

// portTaken reports whether this run ended because its port was in use.
func (p *process) portTaken() bool {
	return bytes.Contains(p.output(), []byte("Address already in use"))
}

func (s *Server) logPath() string { return filepath.Join(s.dir, "server.log") }

// logTail is the end of the log of all runs.
func (s *Server) logTail() string { return string(readTail(s.logPath(), 0, tailBytes)) }

// readTail reads the last limit bytes of a file, but nothing before from. It is
// for messages only, so an unreadable file becomes the text.
func readTail(path string, from, limit int64) []byte {
	b, err := os.ReadFile(path)
	if err != nil {
		return []byte(err.Error())
	}
	b = b[min(from, int64(len(b))):]
	return b[max(0, int64(len(b))-limit):]
}

// argValue returns what follows name in args, "" if it isn't there.
func argValue(args []string, name string) string {
	for i, a := range args[:max(0, len(args)-1)] {
		if a == name {
			return args[i+1]
		}
	}
	return ""
}
