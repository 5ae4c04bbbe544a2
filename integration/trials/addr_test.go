package trials

import (
	"context"
	"net"
	"sync/atomic"
	"time"
)

// atomicAddr is an address that can move: new connections go to where it points,
// as behind a name or a virtual address.
type atomicAddr struct{ p atomic.Pointer[string] }

func (a *atomicAddr) set(addr string) { a.p.Store(&addr) }

func (a *atomicAddr) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, network, *a.p.Load())
}

// pause lets time pass, where that is the point.
func pause(d time.Duration) { <-time.After(d) }
