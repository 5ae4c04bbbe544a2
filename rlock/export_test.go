package rlock

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

// URL is the server that the package's tests share.
func URL() string { return server.URL() }

// Redis is a plain client of it, closed with the test.
func Redis(t testing.TB) *redis.Client { return server.Client(t) }
