package main

import (
	"os"

	"github.com/holdfast-go/holdfast/integration/internal/worker"
)

func clientMain() int { return worker.Main(os.Stdin, os.Stderr) }

func known(kinds []kind, name string) bool {
	for _, k := range kinds {
		if k.name == name {
			return true
		}
	}
	return false
}
