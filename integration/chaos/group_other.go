//go:build unix && !linux

package main

import "syscall"

// ownGroup keeps the signals of a terminal away from a process.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
