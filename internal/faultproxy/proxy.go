package faultproxy

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy forwards connections on 127.0.0.1 to one server. All methods may be
// called from any goroutine and at any time; a change concerns what comes after it.
type Proxy struct {
	backend  string
	listener net.Listener
	report   func(format string, args ...any)

	rules   ruleSet
	hole    hole
	refuse  atomic.Bool
	latency atomic.Pointer[[2]time.Duration] // low, high; nil: none
	open    atomic.Int64

	wg sync.WaitGroup

	mu     sync.Mutex
	closed bool
	links  map[*link]bool
}

// New starts a proxy for the server at backend, host:port. The end of the test
// closes it. Bytes that it can't read as RESP fail the test.
func New(tb testing.TB, backend string) *Proxy {
	tb.Helper()
	p, err := newProxy(backend, func(format string, args ...any) { tb.Errorf("faultproxy: "+format, args...) })
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	return p
}

// NewFor is New without a test, for a proxy that several tests share: the caller
// closes it, and unreadable bytes are reported on standard error.
func NewFor(backend string) (*Proxy, error) {
	return newProxy(backend, func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "faultproxy: "+format+"\n", args...)
	})
}

func newProxy(backend string, report func(string, ...any)) (*Proxy, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("faultproxy: %w", err)
	}
	p := &Proxy{backend: backend, listener: l, report: report, links: make(map[*link]bool)}
	p.wg.Go(p.serve)
	return p, nil
}

// Addr is the host:port for clients to connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close closes the listener and all connections, forgets what is held, and returns
// when the last goroutine is gone. A second call does nothing.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock() // from here on no link is added
	p.listener.Close()
	for _, l := range p.current() {
		l.kill()
	}
	p.wg.Wait()
}

// serve accepts connections until Close.
func (p *Proxy) serve() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				p.report("accept: %v", err)
			}
			return
		}
		if p.refuse.Load() || !p.adopt(conn) {
			conn.Close()
		}
	}
}

// adopt starts the link of a new connection, unless the proxy is closed.
func (p *Proxy) adopt(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	l := newLink(p, conn)
	p.links[l] = true
	p.open.Add(1)
	p.wg.Go(func() {
		l.run()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.links, l)
	})
	return true
}

func (p *Proxy) current() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	links := make([]*link, 0, len(p.links))
	for l := range p.links {
		links = append(links, l)
	}
	return links
}

// Conns is the number of connections that clients have open.
func (p *Proxy) Conns() int { return int(p.open.Load()) }

// Add puts a rule in force, behind those that are. The first rule that applies to
// a request decides about it, once, when the proxy reads the request.
func (p *Proxy) Add(r Rule) *Fault { return p.rules.add(r) }

// Blackhole stops all forwarding, in both directions, without closing anything,
// or lets it go on. What arrives meanwhile is kept and forwarded afterwards, also
// for a client that has left by then. A new connection is accepted and gets no
// answer; if its client leaves before the end, the server never hears of it.
func (p *Proxy) Blackhole(on bool) { p.hole.set(on) }

// Refuse closes new connections at once, or serves them again. Those that exist
// are not touched.
func (p *Proxy) Refuse(on bool) { p.refuse.Store(on) }

// Cut closes all connections that exist now; new ones are served. Requests under
// HoldRequest are kept, and delivered to the server when they are let go.
func (p *Proxy) Cut() {
	for _, l := range p.current() {
		l.cut()
	}
}

// SetLatency delivers each reply, and each message, a random time between low and
// high after it came. It is a latency: pipelined replies wait side by side, not one
// after the other, and their order is kept. Zero values end it.
func (p *Proxy) SetLatency(low, high time.Duration) {
	if low <= 0 && high <= 0 {
		p.latency.Store(nil)
		return
	}
	p.latency.Store(&[2]time.Duration{low, high})
}

// arrival is when a reply that came now is due at the client; zero: at once.
func (p *Proxy) arrival() time.Time {
	lat := p.latency.Load()
	if lat == nil {
		return time.Time{}
	}
	d := lat[0]
	if spread := lat[1] - lat[0]; spread > 0 {
		d += rand.N(spread + 1)
	}
	return time.Now().Add(d)
}

// hole is the switch of Blackhole.
type hole struct {
	lifted atomic.Pointer[chan struct{}] // nil: off
	mu     sync.Mutex                    // one set at a time
}

func (h *hole) set(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch lifted := h.lifted.Load(); {
	case on && lifted == nil:
		ch := make(chan struct{})
		h.lifted.Store(&ch)
	case !on && lifted != nil:
		h.lifted.Store(nil)
		close(*lifted)
	}
}

// pass returns when there is no black hole, and whether it had to wait for that.
// It returns false when stop is closed before.
func (h *hole) pass(stop <-chan struct{}) (waited, ok bool) {
	for lifted := h.lifted.Load(); lifted != nil; lifted = h.lifted.Load() {
		waited = true
		if !wait(*lifted, stop) {
			return waited, false
		}
	}
	return waited, true
}
