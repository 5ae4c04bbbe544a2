package main

import (
	"os/exec"
	"runtime"
	"syscall"
)

// command is a running child process.
type command struct {
	cmd   *exec.Cmd
	group bool // it leads a process group of its own
	ended chan struct{}
}

// start starts a command. It has its own process group, so that what it starts
// in turn can be ended with it, unless it reads from a terminal: there it would
// be stopped at its first read, and miss Ctrl-C and Ctrl-Z.
func start(cmd *exec.Cmd) (*command, error) {
	c := &command{cmd: cmd, group: !isTerminal(cmd.Stdin), ended: make(chan struct{})}
	cmd.SysProcAttr = attributes(c.group)
	undo := keepRunning(c.group)
	started := make(chan error)
	go func() {
		// The kernel ends a child together with the thread that started it, where
		// attributes asks for that; so this thread stays as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer undo()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the answer is in ProcessState
			close(c.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// exitCode is that of a shell. It needs the command to have ended.
func (c *command) exitCode() int {
	if s, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return exitSignal + int(s.Signal())
	}
	return c.cmd.ProcessState.ExitCode()
}
