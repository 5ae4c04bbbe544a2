//go:build unix && !linux

package main

import "syscall"

// dieWithParent: only Linux does that.
func dieWithParent(*syscall.SysProcAttr) {}
