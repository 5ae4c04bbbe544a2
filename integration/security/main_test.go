// Package security tests what stands between holdfast and those who shouldn't get
// at it: rights, TLS, passwords, and names that are more than names.
package security

import (
	"context"
	"flag"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

var server *redistest.Server

func TestMain(m *testing.M) {
	redis.SetLogger(goRedisLog{})
	// These tests wait more than they compute.
	flag.Parse()
	if err := flag.Set("test.parallel", "24"); err != nil {
		panic(err)
	}
	redistest.Main(m, func(s *redistest.Server) { server = s })
}

const (
	// prompt is how long what happens "at once" may take on a busy machine.
	prompt = 10 * time.Second
	// never is a time that doesn't end while a test runs.
	never = 10 * time.Minute
)

// open opens a client, closed with the test.
func open(t testing.TB, url string, opts ...holdfast.Option) *holdfast.Client {
	t.Helper()
	c, err := holdfast.Open(url, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// within bounds a test's calls: what hangs fails.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// lines are what a client told its log, at every level.
type lines struct{ redistest.Diary }

func (l *lines) option() holdfast.Option {
	return holdfast.WithLogger(slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug})))
}
