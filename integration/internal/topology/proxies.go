package topology

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
)

// Proxies are fault proxies, one before every server of a topology, the sentinels
// included.
type Proxies struct {
	endpoint Endpoint
	byAddr   map[string]*faultproxy.Proxy
	close    func()
}

// Proxies puts a fault proxy before each server. Several sets may stand beside each
// other: one for each client, say. The caller closes them, after the clients.
func (t *Topology) Proxies() (*Proxies, error) {
	return NewProxies(t.Endpoint(), t.Addrs())
}

// Addrs are the addresses of all servers, the sentinels included.
func (t *Topology) Addrs() (addrs []string) {
	for _, n := range slices.Concat(t.nodes, t.sentinels) {
		addrs = append(addrs, n.Addr())
	}
	return addrs
}

// NewProxies is Topology.Proxies for servers that somebody else has started: all
// those at addrs.
func NewProxies(e Endpoint, addrs []string) (*Proxies, error) {
	p := &Proxies{endpoint: e, byAddr: make(map[string]*faultproxy.Proxy)}
	p.endpoint.Via = make(map[string]string)
	p.close = sync.OnceFunc(func() {
		for _, x := range p.byAddr {
			x.Close()
		}
	})
	for _, addr := range addrs {
		x, err := faultproxy.NewFor(addr)
		if err != nil {
			p.close()
			return nil, fmt.Errorf("topology: proxy for %s: %w", addr, err)
		}
		p.byAddr[addr] = x
		p.endpoint.Via[addr] = x.Addr()
	}
	return p, nil
}

// Endpoint is the topology's, with every server behind its proxy.
func (p *Proxies) Endpoint() Endpoint {
	e := p.endpoint
	e.Addrs = slices.Clone(e.Addrs)
	e.Via = maps.Clone(e.Via)
	return e
}

// Of is the proxy before a node.
func (p *Proxies) Of(n *Node) *faultproxy.Proxy { return p.byAddr[n.Addr()] }

// All are all of them.
func (p *Proxies) All() []*faultproxy.Proxy { return slices.Collect(maps.Values(p.byAddr)) }

// Add puts a rule into force at all of them. A rule's Times count at each.
func (p *Proxies) Add(r faultproxy.Rule) []*faultproxy.Fault {
	var faults []*faultproxy.Fault
	for _, x := range p.byAddr {
		faults = append(faults, x.Add(r))
	}
	return faults
}

// Cut closes all connections through them.
func (p *Proxies) Cut() {
	for _, x := range p.byAddr {
		x.Cut()
	}
}

// Close ends them and all connections through them.
func (p *Proxies) Close() { p.close() }
