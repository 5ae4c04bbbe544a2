package security

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rlock"
)

// secured is a server that asks for certificates on one of its two ports.
type secured struct {
	*redistest.Server
	addr string // of the port with TLS
	ca   *authority
}

// startTLS starts a server with a certificate of ca, who also signs its clients'.
func startTLS(t *testing.T, ca *authority, cert certFiles, args ...string) *secured {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().(*net.TCPAddr)
	require.NoError(t, l.Close())
	args = append([]string{
		"--tls-port", strconv.Itoa(addr.Port), "--tls-auth-clients", "yes",
		"--tls-cert-file", cert.cert, "--tls-key-file", cert.key, "--tls-ca-cert-file", ca.file,
	}, args...)
	return &secured{redistest.Start(t, args...), addr.String(), ca}
}

// url is the server's, with what a client says of TLS.
func (s *secured) url(scheme, hosts string, tls map[string]string) string {
	q := url.Values{}
	for k, v := range tls {
		q.Set(k, v)
	}
	return scheme + "://:" + escaped + "@" + hosts + "?" + q.Encode()
}

// trusting are the parameters of a client that the server accepts.
func trusting(ca *authority, client certFiles) map[string]string {
	return map[string]string{"tls_ca_file": ca.file, "tls_cert_file": client.cert, "tls_key_file": client.key}
}

// requireWorks requires that two clients lock, wait, are woken and unlock.
func requireWorks(t *testing.T, url string) {
	t.Helper()
	p := &pair{t: t}
	p.a = open(t, url, holdfast.WithLease(lease), holdfast.WithPollFallback(never))
	p.b = open(t, url, holdfast.WithLease(lease), holdfast.WithPollFallback(never))
	require.NoError(t, p.lock(within(t, 3*prompt), func(c *holdfast.Client) rlock.Locker { return c.Lock("n") }))
}

// With an own authority and a client certificate everything works, on all kinds of
// deployments.
func TestTLS(t *testing.T) {
	ca := newAuthority(t, "authority")
	cert, client := ca.issue(t, "server", true, tomorrow()), ca.issue(t, "client", false, tomorrow())
	parameters := trusting(ca, client)
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		s := startTLS(t, ca, cert, "--requirepass", password)
		requireWorks(t, s.url("rediss", s.addr, parameters))
	})
	t.Run("named", func(t *testing.T) { // the certificate isn't for the address
		t.Parallel()
		s := startTLS(t, ca, ca.issue(t, "redis.internal", false, tomorrow()), "--requirepass", password)
		p := trusting(ca, client)
		p["tls_server_name"] = "redis.internal"
		requireWorks(t, s.url("rediss", s.addr, p))
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		s := startTLS(t, ca, cert, "--requirepass", password, "--cluster-enabled", "yes", "--tls-cluster", "yes", "--cluster-announce-ip", "127.0.0.1")
		rdb := s.Client(t)
		require.NoError(t, rdb.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
		redistest.Eventually(t, prompt, func() bool {
			info, err := rdb.ClusterInfo(t.Context()).Result()
			return err == nil && strings.Contains(info, "cluster_state:ok")
		}, "the cluster is up")
		_, port, err := net.SplitHostPort(s.addr)
		require.NoError(t, err)
		// The second host is another name of the same: each is verified by its own.
		requireWorks(t, s.url("rediss+cluster", "localhost:1,127.0.0.1:"+port, parameters))
	})
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		s := startTLS(t, ca, cert, "--requirepass", password)
		sentinel := redistest.StartSentinel(t)
		host, port, err := net.SplitHostPort(s.addr)
		require.NoError(t, err)
		// The sentinel itself speaks no TLS, so that it takes this master for dead; it
		// tells its address all the same.
		rdb := redis.NewSentinelClient(&redis.Options{Addr: sentinel.SentinelAddr()})
		defer rdb.Close()
		require.NoError(t, rdb.Monitor(t.Context(), "secured", host, port, "1").Err())
		p := trusting(ca, client)
		p["master"] = "secured"
		requireWorks(t, s.url("rediss+sentinel", terminate(t, ca, cert, sentinel.SentinelAddr()), p))
	})
}

// terminate answers the address of a listener that takes TLS off what it passes on.
func terminate(t *testing.T, ca *authority, cert certFiles, to string) (addr string) {
	pair, err := tls.LoadX509KeyPair(cert.cert, cert.key)
	require.NoError(t, err)
	l, err := tls.Listen("tcp4", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	require.NoError(t, err)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		l.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp4", to)
			if err != nil {
				in.Close()
				continue
			}
			stop := context.AfterFunc(ctx, func() { in.Close(); out.Close() })
			for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
				wg.Go(func() {
					defer stop()
					_, _ = io.Copy(way[0], way[1]) // ends with either
					in.Close()
					out.Close()
				})
			}
		}
	})
	return l.Addr().String()
}

