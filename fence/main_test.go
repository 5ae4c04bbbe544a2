package fence_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// server is shared by the tests of the package.
var server *redistest.Server

func TestMain(m *testing.M) {
	redistest.Main(m, func(s *redistest.Server) { server = s })
}
