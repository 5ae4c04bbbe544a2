package holdfast_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// The fault tests carry the number of the scenario that they play. P1 and P2
// are two clients, each on a go-redis client of its own.

// connectVia makes a client that reaches srv through a proxy of its own. The
// server knows the scripts: else the first copy of each would meet NOSCRIPT, and
// a fault that happens to it would happen to nothing.
func connectVia(t testing.TB, srv *redistest.Server, mod func(*redis.Options), opts ...holdfast.Option) (*faultproxy.Proxy, *holdfast.Client) {
	t.Helper()
	p := faultproxy.New(t, srv.Addr())
	rdb := srv.Client(t, func(o *redis.Options) {
		o.Addr = p.Addr()
		if mod != nil {
			mod(o)
		}
	})
	loadScripts(t, srv.Client(t))
	c := newClient(t, rdb, opts...)
	t.Cleanup(p.Cut) // before the client's Close, which would sit out a read
	return p, c
}

// readTimeout is for connectVia: when a lost reply is noticed.
func readTimeout(d time.Duration) func(*redis.Options) {
	return func(o *redis.Options) { o.ReadTimeout = d }
}

// sending matches the commands that send one of the lock's scripts, by its hash
// or as text.
func sending(t testing.TB, file string) faultproxy.Match {
	t.Helper()
	var names []string
	for _, text := range scriptTexts(t, file) {
		names = append(names, text, redis.NewScript(text).Hash())
	}
	return func(cmd []string) bool {
		if len(cmd) < 2 || !strings.HasPrefix(strings.ToLower(cmd[0]), "eval") {
			return false
		}
		return slices.Contains(names, cmd[1])
	}
}

// scriptTexts are the texts of a script file with and without the opening that
// mutating scripts have.
func scriptTexts(t testing.TB, file string) []string {
	t.Helper()
	opening, err := os.ReadFile("internal/script/marker.lua")
	require.NoError(t, err)
	body, err := os.ReadFile("rlock/" + file)
	require.NoError(t, err)
	head, rest, ok := strings.Cut(string(body), "\n-- marker.lua stands here.\n")
	if !ok {
		head, rest = "", string(body)
	}
	return []string{string(body), head + "\n" + string(opening) + rest}
}

func loadScripts(t testing.TB, rdb *redis.Client) {
	t.Helper()
	files, err := fs.Glob(os.DirFS("rlock"), "*.lua")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		for _, text := range scriptTexts(t, file) {
			require.NoError(t, rdb.ScriptLoad(context.Background(), text).Err())
		}
	}
}

// anyScript matches every script.
var anyScript = faultproxy.Cmd("evalsha", "eval")

// leftKeys are the keys whose name contains part, but for the markers of
// requests, which go by themselves.
func leftKeys(t testing.TB, rdb *redis.Client, part string) []string {
	t.Helper()
	var left []string
	it := rdb.Scan(t.Context(), 0, "*", 1000).Iterator()
	for it.Next(t.Context()) {
		if k := it.Val(); strings.Contains(k, part) && !strings.Contains(k, ":holdfast:req:") {
			left = append(left, k)
		}
	}
	require.NoError(t, it.Err())
	return left
}

// requireNoKeys waits until nothing is left but markers, which have an expiry.
func requireNoKeys(t testing.TB, rdb *redis.Client, part string) {
	t.Helper()
	eventually(t, "keys are left", func() bool { return len(leftKeys(t, rdb, part)) == 0 })
	it := rdb.Scan(t.Context(), 0, "*:holdfast:req:*", 1000).Iterator()
	for it.Next(t.Context()) {
		require.NotEqual(t, time.Duration(-1), rdb.PTTL(t.Context(), it.Val()).Val(), "a marker stays for ever: %s", it.Val())
	}
	require.NoError(t, it.Err())
}

// requireNoChannels waits until nobody listens to channels with part in them.
func requireNoChannels(t testing.TB, rdb *redis.Client, part string) {
	t.Helper()
	eventually(t, "subscriptions are left", func() bool {
		channels, err := rdb.PubSubChannels(t.Context(), "*").Result()
		require.NoError(t, err)
		for _, c := range channels {
			if strings.Contains(c, part) {
				return false
			}
		}
		return true
	})
}

// goroutines is the number of goroutines once the clients that make these locks
// have been through a wait, so that what they keep until Close is there already.
func goroutines(t testing.TB, makers ...func(name string) holdfast.Locker) int {
	t.Helper()
	for i, lock := range makers {
		l := lock("warm-" + t.Name() + strconv.Itoa(i))
		locktest.Patiently(t, 0, func(time.Duration) bool { // with whatever lease the client has
			h, err := l.Lock(t.Context())
			require.NoError(t, err)
			theirs, err := l.TryLock(t.Context(), holdfast.Wait(20*time.Millisecond))
			if err == nil {
				require.Error(t, h.Context().Err(), "two hold it")
				require.NoError(t, theirs.Unlock(t.Context()))
				return false
			}
			err = h.Unlock(t.Context()) // the other was taken, or not answered in such a time
			if errors.Is(err, holdfast.ErrLost) {
				return false
			}
			require.NoError(t, err)
			return true
		})
	}
	return settled()
}

// running is the number of goroutines without those of the test's own proxy, and
// what they do.
func running() (n int, stacks string) {
	buf := make([]byte, 4<<20)
	for s := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if !strings.Contains(s, "internal/faultproxy") {
			n++
			stacks += s + "\n\n"
		}
	}
	return n, stacks
}

// settled is a number of goroutines that has stopped falling.
func settled() int {
	least, _ := running()
	for calm := 0; calm < 20; calm++ {
		<-time.After(5 * time.Millisecond)
		if n, _ := running(); n < least {
			least, calm = n, 0
		}
	}
	return least
}

// requireGoroutines waits until there are no more than before.
func requireGoroutines(t testing.TB, before int) {
	t.Helper()
	if !within(prompt, func() bool { n, _ := running(); return n <= before }) {
		n, stacks := running()
		t.Fatalf("%d goroutines, %d before:\n%s", n, before, stacks)
	}
}

// within reports whether cond comes true in time.
func within(d time.Duration, cond func() bool) bool {
	for end := time.Now().Add(d); ; <-time.After(2 * time.Millisecond) {
		if cond() {
			return true
		}
		if time.Now().After(end) {
			return cond()
		}
	}
}

// throughout fails the test if cond is false at any time within d: that nothing
// happens takes time to see.
func throughout(t testing.TB, d time.Duration, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); <-time.After(2 * time.Millisecond) {
		if !cond() {
			t.Fatal(what)
		}
	}
}

// result is what a call on another goroutine answered, and when.
type result struct {
	hold *holdfast.Hold
	err  error
	at   time.Time
}

// async runs an acquisition on a goroutine of its own.
func async(f func() (*holdfast.Hold, error)) <-chan result {
	c := make(chan result, 1)
	go func() {
		h, err := f()
		c <- result{h, err, time.Now()}
	}()
	return c
}

// await answers an acquisition's result, which has to come within d.
func await(t testing.TB, c <-chan result, d time.Duration, what string) result {
	t.Helper()
	select {
	case r := <-c:
		return r
	case <-time.After(d):
		t.Fatalf("not within %v: %s", d, what)
		return result{}
	}
}

// longest keeps the longest of many durations.
type longest struct{ atomic.Int64 }

func (l *longest) note(d time.Duration) {
	for {
		old := l.Load()
		if int64(d) <= old || l.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}

func (l *longest) value() time.Duration { return time.Duration(l.Load()) }
