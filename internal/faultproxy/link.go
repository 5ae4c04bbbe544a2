package faultproxy

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	bufferSize  = 16 << 10
	dialTimeout = 10 * time.Second
)

// request is what waits to be forwarded to the server.
type request struct {
	raw   []byte
	cmd   []string // empty: the server doesn't answer it
	fault *Fault
}

// reply is what waits to be delivered to the client.
type reply struct {
	raw   []byte
	due   time.Time       // not before; zero: at once
	until <-chan struct{} // not before it is closed; nil: at once
	close bool            // in place of a reply: close the connection
}

// link is one client connection and the server connection that belongs to it.
type link struct {
	p      *Proxy
	client net.Conn

	ctx    context.Context // ended by kill
	cancel context.CancelFunc

	clientGone  chan struct{} // closed by readRequests: the client sends nothing any more
	backendGone chan struct{} // closed by readReplies: the server answers nothing any more
	requests    *queue[request]
	replies     *queue[reply]
	held        atomic.Int64 // requests under HoldRequest that are not delivered yet

	// mu also makes one step of taking a record from the matcher and queueing
	// what comes of it, so that a marker can't overtake a reply.
	mu      sync.Mutex
	m       matcher
	silent  bool     // a reply is missing: the client gets no further one
	backend net.Conn // nil until dialed
}

func newLink(p *Proxy, client net.Conn) *link {
	l := &link{
		p:           p,
		client:      client,
		clientGone:  make(chan struct{}),
		backendGone: make(chan struct{}),
		requests:    newQueue[request](),
		replies:     newQueue[reply](),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// run serves the link until both sides are done with it, or kill.
func (l *link) run() {
	defer l.kill()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(l.readRequests)
	wg.Go(l.writeClient)
	backend, err := l.dial()
	if err != nil {
		l.replies.end() // the client sees its connection closed
		return
	}
	wg.Go(func() { l.readReplies(backend) })
	l.writeBackend(backend)
}

// dial connects to the server, after the end of a black hole. A client that left
// during it has sent nothing: its connection would not have come about.
func (l *link) dial() (net.Conn, error) {
	waited, ok := l.p.hole.pass(l.ctx.Done())
	if !ok {
		return nil, l.ctx.Err()
	}
	if waited && isClosed(l.clientGone) {
		return nil, net.ErrClosed
	}
	d := net.Dialer{Timeout: dialTimeout}
	backend, err := d.DialContext(l.ctx, "tcp", l.p.backend)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		backend.Close()
		return nil, l.ctx.Err()
	}
	l.backend = backend
	return backend, nil
}

// kill ends the link at once: its sockets are closed under their readers and
// writers, and whoever waits is let go.
func (l *link) kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel()
	l.client.Close()
	if l.backend != nil {
		l.backend.Close()
	}
}

// cut closes the connection on both sides, except that a held request still gets
// to the server. When it returns, the client's side is closed.
func (l *link) cut() {
	l.client.Close()
	if l.held.Load() == 0 {
		l.kill()
	}
	<-l.clientGone
}

// readRequests takes what the client sends and decides which fault it meets.
func (l *link) readRequests() {
	defer close(l.clientGone)
	defer l.p.open.Add(-1)
	defer l.requests.end()
	in := bufio.NewReaderSize(l.client, bufferSize)
	for {
		raw, cmd, err := readRequest(in)
		if err != nil {
			l.broken("request", err)
			return
		}
		rq := request{raw: raw, cmd: cmd}
		if len(cmd) > 0 {
			rq.fault = l.p.rules.match(cmd)
		}
		if rq.fault.kindOf() == holdRequest {
			l.held.Add(1)
		}
		l.requests.push(rq)
	}
}

// writeBackend forwards requests, in order. When there are no more, the server
// learns that the client has left, and answers with its own end.
func (l *link) writeBackend(backend net.Conn) {
	defer l.requests.drop()
	out := bufio.NewWriterSize(backend, bufferSize)
	for {
		batch, ok := l.requests.take(l.backendGone)
		if !ok {
			break
		}
		for _, rq := range batch {
			if !l.forward(rq, out) {
				return
			}
		}
		if out.Flush() != nil {
			return
		}
	}
	if tcp, ok := backend.(*net.TCPConn); ok {
		_ = tcp.CloseWrite() // fails only if the connection is gone
	}
}

