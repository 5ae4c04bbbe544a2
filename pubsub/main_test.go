package pubsub

import (
	"flag"
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// server is shared by the tests that neither count its commands nor disturb it:
// each uses channels of its own.
var server *redistest.Server

func TestMain(m *testing.M) {
	// Tests that are parallel wait for timeouts of seconds; that takes no cores.
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	redistest.Main(m, func(s *redistest.Server) { server = s })
}
