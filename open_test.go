package holdfast_test

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

const password = "s3:cr/e@t"

// escaped is the password as it stands in a URL.
const escaped = "s3%3Acr%2Fe%40t"

// All forms of a URL lead to a client that locks, waits and is woken.
func TestOpen(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "redis.sock")
	plain := redistest.Start(t, "--unixsocket", socket, "--requirepass", password)
	sentinel := redistest.StartSentinel(t)
	cluster := redistest.StartCluster(t, 2)
	rdb := plain.Client(t)
	require.NoError(t, rdb.Do(t.Context(), "acl", "setuser", "app", "on", ">"+password, "~*", "&*", "+@all").Err())

	hosts := strings.Join(cluster.Addrs(), ",")
	for what, url := range map[string]string{
		"password":          "redis://:" + escaped + "@" + plain.Addr(),
		"user":              "redis://app:" + escaped + "@" + plain.Addr() + "/3",
		"parameters":        "redis://app:" + escaped + "@" + plain.Addr() + "/0?read_timeout=2s&pool_size=3",
		"unix":              "unix://app:" + escaped + "@" + socket + "?db=2",
		"sentinel":          "redis+sentinel://" + sentinel.SentinelAddr() + "/1?master=" + sentinel.MasterName(),
		"several sentinels": "redis+sentinel://" + sentinel.SentinelAddr() + "," + sentinel.SentinelAddr() + "?master=" + sentinel.MasterName() + "&dial_timeout=1s",
		"cluster":           "redis+cluster://" + hosts,
		"cluster, one seed": "redis+cluster://" + cluster.Addrs()[0] + "?read_timeout=2s",
		"dead seed":         "redis+cluster://127.0.0.1:1," + hosts,
	} {
		t.Run(what, func(t *testing.T) {
			open := func() *holdfast.Client {
				c, err := holdfast.Open(url, holdfast.WithPrefix("app:"), holdfast.WithPollFallback(never))
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, c.Close()) })
				return c
			}
			a, b := open(), open()
			h, err := a.Lock(what).Lock(t.Context(), holdfast.Wait(2*prompt))
			require.NoError(t, err)
			_, err = b.Lock(what).TryLock(t.Context())
			require.ErrorIs(t, err, holdfast.ErrNotAcquired)
			waiter := async(func() (*holdfast.Hold, error) { return b.Lock(what).Lock(t.Context()) })
			require.NoError(t, h.Unlock(t.Context()))
			r := await(t, waiter, 2*prompt, "the waiter is woken")
			require.NoError(t, r.err)
			require.NoError(t, r.hold.Unlock(t.Context()))
		})
	}
}

// The database of the URL is the one that is used, the prefix is put before.
func TestOpenDatabase(t *testing.T) {
	srv := redistest.Start(t)
	c, err := holdfast.Open(srv.URL()[:len(srv.URL())-1]+"5", holdfast.WithPrefix("app:"))
	require.NoError(t, err)
	h, err := c.Lock("a").Lock(t.Context())
	require.NoError(t, err)
	require.Equal(t, "a", h.Name())
	require.True(t, exists(t, srv.Client(t, func(o *redis.Options) { o.DB = 5 }), "app:a"))
	require.NoError(t, c.Close())
	_, err = c.Lock("a").TryLock(t.Context())
	require.ErrorIs(t, err, holdfast.ErrClosed)
}

// TLS is spoken where the scheme says so, and nowhere else.
func TestOpenTLS(t *testing.T) {
	for _, form := range []string{"%s://%s", "%s+cluster://%s", "%s+sentinel://%s?master=m&dialer_retries=1"} {
		for _, scheme := range []string{"redis", "rediss"} {
			url := fmt.Sprintf(form, scheme, "%s")
			t.Run(url, func(t *testing.T) {
				t.Parallel() // a listener of its own, and mostly waiting
				l, err := net.Listen("tcp4", "127.0.0.1:0")
				require.NoError(t, err)
				defer l.Close()
				first := make(chan byte, 1)
				go func() {
					var b [1]byte
					if conn, err := l.Accept(); err == nil {
						_, _ = conn.Read(b[:]) // nothing read is told by b
						conn.Close()
					}
					l.Close()
					first <- b[0]
				}()
				c, err := holdfast.Open(fmt.Sprintf(url, l.Addr()), holdfast.WithCommandTimeout(time.Second))
				require.NoError(t, err)
				_, err = c.Lock(t.Name()).TryLock(t.Context())
				require.ErrorIs(t, err, holdfast.ErrUnavailable)
				require.NoError(t, c.Close())
				const handshake = 22 // of a TLS record; a Redis request begins with '*'
				require.Equal(t, scheme == "rediss", <-first == handshake)
			})
		}
	}
}

