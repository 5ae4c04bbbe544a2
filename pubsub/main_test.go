package pubsub

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// server is shared by the tests that neither count its commands nor disturb it:
// each uses channels of its own.
var server *redistest.Server

func TestMain(m *testing.M) {
	srv, stop, err := redistest.StartMain()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	server = srv
	// Tests that are parallel wait for timeouts of seconds; that takes no cores.
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
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
