package main

import "syscall"

// ownGroup keeps the signals of a terminal away from a process, and has the
// kernel kill it when this one dies.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
