package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
)

type versionCmd struct{}

// Run implements the command.
func (versionCmd) Run(p *program) error { return writeVersion(p.stdout) }

func writeVersion(w io.Writer) error {
	_, err := fmt.Fprintf(w, "holdfast %s, library %s (%s, %s/%s)\n",
		moduleVersion("github.com/holdfast-go/holdfast/cmd/holdfast"), moduleVersion("github.com/holdfast-go/holdfast"),
		runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// moduleVersion is the version of a module in this binary, (devel) if it was
// built from a work tree.
func moduleVersion(path string) string {
	const unknown = "(devel)"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknown
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == path && m.Version != "" {
			return m.Version
		}
	}
	return unknown
}
