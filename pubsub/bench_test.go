package pubsub

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/task"
)

const (
	// prompt is how long what happens "at once" may take on a busy machine.
	prompt = 5 * time.Second
	// gone is within what a channel nobody waits on is off the server: a second
	// is promised, the rest is the machine's.
	gone = 2 * time.Second
)

// bench is a hub with a server that the test looks at from the side.
type bench struct {
	*Hub
	t     *testing.T
	tasks *task.Group
	admin *redis.Client
	log   *logbook
}

// newBench makes a hub on srv, through proxy unless that is nil.
func newBench(t *testing.T, srv *redistest.Server, proxy *faultproxy.Proxy, mod ...func(*redis.Options)) *bench {
	t.Helper()
	mod = append(mod, func(o *redis.Options) {
		if proxy != nil {
			o.Addr = proxy.Addr()
		}
	})
	b := &bench{t: t, tasks: task.NewGroup(), admin: srv.Client(t), log: &logbook{}}
	b.Hub = New(srv.Client(t, mod...), nil, b.tasks, slog.New(slog.NewTextHandler(b.log, nil)))
	t.Cleanup(b.close)
	return b
}

// close ends the hub; a second call does nothing.
func (b *bench) close() {
	b.tasks.Stop()
	b.tasks.Wait()
}

// channel answers a channel name that no other test uses.
func (b *bench) channel(i int) string { return fmt.Sprintf("%s:%d", b.t.Name(), i) }

func (b *bench) subscribed(channel string) bool {
	b.t.Helper()
	n, err := b.admin.PubSubNumSub(context.Background(), channel).Result()
	require.NoError(b.t, err)
	return n[channel] == 1
}

func (b *bench) publish(channel string) {
	b.t.Helper()
	n, err := b.admin.Publish(context.Background(), channel, "0").Result()
	require.NoError(b.t, err)
	require.EqualValues(b.t, 1, n, "%s has another number of subscribers", channel)
}

// ready subscribes and waits for the confirmation.
func (b *bench) ready(channel string) *Subscription {
	b.t.Helper()
	s := b.Subscribe(channel)
	b.await(s.Ready(), "confirmation")
	return s
}

func (b *bench) await(c <-chan struct{}, what string) {
	b.t.Helper()
	b.awaitFor(prompt, c, what)
}

func (b *bench) awaitFor(d time.Duration, c <-chan struct{}, what string) {
	b.t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c:
	case <-timer.C:
		b.t.Fatalf("no %s within %v; log:\n%s", what, d, b.log)
	}
}

// caughtUp returns when everything published so far has been dispatched: the
// connection keeps order.
func (b *bench) caughtUp() {
	b.t.Helper()
	s := b.ready(b.t.Name() + ":barrier")
	defer s.Close()
	b.publish(b.t.Name() + ":barrier")
	b.await(s.Wake(), "message")
}

// handled returns when the hub has looked at everything it was told.
func (b *bench) handled() {
	b.t.Helper()
	redistest.Eventually(b.t, prompt, func() bool { return len(b.plain.kick) == 0 }, "the hub doesn't look")
}

func has(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// pubsubConns is the number of subscribed connections at the server.
func (b *bench) pubsubConns() int {
	b.t.Helper()
	list, err := b.admin.Do(context.Background(), "client", "list", "type", "pubsub").Text()
	require.NoError(b.t, err)
	return strings.Count(list, "\n")
}

// calls is how often the server carried out a command, rejected how often it
// refused to.
func (b *bench) calls(command string) (calls, rejected int) {
	b.t.Helper()
	info, err := b.admin.Info(context.Background(), "commandstats").Result()
	require.NoError(b.t, err)
	m := regexp.MustCompile(`cmdstat_` + command + `:calls=(\d+),.*rejected_calls=(\d+)`).FindStringSubmatch(info)
	if m == nil {
		return 0, 0
	}
	calls, _ = strconv.Atoi(m[1])
	rejected, _ = strconv.Atoi(m[2])
	return calls, rejected
}

// nothingLeft waits until the server knows of no channel.
func (b *bench) nothingLeft() {
	b.t.Helper()
	redistest.Eventually(b.t, gone, func() bool {
		names, err := b.admin.PubSubChannels(context.Background(), b.t.Name()+"*").Result()
		require.NoError(b.t, err)
		return len(names) == 0
	}, "channels are left on the server")
	redistest.Eventually(b.t, gone, func() bool { return b.Channels() == 0 }, "channels are left in the hub")
}

// logbook keeps what the hub logs.
type logbook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logbook) count(text string) int { return strings.Count(l.String(), text) }

const (
	lostText    = "pub/sub connection lost"
	refusedText = "SUBSCRIBE was refused"
)
