//go:build !unix

package main

import (
	"os"
	"syscall"
)

// steering are the signals that end a wait. There is no way to pass them on:
// the console has sent them to the command too.
var steering = []os.Signal{os.Interrupt, syscall.SIGTERM}

func attributes(bool) *syscall.SysProcAttr { return nil }

func ownGroup() *syscall.SysProcAttr { return nil }

func keepRunning(bool) (undo func()) { return func() {} }

func (c *command) passOn(os.Signal) {}

// terminate kills: there is no gentler way.
func (c *command) terminate() { c.kill() }

func (c *command) kill() { _ = c.cmd.Process.Kill() } // fails if it has ended

func (c *command) killRest() {}
