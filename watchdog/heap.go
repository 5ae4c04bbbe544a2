package watchdog

import (
	"container/heap"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// schedule sets when to look at a lease next, from its renewal and deadline.
func schedule(l *lease.Lease) {
	w := &l.Watch
	w.Next = l.Deadline()
	if !w.Parked && !w.RenewAt.IsZero() && w.RenewAt.Before(w.Next) {
		w.Next = w.RenewAt
	}
}

// leases is a heap, the one to look at first at the front.
type leases []*lease.Lease

var _ heap.Interface = (*leases)(nil)

func (h leases) Len() int           { return len(h) }
func (h leases) Less(i, j int) bool { return h[i].Watch.Next.Before(h[j].Watch.Next) }

func (h leases) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].Watch.Place, h[j].Watch.Place = i+1, j+1
}

func (h *leases) Push(x any) {
	l := x.(*lease.Lease)
	*h = append(*h, l)
	l.Watch.Place = len(*h)
}

func (h *leases) Pop() any {
	old := *h
	l := old[len(old)-1]
	old[len(old)-1] = nil // so that it can be collected
	*h = old[:len(old)-1]
	l.Watch.Place = 0
	return l
}
