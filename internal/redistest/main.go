package redistest

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// probing is a goroutine of a go-redis pool that could not connect for a while: it
// sees within a second that its client is closed.
var probing = goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")

// Main is the TestMain of a package that shares one server: it starts it, hands
// it to use, runs the tests, stops it, looks for goroutines that are left, and
// exits.
func Main(m *testing.M, use func(*Server)) {
	srv, stop, err := StartMain()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	use(srv)
	code := m.Run()
	stop()
	if code == 0 {
		if err := goleak.Find(probing); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines are left:", err)
			code = 1
		}
	}
	os.Exit(code)
}
