//go:build !linux

package redistest

import "syscall"

// dieWithParent: only Linux has a parent-death signal. Elsewhere a test binary
// that is killed leaves its servers behind.
func dieWithParent() *syscall.SysProcAttr { return nil }
