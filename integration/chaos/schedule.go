package main

import (
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"slices"
	"time"
)

// lane is a line of faults that follow each other. Faults of different lanes
// happen at the same time.
type lane string

const (
	links   lane = "links"   // between clients and servers
	orders  lane = "orders"  // what an operator may tell all servers at once
	servers lane = "servers" // what happens to one of them
	clients lane = "clients" // the processes
)

var lanes = []lane{links, orders, servers, clients}

// event is one fault of a schedule.
type event struct {
	At   time.Duration // after the start of the work
	For  time.Duration // how long it lasts; 0: it is over at once
	Kind string
	Pick uint64 // which node, client, slots: the fault takes of it what it needs
}

func (e event) String() string {
	return fmt.Sprintf("%8.3fs %7.3fs  %-16s %016x", e.At.Seconds(), e.For.Seconds(), e.Kind, e.Pick)
}

const (
	firstFault = 300 * time.Millisecond
	quiet      = 5 * time.Second // of work after the last fault, a third of the run at most
)

// plan makes the schedule of a run. It depends on its arguments alone: the same
// seed gives the same faults at the same moments. Every kind comes once before
// any comes twice, in an order that the seed shuffles.
func plan(kinds []kind, seed uint64, duration time.Duration) []event {
	end := duration - min(quiet, duration/3)
	var all []event
	for _, l := range lanes {
		h := fnv.New64a()
		_, _ = io.WriteString(h, string(l)) // a hash takes everything
		rnd := rand.New(rand.NewPCG(seed, h.Sum64()))
		var deck []kind
		for at := firstFault + upTo(rnd, l.gap()); ; {
			if len(deck) == 0 {
				if deck = ofLane(kinds, l); len(deck) == 0 {
					break
				}
				rnd.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
			}
			k := deck[0]
			deck = deck[1:]
			e := event{At: at, For: k.least + upTo(rnd, k.most-k.least), Kind: k.name, Pick: rnd.Uint64()}
			if e.At+e.For > end {
				break
			}
			all = append(all, e)
			at += e.For + k.after + upTo(rnd, l.gap())
		}
	}
	slices.SortStableFunc(all, func(a, b event) int { return int(a.At - b.At) })
	return all
}

// gap is the longest pause between two faults of a lane.
func (l lane) gap() time.Duration {
	switch l {
	case servers:
		return 2 * time.Second
	case clients:
		return time.Second
	default:
		return 1500 * time.Millisecond
	}
}

func ofLane(kinds []kind, l lane) (some []kind) {
	for _, k := range kinds {
		if k.lane == l {
			some = append(some, k)
		}
	}
	return some
}

func upTo(rnd *rand.Rand, d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(rnd.Int64N(int64(d))).Truncate(time.Millisecond)
}
