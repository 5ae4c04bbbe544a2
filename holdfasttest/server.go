package holdfasttest

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
)

// New answers a client on a server of its own. Both end with the test; what is
// still held then needs no Unlock. A wrong option ends the test at once.
func New(t testing.TB, opts ...holdfast.Option) *holdfast.Client {
	t.Helper()
	return NewServer(t).Client(opts...)
}

// Server is a Redis in memory. Its methods may be called from any goroutine,
// with one exception: see [Server.Client].
type Server struct {
	tb   testing.TB // nil for a server of Start
	mini *miniredis.Miniredis
	addr string // stays known after Close
	rdb  *redis.Client

	skipped atomic.Int64 // nanoseconds, by FastForward

	mu      sync.Mutex
	closed  bool
	clients []*holdfast.Client
}

// NewServer starts a server that ends with the test.
func NewServer(t testing.TB) *Server {
	t.Helper()
	s, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	s.tb = t
	t.Cleanup(s.Close)
	return s
}

// Start is NewServer for where there is no test: TestMain and examples. The
// caller closes the server. The error is that of listening on 127.0.0.1.
func Start() (*Server, error) {
	s := &Server{mini: miniredis.NewMiniRedis()}
	if err := s.mini.Start(); err != nil {
		return nil, fmt.Errorf("holdfasttest: start the server: %w", err)
	}
	// Time passes as each command comes in, so that no lease ends early because
	// some goroutine that moves the clock was late.
	s.addr = s.mini.Addr()
	s.mini.ClockTTL(true)
	s.mini.Server().SetPreHook(s.tellTime)
	s.rdb = redis.NewClient(&redis.Options{Addr: s.mini.Addr()})
	return s, nil
}

// Close closes every client of [Server.Client], then the server. A test needn't
// call it, unless it wants the server gone earlier. Further calls do nothing.
func (s *Server) Close() {
	s.mu.Lock()
	clients, closed := s.clients, s.closed
	s.clients, s.closed = nil, true
	s.mu.Unlock()
	if closed {
		return
	}
	for _, c := range clients {
		if err := c.Close(); err != nil && s.tb != nil {
			s.tb.Errorf("holdfasttest: close the client: %v", err)
		}
	}
	_ = s.rdb.Close() // its connections end with the server anyway
	s.mini.Close()
}

// Client makes one more client, with connections and owners of its own: to the
// server it is another process. It is closed with the server, if not before.
//
// A wrong option, or a server that is closed, ends the test; so call it from
// the test's goroutine. A server of [Start] panics instead.
func (s *Server) Client(opts ...holdfast.Option) *holdfast.Client {
	if s.tb != nil {
		s.tb.Helper()
	}
	c, err := s.open(opts)
	switch {
	case err == nil:
		return c
	case s.tb == nil:
		panic(err)
	}
	s.tb.Fatal(err)
	return nil
}

func (s *Server) open(opts []holdfast.Option) (*holdfast.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("holdfasttest: the server is closed: make clients before")
	}
	c, err := holdfast.Open(s.URL(), opts...)
	if err != nil {
		return nil, fmt.Errorf("holdfasttest: %w", err)
	}
	s.clients = append(s.clients, c)
	return c, nil
}

// Addr is the server's host:port.
func (s *Server) Addr() string { return s.addr }

// URL is the server's address as [holdfast.Open] takes it.
func (s *Server) URL() string { return "redis://" + s.Addr() + "/0" }

// Redis is a plain client of the server, to look at keys or to spoil them:
// deleting a lock's key is how its holder loses it. It is closed with the
// server.
func (s *Server) Redis() *redis.Client { return s.rdb }

// FastForward lets d pass on the server at once: a lease that had less left is
// over. Waiters look again immediately. Holders aren't told, as with a real
// server whose clock jumps: a renewed hold finds out at its next renewal, every
// third of [holdfast.WithLease]; a fixed lease at its own end. To watch a lease
// end without that, use a short one and let real time pass. A d that isn't
// positive does nothing.
func (s *Server) FastForward(d time.Duration) {
	if d <= 0 {
		return
	}
	s.skipped.Add(int64(d))
	s.mini.FastForward(d)
	for _, channel := range s.mini.PubSubChannels("redisson_*") { // a message only wakes
		s.mini.Publish(channel, "0")
	}
}

// tellTime answers TIME once some of it was skipped: miniredis moves times to
// live only. It runs within scripts too, where the server's mutex is taken.
func (s *Server) tellTime(c *server.Peer, cmd string, args ...string) bool {
	skipped := time.Duration(s.skipped.Load())
	if cmd != "TIME" || len(args) > 0 || skipped == 0 {
		return false
	}
	now := time.Now().Add(skipped)
	c.WriteLen(2)
	c.WriteBulk(strconv.FormatInt(now.Unix(), 10))
	c.WriteBulk(strconv.Itoa(now.Nanosecond() / int(time.Microsecond)))
	return true
}
