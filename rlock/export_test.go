package rlock

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/script"
)

// URL is the server that the package's tests share.
func URL() string { return server.URL() }

// Redis is a plain client of it, closed with the test.
func Redis(t testing.TB, mod ...func(*redis.Options)) *redis.Client { return server.Client(t, mod...) }

// FairScripts are the texts of the fair lock's scripts, by file.
func FairScripts() map[string]string {
	texts := make(map[string]string)
	for _, s := range []*script.Script{acquireFairScript, releaseFairScript, forceFairScript, leaveScript} {
		texts[s.Name()] = s.Source()
	}
	return texts
}
