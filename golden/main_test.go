// Package golden compares what holdfast leaves in Redis with what Redisson
// leaves there. testdata holds the records: after each call of a Java program,
// every key with its type, time to live and value, and every message. The tests
// make the same calls and look at the same things; where holdfast differs on
// purpose, differences_test.go says how and why.
package golden

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// server belongs to this package alone: a section begins by emptying it.
var server *redistest.Server

func TestMain(m *testing.M) {
	redistest.Main(m, func(s *redistest.Server) { server = s })
}