// badURLs can't be opened. Each has the password in it somewhere.
var badURLs = []string{
	"",
	"localhost:6379",
	password,
	"redis:/" + password,
	"http://user:" + escaped + "@localhost",
	"redis+http://user:" + escaped + "@localhost",
	"postgres+sentinel://user:" + escaped + "@localhost?master=m",
	"redis+sentinel://user:" + escaped + "@localhost:6379/0",
	"redis+sentinel://user:" + escaped + "@localhost:6379/0?master=",
	"redis+sentinel://user:" + escaped + "@localhost:6379/x?master=m",
	"redis+sentinel://user:" + escaped + "@localhost:6379/0?master=m&nonsense=1",
	"redis+cluster+x://user:" + escaped + "@localhost",
	"redis://user:" + password + "@localhost:6379",
	"redis://user:" + escaped + "@localhost:6379/nine",
	"redis://user:" + escaped + "@localhost:6379/0/1",
	"redis://user:" + escaped + "@localhost:6379?pool_size=many",
	"redis://user:" + escaped + "@localhost:6379?unheard_of=1",
	"redis://user:" + escaped + "@localhost:port",
	"redis://user:" + escaped + "%zz@localhost",
	"redis+cluster://user:" + escaped + "%zz@a,b",
	"redis+cluster://user:" + escaped + "@a,b?unheard_of=1",
	"unix://user:" + escaped + "@",
	"unix://user:" + escaped + "@/tmp/x?db=three",
	"user:" + password + "@redis://localhost",
	" redis://user:" + escaped + "@localhost",
	"redis://user:" + escaped + "@local host",
	"redis\x00://user:" + escaped + "@localhost",
	"redis+sentinel://user:" + escaped + "@localhost?master=m&route_by_latency=true",
	"redis+sentinel://user:" + escaped + "@localhost?master=m&route_randomly=true",
}

// What is wrong with a URL is named where that can't be a piece of the password.
func TestOpenNamesWhatIsWrong(t *testing.T) {
	for url, want := range map[string]string{
		"redis://user:" + escaped + "@h?red_timeout=1s":                 "not known: red_timeout (",
		"redis+cluster://user:" + escaped + "@a,b?x=1&unheard_of=1":     "not known: unheard_of, x (",
		"redis+sentinel://user:" + escaped + "@h/0?master=m&nonsense=1": "not known: nonsense (",
		"redis://user:" + escaped + "@a,b:6379/0":                       "redis+cluster://h1,h2, or redis+sentinel://",
		"rediss://a:1,b:2":                   "rediss+cluster://h1,h2, or rediss+sentinel://",
		"redis://user:a,b?secret=1&c@h":      "escape special characters",
		"redis://user:a?secret@h?nonsense=1": "escape special characters",
	} {
		_, err := holdfast.Open(url)
		require.ErrorIs(t, err, holdfast.ErrInvalid, url)
		require.ErrorContains(t, err, want, url)
		require.NotContains(t, err.Error(), "secret", url)
		require.NotContains(t, err.Error(), escaped, url)
	}
}

// A URL that can't be used is ErrInvalid, and the error keeps the password.
func TestOpenBadURLs(t *testing.T) {
	for _, url := range badURLs {
		t.Run(url, func(t *testing.T) { requireOpensOrKeepsSecret(t, url, true) })
	}
}

func requireOpensOrKeepsSecret(t *testing.T, url string, bad bool) {
	t.Helper()
	c, err := holdfast.Open(url)
	if err == nil {
		require.NoError(t, c.Close())
		require.False(t, bad, "%q was opened", url)
		return
	}
	require.ErrorIs(t, err, holdfast.ErrInvalid)
	for _, secret := range []string{password, escaped, "s3:cr", "e@t", "s3%3A"} {
		require.NotContains(t, err.Error(), secret)
	}
}

// Options are checked before anything is opened.
func TestOpenBadOptions(t *testing.T) {
	for what, o := range map[string]holdfast.Option{
		"lease": holdfast.WithLease(0), "batch": holdfast.WithRenewBatch(0),
		"timeout": holdfast.WithCommandTimeout(0), "poll": holdfast.WithPollFallback(0),
		"mapper": holdfast.WithNameMapper(nil), "logger": holdfast.WithLogger(nil),
	} {
		t.Run(what, func(t *testing.T) {
			_, err := holdfast.Open("redis://localhost", o)
			require.ErrorIs(t, err, holdfast.ErrInvalid)
			_, err = holdfast.New(server.Client(t), o)
			require.ErrorIs(t, err, holdfast.ErrInvalid)
		})
	}
	c, err := holdfast.Open("redis://localhost", nil)
	require.NoError(t, err, "a nil option is no option")
	require.NoError(t, c.Close())
}

// No URL makes Open panic or tell a password.
func FuzzOpen(f *testing.F) {
	for _, url := range badURLs {
		f.Add(url)
	}
	f.Add("redis+cluster://user:" + escaped + "@a,b,c?master=m")
	f.Add("redis+sentinel://user:" + escaped + "@a,,b/0?master=m&addr=c")
	f.Fuzz(func(t *testing.T, url string) { requireOpensOrKeepsSecret(t, url, false) })
}
