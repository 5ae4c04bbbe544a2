package redisson_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/redisson"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

const (
	newest = "4.7.0"
	older  = "3.52.0"

	// without is set by who knows that this machine can't have a JVM.
	without = "HOLDFAST_WITHOUT_REDISSON"

	// watched is the lease of holds that are renewed, on both sides.
	watched = 3 * time.Second
	// prompt bounds what a message wakes; the polls of both sides are further off.
	prompt = 10 * time.Second
	never  = time.Hour
)

var (
	// server belongs to this package alone.
	server *redistest.Server
	// home is where the peer was compiled.
	home string
)

func TestMain(m *testing.M) {
	if spec := os.Getenv(childEnv); spec != "" {
		if err := child(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	// Tests sleep through leases; the processors limit nothing.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	out, err := exec.Command("../../scripts/redisson.sh", newest, older).Output()
	if err != nil {
		fmt.Println("NOT RUN: SIDE BY SIDE WITH REDISSON: THE JAVA PEER CAN'T BE COMPILED HERE:", err)
		if exit, ok := err.(*exec.ExitError); ok { //nolint:errorlint // straight from Output
			fmt.Println(string(exit.Stderr))
		}
		if os.Getenv(without) == "1" {
			return
		}
		fmt.Println("install a JDK 17 or newer and Maven, or set " + without + "=1 to do without")
		os.Exit(1)
	}
	home = strings.TrimSpace(string(out))
	os.Exit(run(m))
}

func run(m *testing.M) int {
	srv, stop, err := redistest.StartMain()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	server = srv
	code := m.Run()
	for _, j := range launched {
		j.Kill()
	}
	stop()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Println("goroutines are left:", err)
		return 1
	}
	return code
}

// alone is a JVM on the shared server.
func alone(version string) redisson.Config {
	return redisson.Config{Version: version, Watchdog: watched, Addrs: []string{server.Addr()}}
}

// launched are what the tests share: one JVM of each version, made when first
// asked for. Tests of one version run after those of the other.
var launched = make(map[string]*redisson.JVM)

func shared(t *testing.T, version string) *redisson.JVM {
	t.Helper()
	if launched[version] == nil {
		j, err := redisson.Launch(home, alone(version))
		require.NoError(t, err)
		launched[version] = j
	}
	return launched[version]
}

// versions runs a test beside each version; parts of it may be parallel.
func versions(t *testing.T, test func(t *testing.T, j *redisson.JVM)) {
	for _, v := range []string{newest, older} {
		t.Run(v, func(t *testing.T) { test(t, shared(t, v)) })
	}
}

// connect makes a client that sleeps until it is told, and tells how many
// commands it sent.
func connect(t *testing.T, opts ...holdfast.Option) (*holdfast.Client, *redistest.CommandCounter) {
	t.Helper()
	sent := &redistest.CommandCounter{}
	rdb := server.Client(t)
	rdb.AddHook(sent)
	c, err := holdfast.New(rdb, append([]holdfast.Option{holdfast.WithLease(watched), holdfast.WithPollFallback(never)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c, sent
}

type result struct {
	hold *holdfast.Hold
	at   time.Time
	err  error
}

// waiting starts a Lock call and answers once it listens on the channel, where so
// many others do. Who has what it waited for listens for a while yet: that is over
// before.
func waiting(t *testing.T, rdb *redis.Client, channel string, others int, lock func() (*holdfast.Hold, error)) <-chan result {
	t.Helper()
	listening(t, rdb, channel, others)
	got := async(lock)
	listening(t, rdb, channel, others+1)
	return got
}

// listening waits until so many listen.
func listening(t *testing.T, rdb *redis.Client, channel string, n int) {
	t.Helper()
	redistest.Eventually(t, prompt, func() bool { return listeners(t, rdb, channel) == int64(n) }, "%d listen on %s", n, channel)
}

// sleeps waits until a Java thread sleeps in a call, so that it hears of a release.
func sleeps(t *testing.T, o *redisson.Owner) {
	t.Helper()
	redistest.Eventually(t, prompt, o.Parked, "the Java waiter sleeps")
}

// soon waits for the end of a Java call that a message ends.
func soon(t *testing.T, f *redisson.Future, what string) {
	t.Helper()
	select {
	case <-f.Done():
		f.OK()
	case <-time.After(fixed / 2):
		require.Fail(t, "the Java waiter isn't told: "+what)
	}
}

func async(lock func() (*holdfast.Hold, error)) <-chan result {
	got := make(chan result, 1)
	go func() {
		h, err := lock()
		got <- result{h, time.Now(), err}
	}()
	return got
}

func listeners(t *testing.T, rdb *redis.Client, channel string) int64 {
	t.Helper()
	n, err := rdb.PubSubNumSub(context.Background(), channel).Result()
	require.NoError(t, err)
	return n[channel]
}

// receive waits for what must come promptly.
func receive(t *testing.T, got <-chan result, what string) result {
	t.Helper()
	select {
	case r := <-got:
		require.NoError(t, r.err, what)
		return r
	case <-time.After(prompt):
		require.Fail(t, "nothing came: "+what)
		return result{}
	}
}

// stays checks that nothing comes for longer than a lease, which is renewed.
func stays[T any](t *testing.T, got <-chan T, what string) {
	t.Helper()
	select {
	case <-got:
		require.Fail(t, what)
	case <-time.After(2 * watched):
	}
}
