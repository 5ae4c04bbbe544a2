package faultproxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

var srv *redistest.Server

func TestMain(m *testing.M) {
	shared, stop, err := redistest.StartMain()
	if err != nil {
		log.Fatal(err)
	}
	srv = shared
	goleak.VerifyTestMain(stopAfter{m, stop})
}

// stopAfter stops the server before goleak looks.
type stopAfter struct {
	m    *testing.M
	stop func()
}

func (s stopAfter) Run() int {
	defer s.stop()
	return s.m.Run()
}

const (
	readTimeout = time.Second
	patience    = 10 * time.Second
)

// setup gives a proxy in front of the emptied server, a client through it that
// doesn't retry, and a client past it.
func setup(t *testing.T) (p *Proxy, via, direct *redis.Client, ctx context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	direct = srv.Client(t)
	require.NoError(t, direct.FlushAll(ctx).Err())
	p = New(t, srv.Addr())
	return p, viaProxy(t, p), direct, ctx
}

func viaProxy(t *testing.T, p *Proxy, mod ...func(*redis.Options)) *redis.Client {
	t.Helper()
	return srv.Client(t, append([]func(*redis.Options){func(o *redis.Options) {
		o.Addr = p.Addr()
		o.MaxRetries = -1
		o.ReadTimeout = readTimeout
	}}, mod...)...)
}

func requireTimeout(t *testing.T, err error) {
	t.Helper()
	var ne net.Error
	require.ErrorAs(t, err, &ne)
	require.True(t, ne.Timeout(), "%v", err)
}

// requireClosed wants the error of a connection that the other side closed.
func requireClosed(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	require.True(t, errors.Is(err, io.EOF) || strings.Contains(err.Error(), "reset by peer") ||
		strings.Contains(err.Error(), "broken pipe"), "%v", err)
}

func requireDone(t *testing.T, f *Fault) {
	t.Helper()
	requireClosedChan(t, f.Done(), "the fault did not happen")
}

func requireClosedChan(t *testing.T, ch <-chan struct{}, msg string) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatal(msg)
	}
}

// raw is a connection that speaks RESP by hand, for what go-redis hides.
type raw struct {
	t  *testing.T
	c  net.Conn
	in *bufio.Reader
}

func dialRaw(t *testing.T, p *Proxy) *raw {
	t.Helper()
	c, err := net.Dial("tcp4", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	return &raw{t, c, bufio.NewReader(c)}
}

// send writes commands, words split at blanks, in one packet.
func (r *raw) send(cmds ...string) {
	r.t.Helper()
	_, err := io.WriteString(r.c, encode(cmds...))
	require.NoError(r.t, err)
}

func encode(cmds ...string) string {
	var b strings.Builder
	for _, cmd := range cmds {
		words := strings.Fields(cmd)
		fmt.Fprintf(&b, "*%d\r\n", len(words))
		for _, w := range words {
			fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
		}
	}
	return b.String()
}

// want reads one value and compares it; "~" stands for CRLF.
func (r *raw) want(values ...string) {
	r.t.Helper()
	for _, want := range values {
		v, err := readValue(r.in)
		require.NoError(r.t, err)
		require.Equal(r.t, want, strings.ReplaceAll(string(v.raw), "\r\n", "~"))
	}
}

// hello switches to RESP3.
func (r *raw) hello() {
	r.t.Helper()
	r.send("HELLO 3")
	v, err := readValue(r.in)
	require.NoError(r.t, err)
	require.Equal(r.t, byte('%'), v.kind())
}

// silence wants nothing to come for a moment, or as long as the test gives.
func (r *raw) silence() {
	r.t.Helper()
	require.NoError(r.t, r.c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err := r.in.ReadByte()
	require.ErrorIs(r.t, err, os.ErrDeadlineExceeded)
	require.NoError(r.t, r.c.SetReadDeadline(time.Now().Add(patience)))
}

// closed wants the other side to have closed the connection.
func (r *raw) closed() {
	r.t.Helper()
	_, err := r.in.ReadByte()
	require.Error(r.t, err)
	require.NotErrorIs(r.t, err, os.ErrDeadlineExceeded)
}
