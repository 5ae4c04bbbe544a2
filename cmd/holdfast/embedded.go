package main

import (
	"fmt"

	"github.com/alicebob/miniredis/v2"
)

// startEmbedded starts a Redis in memory on 127.0.0.1. Its leases run in real
// time.
func startEmbedded() (addr string, stop func(), err error) {
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		return "", nil, exitError{exitUnavailable, fmt.Errorf("start a Redis in memory: %w", err)}
	}
	m.ClockTTL(true)
	return m.Addr(), m.Close, nil
}
