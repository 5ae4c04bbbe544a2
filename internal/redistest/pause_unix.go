//go:build unix

package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"
)

// pause stops the process and waits until the kernel shows it as stopped: the
// signal alone is only on its way when kill(2) returns.
func (p *process) pause() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	if runtime.GOOS != "linux" {
		return nil // no /proc to look at
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(startTimeout); ; <-tick.C {
		stopped, err := isStopped(p.pid())
		if err != nil || stopped {
			return err
		}
		if time.Now().After(deadline) {
			return errors.New("not stopped in time")
		}
	}
}

func (p *process) resume() error { return p.signal(syscall.SIGCONT) }

func (p *process) signal(sig syscall.Signal) error {
	if !p.running() {
		return errNoProcess
	}
	return p.cmd.Process.Signal(sig)
}

// isStopped reads the state letter, which follows the command name in brackets.
func isStopped(pid int) (bool, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false, err
	}
	_, rest, ok := bytes.Cut(stat, []byte(") "))
	if !ok {
		return false, fmt.Errorf("unknown form of /proc/%d/stat: %q", pid, stat)
	}
	return rest[0] == 'T', nil
}
