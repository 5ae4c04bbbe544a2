package watchdog

import (
	"container/heap"
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// schedule sets when to look at a lease next, from its renewal and deadline.
func schedule(l *lease.Lease) {
	scheduleBefore(l, l.Deadline())
}

func scheduleBefore(l *lease.Lease, deadline time.Time) {
	w := &l.Watch
	w.Next = deadline
	if !w.Parked && !w.RenewAt.IsZero() && w.RenewAt.Before(w.Next) {
		w.Next = w.RenewAt
	}
}

// fresh are the leases that were kept since the last look: many are stopped before the
// next, and never come into the heap. Their places count down from -1.
type fresh []*lease.Lease

func (f *fresh) add(l *lease.Lease) {
	*f = append(*f, l)
	l.Watch.Place = -len(*f)
}

func (f *fresh) remove(l *lease.Lease) {
	all, i := *f, -l.Watch.Place-1
	last := len(all) - 1
	all[i] = all[last]
	all[i].Watch.Place = -i - 1
	all[last] = nil // so that it can be collected
	*f = all[:last]
	l.Watch.Place = 0
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
