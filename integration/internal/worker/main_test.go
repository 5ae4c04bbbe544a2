package worker

import (
	"os"
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// asWorker makes the test binary a client process.
const asWorker = "HOLDFAST_TEST_WORKER"

var server *redistest.Server

func TestMain(m *testing.M) {
	if os.Getenv(asWorker) != "" {
		os.Exit(Main(os.Stdin, os.Stderr))
	}
	redistest.Main(m, func(s *redistest.Server) { server = s })
}
