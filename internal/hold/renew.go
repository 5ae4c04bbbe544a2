package hold

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/keys"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/script"
)

// Renew asks for a fresh lease for each of ls, which share their way of
// renewing: in one script call on a single server, in one per slot, pipelined,
// on a cluster. A call that is refused as a whole is asked name by name, so
// that one bad name (an ACL, a slot that moves) doesn't cost the others theirs.
func (s *Services) Renew(ctx context.Context, ls []*lease.Lease) []lease.Result {
	results := make([]lease.Result, len(ls))
	if refused := s.renew(ctx, ls, s.group(ls), results); len(refused) > 0 {
		s.renew(ctx, ls, refused, results)
	}
	return results
}

// group answers which places of ls may share a script call.
func (s *Services) group(ls []*lease.Lease) [][]int {
	bySlot := make(map[int][]int)
	for i, l := range ls {
		slot := 0
		if s.Runner.Cluster() {
			slot = keys.Slot(l.Key)
		}
		bySlot[slot] = append(bySlot[slot], i)
	}
	groups := make([][]int, 0, len(bySlot))
	for _, g := range bySlot {
		groups = append(groups, g)
	}
	return groups
}

// renewing: a renewal that replicas don't confirm is none. An old master that was
// cut off would otherwise go on "renewing".
func renewing(any) bool { return true }

// renew sends one call a group, fills in results, and answers the places, one
// each, that were refused because of the company they were in.
func (s *Services) renew(ctx context.Context, ls []*lease.Lease, groups [][]int, results []lease.Result) (refused [][]int) {
	calls := make([]script.Call, len(groups))
	for i, g := range groups {
		ks, fields := make([]string, len(g)), make([]string, len(g))
		for j, n := range g {
			ks[j], fields[j] = ls[n].Key, ls[n].Field
		}
		calls[i] = ls[g[0]].Renew.Call(ks, fields, s.Lease).Replicated(renewing)
	}
	for i, reply := range s.Runner.Batch(ctx, calls) {
		g := groups[i]
		there, _ := reply.Val.([]any)
		if reply.Err == nil && len(there) != len(g) {
			reply.Err = fmt.Errorf("%w: renewal answered %v for %d names", errs.ErrUnavailable, reply.Val, len(g))
		}
		for j, n := range g {
			r := lease.Result{Asked: reply.Asked, Err: reply.Err}
			switch {
			case errors.Is(reply.Err, errs.ErrNotReplicated) && len(there) == len(g) && there[j] == int64(0):
				r.Verdict, r.Err = lease.Gone, nil // here already; who else has that is no matter
			case reply.Err != nil:
				if len(g) > 1 && script.Company(reply.Err) {
					refused = append(refused, []int{n})
				}
			case there[j] == int64(1):
				r.Verdict = lease.Renewed
			default:
				r.Verdict = lease.Gone
			}
			results[n] = r
		}
	}
	return refused
}