// forward writes one request and makes the faults that concern requests. It
// reports whether to go on.
func (l *link) forward(rq request, out *bufio.Writer) bool {
	switch k := rq.fault.kindOf(); k {
	case dropRequest, answerRequest:
		rq.fault.hit()
		l.mark(rq)
		return true
	case closeBeforeForward:
		if out.Flush() != nil {
			return false
		}
		rq.fault.hit()
		l.mark(rq)
		// The server's side stays until the client's is closed: the server might
		// drop replies that are still to come.
		wait(l.clientGone, l.backendGone)
		l.kill()
		return false
	case holdRequest:
		if out.Flush() != nil {
			return false
		}
		rq.fault.hit()
		defer l.held.Add(-1)
		if !wait(rq.fault.rule.Do.until, l.backendGone) {
			return false
		}
	}
	if _, ok := l.p.hole.pass(l.backendGone); !ok {
		return false
	}
	if len(rq.cmd) > 0 {
		l.mu.Lock()
		l.m.push(newRecord(rq.cmd, rq.fault))
		l.mu.Unlock()
	}
	if _, err := out.Write(rq.raw); err != nil {
		return false
	}
	// What was held is on its way before it stops to count as held: see cut.
	return rq.fault.kindOf() != holdRequest || out.Flush() == nil
}

// mark notes a request that is not forwarded, in its place among the others.
func (l *link) mark(rq request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := newRecord(rq.cmd, rq.fault)
	r.marker = true
	l.m.push(r)
	l.settle()
}

// settle carries out the markers that have come to the head of the line. The
// caller holds mu.
func (l *link) settle() {
	for r := l.m.head(); r != nil && r.marker; r = l.m.head() {
		l.m.pop()
		switch r.fault.kindOf() {
		case closeBeforeForward:
			l.replies.push(reply{close: true})
		case answerRequest:
			if !l.silent {
				l.replies.push(reply{raw: []byte("-" + r.fault.rule.Do.text + "\r\n"), due: l.p.arrival()})
			}
		default:
			l.missing(r)
		}
	}
}

// missing notes that the client will not get the reply to r.
func (l *link) missing(r *record) {
	if !r.subscribes() && !l.m.subscribed() {
		l.silent = true
	}
}

// readReplies takes what the server sends and matches it.
func (l *link) readReplies(backend net.Conn) {
	defer close(l.backendGone)
	defer l.replies.end()
	in := bufio.NewReaderSize(backend, bufferSize)
	for {
		v, err := readValue(in)
		if err != nil {
			l.broken("reply", err)
			return
		}
		l.answer(v)
	}
}

// answer queues a reply for the client, with the fault it meets.
func (l *link) answer(v value) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.settle()
	out := reply{raw: v.raw, due: l.p.arrival()}
	r := l.m.reply(v)
	if r == nil {
		l.replies.push(out)
		return
	}

	k := r.fault.kindOf()
	if r.fault != nil && !k.onRequest() && !r.hit {
		r.hit = true // the confirmations of one SUBSCRIBE are one hit
		r.fault.hit()
	}
	switch k {
	case closeAfterForward:
		l.replies.push(reply{close: true})
		return
	case dropReply:
		l.missing(r)
		return
	case delayReply:
		if out.due.IsZero() {
			out.due = time.Now()
		}
		out.due = out.due.Add(r.fault.rule.Do.delay)
	case holdReply:
		out.until = r.fault.rule.Do.until
	}
	if !l.silent {
		l.replies.push(out)
	}
}

// writeClient delivers replies, in order and when they are due, and then closes
// the client's connection.
func (l *link) writeClient() {
	defer l.replies.drop()
	defer l.client.Close()
	out := bufio.NewWriterSize(l.client, bufferSize)
	for {
		batch, ok := l.replies.take(l.ctx.Done())
		if !ok {
			break
		}
		for _, r := range batch {
			if !l.deliver(r, out) {
				return
			}
		}
		if out.Flush() != nil {
			return
		}
	}
	l.p.hole.pass(l.ctx.Done()) // the end doesn't get through a black hole either
}

// deliver writes one reply when it is due and reports whether to go on.
func (l *link) deliver(r reply, out *bufio.Writer) bool {
	stop := l.ctx.Done()
	if r.until != nil {
		if out.Flush() != nil || !wait(r.until, stop) {
			return false
		}
	}
	if !r.due.IsZero() {
		if left := time.Until(r.due); left > 0 && (out.Flush() != nil || !sleep(left, stop)) {
			return false
		}
	}
	if _, ok := l.p.hole.pass(stop); !ok {
		return false
	}
	if r.close {
		_ = out.Flush() // the connection is closed in any case
		return false
	}
	_, err := out.Write(r.raw)
	return err == nil
}

// broken ends the link after an error of a reader that is not a connection's end.
func (l *link) broken(what string, err error) {
	if errors.Is(err, errProtocol) {
		l.p.report("%s on link to %s: %v", what, l.p.backend, err)
		l.kill()
	}
}

// wait returns true when until is closed, false when stop is closed before.
func wait(until, stop <-chan struct{}) bool {
	select {
	case <-until:
		return true
	case <-stop:
		return false
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// sleep returns true after d, false when stop is closed before.
func sleep(d time.Duration, stop <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-stop:
		return false
	}
}