// Where the two sides don't trust each other the error says so, soon.
func TestTLSIsRefused(t *testing.T) {
	ca, stranger := newAuthority(t, "authority"), newAuthority(t, "stranger")
	cert, client := ca.issue(t, "server", true, tomorrow()), ca.issue(t, "client", false, tomorrow())
	good := startTLS(t, ca, cert, "--requirepass", password)
	expired := startTLS(t, ca, ca.issue(t, "old-server", true, yesterday()), "--requirepass", password)
	elsewhere := startTLS(t, ca, ca.issue(t, "elsewhere", false, tomorrow()), "--requirepass", password)
	trusts := trusting(ca, client)
	for what, c := range map[string]struct {
		url  string
		says string
		want error
	}{
		"an authority that the system doesn't know": {good.url("rediss", good.addr, nil), "certificate", holdfast.ErrDenied},
		"another authority":                         {good.url("rediss", good.addr, map[string]string{"tls_ca_file": stranger.file}), "certificate", holdfast.ErrDenied},
		"an expired server":                         {good.url("rediss", expired.addr, trusts), "expired", holdfast.ErrDenied},
		"a server of another name":                  {good.url("rediss", elsewhere.addr, trusts), "certificate", holdfast.ErrDenied},
		"no client certificate":                     {good.url("rediss", good.addr, map[string]string{"tls_ca_file": ca.file}), "certificate", holdfast.ErrDenied},
		"a client of another authority":             {good.url("rediss", good.addr, trusting(ca, stranger.issue(t, "client", false, tomorrow()))), "certificate", holdfast.ErrDenied},
		"an expired client":                         {good.url("rediss", good.addr, trusting(ca, ca.issue(t, "old-client", false, yesterday()))), "certificate", holdfast.ErrDenied},
		"TLS to a port without":                     {good.url("rediss", good.Addr(), trusts), "TLS handshake", holdfast.ErrUnavailable},
		"a port with TLS, without":                  {good.url("redis", good.addr, nil), "EOF", holdfast.ErrUnavailable},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var log lines
			client := open(t, c.url, holdfast.WithCommandTimeout(2*time.Second), log.option())
			_, err := client.Lock("n").TryLock(within(t, prompt))
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, c.says)
			require.NotErrorIs(t, err, holdfast.ErrNotAcquired)
			_, err = client.Lock("n").Lock(within(t, 5*time.Second)) // while a server isn't there it lasts
			require.ErrorIs(t, err, c.want)
			requireNoPassword(t, err.Error(), log.String())
		})
	}
}

// A client certificate that was renewed is taken up with the next connection.
func TestTLSClientCertificateIsRenewed(t *testing.T) {
	ca := newAuthority(t, "authority")
	s := startTLS(t, ca, ca.issue(t, "server", true, tomorrow()), "--requirepass", password)
	files := ca.issue(t, "client", false, time.Now().Add(3*time.Second))
	c := open(t, s.url("rediss", s.addr, trusting(ca, files)))
	h, err := c.Lock("n").Lock(within(t, prompt))
	require.NoError(t, err)
	renewed := ca.issue(t, "renewed", false, tomorrow())
	require.NoError(t, os.Rename(renewed.cert, files.cert))
	require.NoError(t, os.Rename(renewed.key, files.key))
	<-time.After(4 * time.Second) // the first one has expired
	require.NoError(t, s.Client(t).ClientKillByFilter(t.Context(), "skipme", "yes").Err())
	require.NoError(t, h.Unlock(within(t, prompt)))
}

// What can't be right is refused by Open.
func TestTLSParameters(t *testing.T) {
	ca := newAuthority(t, "authority")
	pair := ca.issue(t, "client", false, tomorrow())
	other := ca.issue(t, "other", false, tomorrow())
	for what, c := range map[string]struct {
		scheme string
		tls    map[string]string
		says   string
	}{
		"no TLS":          {"redis", map[string]string{"tls_ca_file": ca.file}, "rediss"},
		"no TLS, cluster": {"redis+cluster", map[string]string{"tls_ca_file": ca.file}, "rediss"},
		"unix":            {"unix", map[string]string{"tls_ca_file": ca.file}, "rediss"},
		"no file":         {"rediss", map[string]string{"tls_ca_file": ca.file + "x"}, ca.file + "x"},
		"no certificate":  {"rediss", map[string]string{"tls_ca_file": pair.key}, pair.key},
		"no key":          {"rediss", map[string]string{"tls_cert_file": pair.cert}, "tls_key_file"},
		"another's key":   {"rediss+cluster", map[string]string{"tls_cert_file": pair.cert, "tls_key_file": other.key}, other.key},
		"key only":        {"rediss+sentinel", map[string]string{"tls_key_file": pair.key, "master": "m"}, "tls_cert_file"},
	} {
		t.Run(what, func(t *testing.T) {
			host := "localhost:6379"
			if c.scheme == "unix" {
				host = "/tmp/socket"
			}
			_, err := holdfast.Open((*secured)(nil).url(c.scheme, host, c.tls))
			require.ErrorIs(t, err, holdfast.ErrInvalid)
			require.ErrorContains(t, err, c.says)
			requireNoPassword(t, err.Error())
		})
	}
}

// requireNoPassword requires that none of texts tells the password, in any form.
func requireNoPassword(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		for _, secret := range []string{password, escaped, "s3:cr", "e@t", "s3%3A"} {
			require.NotContains(t, text, secret)
		}
	}
}
