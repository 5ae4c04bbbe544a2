package holdfast_test

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// server is shared by all tests of the package that don't disturb it: each
// uses names of its own.
var server *redistest.Server

func TestMain(m *testing.M) {
	// Those that run beside others mostly wait, for the ends of leases. -parallel says
	// otherwise.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	redistest.Main(m, func(s *redistest.Server) { server = s })
}

// newClient makes a client on rdb, closed with the test.
func newClient(t testing.TB, rdb redis.UniversalClient, opts ...holdfast.Option) *holdfast.Client {
	t.Helper()
	c, err := holdfast.New(rdb, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// connect makes a client on the shared server.
func connect(t testing.TB, opts ...holdfast.Option) *holdfast.Client {
	t.Helper()
	return newClient(t, server.Client(t), opts...)
}

// exists reports whether a key is there.
func exists(t testing.TB, rdb *redis.Client, key string) bool {
	t.Helper()
	n, err := rdb.Exists(context.Background(), key).Result()
	require.NoError(t, err)
	return n == 1
}

const (
	// prompt is how long what happens "at once" may take on a busy machine.
	prompt = 5 * time.Second
	// never is a lease that doesn't end while a test runs.
	never = 10 * time.Minute
)

// eventually waits for an event that the test can only see by looking.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	redistest.Eventually(t, prompt, cond, "%s", what)
}
