package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/integration/internal/worker"
)

// fleet is the client processes. Each place has one; one that is killed is
// followed by a new one in its place. The methods may be called from any goroutine.
type fleet struct {
	dir  string
	tell func(format string, args ...any)
	// task is what the process of a place is told to do, as JSON.
	task func(process, place int, history string) worker.Config

	mu     sync.Mutex
	places []*client // the present ones
	all    []*client
	closed bool
}

// client is one process.
type client struct {
	process int // its number in history
	place   int
	role    string
	history string // file
	log     string // file
	cmd     *exec.Cmd
	stdin   io.Closer
	began   time.Time
	exited  chan struct{}
	err     error // of Wait; after exited
	// Guarded by the fleet's mutex.
	killed   bool // on purpose
	stopping bool
}

func (c *client) String() string { return fmt.Sprintf("client %d", c.process) }

// start fills all places: n with clients, and one more with a control, if any.
func (f *fleet) start(n int, control string) error {
	for place := range n {
		if err := f.launch(place, clientRole); err != nil {
			return err
		}
	}
	if control != "" {
		return f.launch(n, control)
	}
	return nil
}

// launch starts a process in a place.
func (f *fleet) launch(place int, role string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return errors.New("the run is over")
	}
	process := len(f.all) + 1
	base := filepath.Join(f.dir, fmt.Sprintf("client-%02d", process))
	c := &client{process: process, place: place, role: role, history: base + ".jsonl", log: base + ".log", exited: make(chan struct{})}
	task, err := json.Marshal(f.task(process, place, c.history))
	if err != nil {
		return err
	}
	out, err := os.Create(c.log)
	if err != nil {
		return err
	}
	defer out.Close() // the process has its own descriptor
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	c.cmd = exec.Command(exe)
	c.cmd.Env = append(os.Environ(), roleEnv+"="+role)
	c.cmd.Stdout, c.cmd.Stderr = out, out
	c.cmd.SysProcAttr = ownGroup()
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return err
	}
	c.stdin = in

	started := make(chan error, 1)
	go func() {
		// The kernel sends the parent-death signal when the thread that forked
		// ends, so this thread is kept for as long as the process runs.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			c.err = c.cmd.Wait()
			close(c.exited)
		}
	}()
	c.began = time.Now()
	if err := <-started; err != nil {
		return fmt.Errorf("%v: %w", c, err)
	}
	f.all = append(f.all, c)
	if _, err := in.Write(append(task, '\n')); err != nil {
		return fmt.Errorf("%v: %w", c, err)
	}
	if place == len(f.places) {
		f.places = append(f.places, c)
	} else {
		f.places[place] = c
	}
	return nil
}

// at is the process of a place.
func (f *fleet) at(pick uint64) *client {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.places[pick%uint64(len(f.places))]
}

// freeze stops a process without its knowing.
func (f *fleet) freeze(c *client) error { return c.cmd.Process.Signal(syscall.SIGSTOP) }

// thaw lets it go on.
func (f *fleet) thaw(c *client) error { return c.cmd.Process.Signal(syscall.SIGCONT) }

// replace kills a process and starts another one in its place.
func (f *fleet) replace(c *client) error {
	f.mu.Lock()
	c.killed = true
	f.mu.Unlock()
	if err := c.cmd.Process.Kill(); err != nil {
		return err
	}
	<-c.exited
	return f.launch(c.place, c.role)
}

// finish has all processes stop their work and end by themselves, and answers
// what is wrong with how they did. One that takes longer than limit prints its
// goroutines to its log and is killed.
func (f *fleet) finish(ctx context.Context, limit time.Duration) (wrong []string) {
	f.mu.Lock()
	f.closed = true
	all := slices.Clone(f.all)
	for _, c := range all {
		c.stopping = true
	}
	f.mu.Unlock()
	for _, c := range all {
		c.stdin.Close()
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for _, c := range all {
		select {
		case <-c.exited:
			switch {
			case c.killed:
			case c.err != nil:
				wrong = append(wrong, fmt.Sprintf("%v: %v; see %s", c, c.err, c.log))
			}
		case <-ctx.Done():
			wrong = append(wrong, fmt.Sprintf("%v hangs: %v after it was told to stop; its goroutines are in %s", c, limit, c.log))
			f.dump(c)
		}
	}
	return wrong
}

// early answers which processes ended though nobody asked them to.
func (f *fleet) early() (ended []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.all {
		if c.killed || c.stopping {
			continue
		}
		select {
		case <-c.exited:
			ended = append(ended, fmt.Sprintf("%v ended by itself: %v; see %s", c, c.err, c.log))
		default:
		}
	}
	return ended
}

// killedOnes are the processes that were killed on purpose.
func (f *fleet) killedOnes() (killed []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.all {
		if c.killed {
			killed = append(killed, c.process)
		}
	}
	return killed
}

// dump has a process write its goroutines to its log, and end.
func (f *fleet) dump(c *client) {
	_ = c.cmd.Process.Signal(syscall.SIGQUIT) // it may have ended in this moment
	_ = c.cmd.Process.Signal(syscall.SIGCONT)
	select {
	case <-c.exited:
	case <-time.After(2 * time.Second):
	}
	f.kill(c)
}

func (f *fleet) kill(c *client) {
	_ = c.cmd.Process.Kill() // as above
	<-c.exited
}

// close ends all processes at once.
func (f *fleet) close() {
	f.mu.Lock()
	f.closed = true
	all := slices.Clone(f.all)
	f.mu.Unlock()
	for _, c := range all {
		f.kill(c)
		c.stdin.Close()
	}
}
