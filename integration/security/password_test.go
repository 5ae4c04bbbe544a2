package security

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// spoken is what go-redis told its own log.
var spoken lines

type goRedisLog struct{}

func (goRedisLog) Printf(_ context.Context, format string, v ...any) {
	fmt.Fprintf(&spoken, format+"\n", v...)
}

// urls are URLs of all forms, with a password, to where it is wrong, to where
// nobody answers, and that can't be read.
func urls(t *testing.T) (refused, dead, bad map[string]string) {
	srv := redistest.Start(t, "--requirepass", "another")
	cluster := redistest.StartCluster(t, 1, "--requirepass", "another")
	sentinel := redistest.StartSentinel(t, "--requirepass", "another")
	socket := filepath.Join(t.TempDir(), "redis.sock")
	local := redistest.Start(t, "--requirepass", "another", "--unixsocket", socket)
	require.NotEmpty(t, local.Addr())
	const who = "somebody:" + escaped + "@"
	refused = map[string]string{
		"single":   "redis://" + who + srv.Addr(),
		"default":  "redis://:" + escaped + "@" + srv.Addr(),
		"unix":     "unix://" + who + socket,
		"cluster":  "redis+cluster://" + who + cluster.Addrs()[0],
		"sentinel": "redis+sentinel://" + who + sentinel.SentinelAddr() + "?master=" + sentinel.MasterName(),
		"sentinel's own": "redis+sentinel://" + who + sentinel.SentinelAddr() + "?master=" + sentinel.MasterName() +
			"&sentinel_username=x&sentinel_password=" + escaped,
	}
	dead = make(map[string]string)
	for _, scheme := range []string{"redis", "rediss", "redis+cluster", "rediss+cluster"} {
		dead[scheme] = scheme + "://" + who + "127.0.0.1:1"
	}
	for _, scheme := range []string{"redis+sentinel", "rediss+sentinel"} {
		dead[scheme] = scheme + "://" + who + "127.0.0.1:1?master=m&sentinel_password=" + escaped
	}
	dead["unix"] = "unix://" + who + socket + ".not"
	dead["host"] = "redis://" + who + "no-such-host.invalid:6379"
	bad = make(map[string]string)
	for _, scheme := range []string{"redis", "rediss", "unix", "redis+cluster", "redis+sentinel", "http", "x+y"} {
		for i, rest := range []string{
			who + "host:port", who + "host/%zz", who + "ho st", who + "host?tls_ca_file=/none", "a:" + password + "@host:1/x/y", who + "host?nonsense=1",
			"a:" + escaped + "%@host", who + "[::1", who + "host:6379?master=m&pool_size=" + escaped, "host?password=" + escaped,
		} {
			bad[fmt.Sprint(scheme, " ", i)] = scheme + "://" + rest
		}
	}
	return refused, dead, bad
}

// No text tells a password: errors, logs at every level, inspection, events, the
// client itself, the command line, go-redis' own log.
func TestPasswordsAreNotTold(t *testing.T) {
	refused, dead, bad := urls(t)
	tool := filepath.Join(t.TempDir(), "holdfast")
	out, err := exec.CommandContext(within(t, 5*time.Minute), "go", "build", "-buildvcs=false", "-o", tool, "../../cmd/holdfast").CombinedOutput()
	require.NoError(t, err, "%s", out)
	run := func(t *testing.T, url string) {
		for _, args := range [][]string{{"inspect", "--redis", url, "n"}, {"run", "--wait", "1s", "--redis", url, "n", "--", "true"}, {"ls", "--json", "--redis", url}} {
			out, err := exec.CommandContext(within(t, 6*prompt), tool, args...).CombinedOutput()
			require.Error(t, err, "%v", args)
			require.NotEmpty(t, out)
			requireNoPassword(t, string(out))
		}
	}
	use := func(t *testing.T, url string, timeout time.Duration, want error) {
		var log lines
		var events []string
		c := open(t, url, log.option(), holdfast.WithCommandTimeout(timeout),
			holdfast.WithObserver(func(e holdfast.Event) { events = append(events, fmt.Sprintf("%+v", e)) }))
		_, err1 := c.Lock("n").TryLock(within(t, 3*prompt))
		if want != nil {
			require.ErrorIs(t, err1, want)
		}
		ctx := within(t, time.Second)
		_, err2 := c.Inspect(ctx, "n")
		err3 := c.Semaphore("s").Acquire(ctx, 1)
		err4 := c.Latch("l").Await(ctx)
		for _, err := range []error{err1, err2, err3, err4} {
			require.Error(t, err)
			requireNoPassword(t, err.Error(), fmt.Sprintf("%+v %#v", err, err))
		}
		requireNoPassword(t, log.String(), strings.Join(events, "\n"), fmt.Sprintf("%+v", c))
		run(t, url)
	}
	for what, url := range refused {
		t.Run("refused/"+what, func(t *testing.T) {
			t.Parallel()
			want := holdfast.ErrDenied
			if strings.Contains(url, "sentinel_password") {
				want = nil // to go-redis a sentinel that refuses is one that isn't there
			}
			use(t, url, 2*prompt, want)
		})
	}
	for what, url := range dead {
		t.Run("dead/"+what, func(t *testing.T) {
			t.Parallel()
			use(t, url, time.Second, holdfast.ErrUnavailable)
		})
	}
	for what, url := range bad {
		t.Run("bad/"+what, func(t *testing.T) {
			t.Parallel()
			_, err := holdfast.Open(url)
			require.ErrorIs(t, err, holdfast.ErrInvalid)
			requireNoPassword(t, err.Error())
			out, err := exec.CommandContext(within(t, 6*prompt), tool, "inspect", "--redis", url, "n").CombinedOutput()
			require.Error(t, err)
			requireNoPassword(t, string(out))
		})
	}
	t.Run("accepted", func(t *testing.T) {
		srv := redistest.Start(t, "--requirepass", password)
		var log lines
		c := open(t, "redis://:"+escaped+"@"+srv.Addr(), log.option())
		_, err := c.Lock("n").Lock(within(t, prompt))
		require.NoError(t, err)
		info, err := c.Inspect(within(t, prompt), "n")
		require.NoError(t, err)
		asJSON, err := json.Marshal(info)
		require.NoError(t, err)
		require.NoError(t, srv.Client(t).ClientKillByFilter(t.Context(), "skipme", "yes").Err())
		_, err = c.Lock("n").TryLock(within(t, prompt))
		require.ErrorIs(t, err, holdfast.ErrNotAcquired)
		out, err := exec.CommandContext(within(t, prompt), tool, "inspect", "--redis", "redis://:"+escaped+"@"+srv.Addr(), "n").CombinedOutput()
		require.NoError(t, err)
		requireNoPassword(t, info.String(), string(asJSON), fmt.Sprintf("%+v", info), log.String(), string(out))
	})
	t.Cleanup(func() { requireNoPassword(t, spoken.String()) })
}
