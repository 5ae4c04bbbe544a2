package redistest

import "syscall"

// dieWithParent has the kernel kill the server when the test binary dies without
// running its cleanups (a timeout, a panic, SIGKILL).
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
