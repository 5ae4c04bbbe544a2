package trials

import (
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// relay forwards TCP connections whatever they carry, so that it can stand
// between a replica and its master: package faultproxy reads what passes, and
// replication is not made of requests and replies. While it is stopped nothing
// passes; connections stay.
type relay struct {
	listener net.Listener
	to       string
	wg       sync.WaitGroup

	mu    sync.Mutex
	gate  chan struct{} // closed: open
	conns map[net.Conn]struct{}
	over  bool
}

func newRelay(tb testing.TB, to string) *relay {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(tb, err)
	r := &relay{listener: l, to: to, gate: make(chan struct{}), conns: make(map[net.Conn]struct{})}
	close(r.gate)
	r.wg.Go(r.serve)
	tb.Cleanup(r.close)
	return r
}

func (r *relay) hostPort() (host, port string) {
	host, port, _ = net.SplitHostPort(r.listener.Addr().String()) // it has both
	return host, port
}

func (r *relay) serve() {
	for {
		in, err := r.listener.Accept()
		if err != nil {
			return // closed
		}
		out, err := net.Dial("tcp4", r.to)
		if err != nil {
			_ = in.Close() // nobody there to forward to
			continue
		}
		if !r.adopt(in, out) {
			return
		}
		r.wg.Go(func() { r.forward(out, in) })
		r.wg.Go(func() { r.forward(in, out) })
	}
}

func (r *relay) adopt(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		if r.over {
			_ = c.Close() // the trial is over
			continue
		}
		r.conns[c] = struct{}{}
	}
	return !r.over
}

func (r *relay) forward(to, from net.Conn) {
	defer to.Close() // one side has ended: so does the other
	defer from.Close()
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		r.mu.Lock()
		gate := r.gate
		r.mu.Unlock()
		<-gate
		if r.ended() {
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (r *relay) ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.over
}

// stop holds back what comes from now on.
func (r *relay) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gate = make(chan struct{})
}

// close ends all connections; what was held back is lost.
func (r *relay) close() {
	r.mu.Lock()
	if r.over {
		r.mu.Unlock()
		return
	}
	r.over = true
	select {
	case <-r.gate:
	default:
		close(r.gate)
	}
	for c := range r.conns {
		_ = c.Close() // it may have ended by itself
	}
	_ = r.listener.Close() // likewise
	r.mu.Unlock()
	r.wg.Wait()
}
