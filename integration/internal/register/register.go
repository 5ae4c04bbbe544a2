// Package register is a resource that a fenced lock guards: for each name it
// remembers the largest token that it has seen, and refuses smaller ones. It lives
// in a process of its own, beside the servers that are disturbed, and is reached by
// TCP, one line of JSON each way.
package register

import (
	"bufio"
	"encoding/json"
	"errors"
	"net"
	"sync"
	"time"
)

// Patience is how long a write may take.
const Patience = 5 * time.Second

type request struct {
	Name  string `json:"name"`
	Owner string `json:"owner"`
	Token int64  `json:"token"`
}

// answer is the largest token that was seen, that of the request included.
type answer struct {
	Newest int64 `json:"newest"`
}

// Register is the resource.
type Register struct {
	listener net.Listener
	all      sync.WaitGroup

	mu     sync.Mutex
	newest map[string]int64
	links  map[net.Conn]bool // nil once it was closed
}

// Listen makes an empty one, on a free port of 127.0.0.1.
func Listen() (*Register, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Register{listener: l, newest: make(map[string]int64), links: make(map[net.Conn]bool)}
	r.all.Go(r.accept)
	return r, nil
}

// Addr is where it is.
func (r *Register) Addr() string { return r.listener.Addr().String() }

// Close ends it, and returns when nothing of it is left.
func (r *Register) Close() error {
	err := r.listener.Close()
	r.mu.Lock()
	for c := range r.links {
		err = errors.Join(err, c.Close())
	}
	r.links = nil
	r.mu.Unlock()
	r.all.Wait()
	return err
}

func (r *Register) accept() {
	for {
		c, err := r.listener.Accept()
		if err != nil {
			return // it was closed
		}
		r.mu.Lock()
		if r.links == nil {
			r.mu.Unlock()
			_ = c.Close() // nobody has heard of it
			return
		}
		r.links[c] = true
		r.mu.Unlock()
		r.all.Go(func() { r.serve(c) })
	}
}

func (r *Register) serve(c net.Conn) {
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.links != nil {
			delete(r.links, c)
			_ = c.Close() // what was answered is answered
		}
	}()
	in, out := json.NewDecoder(bufio.NewReader(c)), json.NewEncoder(c)
	for {
		var q request
		if err := in.Decode(&q); err != nil {
			return // the client has left
		}
		if err := out.Encode(answer{Newest: r.write(q)}); err != nil {
			return
		}
	}
}

// write takes up a token unless it has seen a larger one, and answers the largest.
func (r *Register) write(q request) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.newest[q.Name] = max(r.newest[q.Name], q.Token)
	return r.newest[q.Name]
}

// Link is a client, for one goroutine. It connects at its first write.
type Link struct {
	addr string
	conn net.Conn
	in   *json.Decoder
}

// Dial makes a link. Nothing is sent.
func Dial(addr string) *Link { return &Link{addr: addr} }

// Write writes under a token, and answers the largest that the register has seen:
// if that is another, nothing was written.
func (l *Link) Write(name, owner string, token int64) (newest int64, err error) {
	if l.conn == nil {
		if l.conn, err = net.DialTimeout("tcp", l.addr, Patience); err != nil {
			return 0, err
		}
		l.in = json.NewDecoder(bufio.NewReader(l.conn))
	}
	err = l.conn.SetDeadline(time.Now().Add(Patience))
	if err == nil {
		err = json.NewEncoder(l.conn).Encode(request{name, owner, token})
	}
	var a answer
	if err == nil {
		err = l.in.Decode(&a)
	}
	if err != nil {
		l.Close() // what comes next would be the answer to this
	}
	return a.Newest, err
}

// Close ends the link. It may be used again.
func (l *Link) Close() {
	if l.conn != nil {
		_ = l.conn.Close() // there is nothing that could be lost
		l.conn = nil
	}
}
