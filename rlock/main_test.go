package rlock

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

var server *redistest.Server

func TestMain(m *testing.M) {
	srv, stop, err := redistest.StartMain()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	server = srv
	code := m.Run()
	stop()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines are left:", err)
			code = 1
		}
	}
	os.Exit(code)
}
