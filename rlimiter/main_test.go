package rlimiter

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

var server *redistest.Server

func TestMain(m *testing.M) {
	redistest.Main(m, func(s *redistest.Server) { server = s })
}
