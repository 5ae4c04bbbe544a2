package main

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCommandDiesWithHoldfast(t *testing.T) {
	c := begin(t, nil, "run", lockName(t), "--", "sh", "-c", "echo ready; exec sleep 600")
	require.Equal(t, "ready", c.line())
	c.signal(syscall.SIGKILL)
	c.end() // when nobody has its stdout open any more
}
