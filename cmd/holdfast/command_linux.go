package main

import "syscall"

// dieWithParent has the kernel kill the command if we are killed: nobody would
// renew its lock any more, or tell it of the loss.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
