//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// steering are the signals that are passed on to the command.
var steering = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
}

// attributes asks for a process group, and for an end together with us where
// the system offers that.
func attributes(group bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: group}
	dieWithParent(a)
	return a
}

// ownGroup keeps a process out of what a terminal sends to ours.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// keepRunning lets Ctrl-Z pass us by where it doesn't reach the command: we
// would stop renewing the lock that the command goes on to rely on.
func keepRunning(group bool) (undo func()) {
	if !group {
		return func() {}
	}
	ignored := make(chan os.Signal, 1) // not signal.Ignore, which the command would inherit
	signal.Notify(ignored, syscall.SIGTSTP)
	return func() { signal.Stop(ignored) }
}

// passOn sends a signal that we got to the command. What a terminal sends its
// whole process group has reached a command in there already.
func (c *command) passOn(s os.Signal) {
	if n, ok := s.(syscall.Signal); ok && (c.group || n != syscall.SIGINT && n != syscall.SIGQUIT) {
		c.send(n)
	}
}

// terminate asks the command to end; SIGCONT lets it hear that if it is stopped.
func (c *command) terminate() {
	c.send(syscall.SIGTERM)
	c.send(syscall.SIGCONT)
}

func (c *command) kill() { c.send(syscall.SIGKILL) }

// killRest ends what a command that has ended left behind in its group.
func (c *command) killRest() {
	if c.group {
		c.kill()
	}
}

// send ignores its error, which is that nobody is left.
func (c *command) send(s syscall.Signal) {
	pid := c.cmd.Process.Pid
	if c.group {
		pid = -pid
	}
	_ = syscall.Kill(pid, s)
}
