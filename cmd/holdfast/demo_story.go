package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// story lets the pods play the acts, one after the other, and checks them.
type story struct {
	ctx    context.Context
	show   *reporter
	fleet  *fleet
	rdb    redis.UniversalClient
	prefix string
	gone   map[int]bool // pods that were told to end
	done   int          // pods that have done what the act is about
	leader int          // pod that leads; 0 if none
	rivals bool         // two led at the same time
	result
}

// tell plays everything. Its error is what kept it from going on; what was
// wrong with locks is in the checks.
func (s *story) tell() error {
	s.gone = map[int]bool{}
	s.Stock, s.Lease = demoStock, demoLease.Seconds()
	if err := s.await(demoPods, podUp); err != nil {
		return err
	}
	for _, act := range []func() error{s.nightly, s.stockWithLock, s.stockWithout, s.takeover} {
		s.done = 0
		if err := act(); err != nil {
			return err
		}
		for s.done < len(s.alive()) {
			if _, err := s.next(); err != nil {
				return err
			}
		}
	}
	return s.dismiss()
}

func (s *story) check(name string, ok bool, format string, args ...any) {
	s.Checks = append(s.Checks, check{name, ok, fmt.Sprintf(format, args...)})
}

// nightly: all pods want one job at the same time.
func (s *story) nightly() error {
	s.show.act("nightly", "1. The nightly report: three pods want it, one runs it (TryLock)")
	s.fleet.order(doNightly, s.alive()...)
	var winners []int
	for answers := 0; answers < demoPods; {
		e, err := s.next()
		if err != nil {
			return err
		}
		switch e.Event {
		case podAcquired:
			winners = append(winners, e.Pod)
			answers++
		case podAside:
			answers++
		}
	}
	s.fleet.order(doGo, winners...)
	s.NightlyRuns = len(winners)
	s.check("nightly_ran_once", len(winners) == 1, "the nightly report ran %s", times(len(winners)))
	return nil
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func (s *story) stockWithLock() error {
	s.show.act("stock", fmt.Sprintf("2. The last %d in stock: read, check, take the money, write, under a lock (Lock)", demoStock))
	sold, lowest, err := s.sell(doSell)
	if err != nil {
		return err
	}
	s.SoldLocked, s.LowestLocked = sold, lowest
	s.check("never_oversold_with_lock", sold == demoStock && lowest >= 0,
		"with the lock %d of %d were sold: stock never went below zero (lowest %d)", sold, demoStock, lowest)
	return nil
}

func (s *story) stockWithout() error {
	s.show.act("no-locks", "3. The same without the lock")
	sold, lowest, err := s.sell(doSellUnlocked)
	if err != nil {
		return err
	}
	s.SoldUnlocked, s.LowestUnlocked = sold, lowest
	s.check("oversold_without_lock", lowest < 0,
		"without it %d of %d were sold: stock at %d", sold, demoStock, lowest)
	return nil
}

// sell lets all pods sell, and counts what leaves the shelf. Pods that sell
// without a lock are let go each time all of them have read.
func (s *story) sell(do string) (sold, lowest int, err error) {
	if err := s.rdb.Set(s.ctx, s.prefix+demoCounter, demoStock, demoTimeout).Err(); err != nil {
		return 0, 0, fmt.Errorf("fill the shelf: %w", err)
	}
	s.fleet.order(do, s.alive()...)
	shelf, read := demoStock, 0
	lowest = shelf
	for out := 0; out < demoPods; {
		e, err := s.take()
		if err != nil {
			return 0, 0, err
		}
		switch e.Event {
		case podRead:
			read++
		case podSold:
			sold++
			shelf--
			lowest = min(lowest, shelf)
			e.Text += fmt.Sprintf(": %d on the shelf", shelf)
		case podSoldOut:
			out++
		}
		s.tellOf(e)
		if do == doSellUnlocked && read == demoPods {
			read = 0
			s.fleet.order(doGo, s.alive()...)
		}
	}
	return sold, lowest, nil
}

// takeover: one pod holds the lock for longer than a lease, and is killed.
func (s *story) takeover() error {
	s.show.act("takeover", fmt.Sprintf("4. A leader dies: the next one takes over when the lease of %v runs out", demoLease))
	s.fleet.order(doLead, s.alive()...)
	if err := s.await(1, podStill); err != nil {
		return err
	}
	first := s.leader
	s.check("lease_renewed", !s.rivals, "a leader held a lease of %v for %v, and was alone", demoLease, demoReign)

	s.gone[first], s.leader = true, 0
	killed := time.Now()
	if err := s.fleet.kill(first); err != nil {
		return fmt.Errorf("kill pod %d: %w", first, err)
	}
	s.show.event(event{Event: "kill", Text: fmt.Sprintf("pod %d gets SIGKILL while it holds the lock", first)})
	if err := s.await(1, podLeads); err != nil {
		return err
	}
	took := time.Since(killed)
	s.Takeover = float64(took.Milliseconds()) / 1000
	s.show.event(event{Event: "takeover", Text: fmt.Sprintf("pod %d took over %.2f s after the kill", s.leader, s.Takeover)})

	s.abdicate()
	if err := s.await(1, podLeads); err != nil {
		return err
	}
	s.abdicate()
	s.check("took_over_after_kill", took <= demoLease+demoSlack && !s.rivals,
		"pod %d was killed, the next led after %.2f s (lease %v); there was never more than one leader", first, s.Takeover, demoLease)
	return nil
}

// abdicate lets the leader go. It counts as one no longer: what pods report can
// arrive here in another order than it happened.
func (s *story) abdicate() {
	leader := s.leader
	s.leader = 0
	s.fleet.order(doGo, leader)
}

// dismiss lets the pods that are left end by themselves.
func (s *story) dismiss() error {
	waiting := len(s.alive())
	for _, n := range s.alive() {
		s.gone[n] = true
	}
	s.fleet.dismiss()
	for waiting > 0 {
		e, err := s.take()
		if err != nil {
			return err
		}
		if e.Event == podExited {
			waiting--
		}
	}
	return nil
}

func (s *story) alive() []int {
	var ns []int
	for _, p := range s.fleet.pods {
		if !s.gone[p.number] {
			ns = append(ns, p.number)
		}
	}
	return ns
}

// take answers the next event, and an error when the story can't go on.
func (s *story) take() (event, error) {
	select {
	case e := <-s.fleet.events:
		if e.Event == podFailed || e.Event == podExited && !s.gone[e.Pod] {
			return e, fmt.Errorf("pod %d: %s", e.Pod, e.Text)
		}
		s.note(e)
		return e, nil
	case <-s.ctx.Done():
		return event{}, context.Cause(s.ctx)
	}
}

// note keeps account of who does what.
func (s *story) note(e event) {
	switch e.Event {
	case podDone:
		s.done++
	case podLeads:
		s.rivals = s.rivals || s.leader != 0
		s.leader = e.Pod
	}
}

// next is take, and shows it.
func (s *story) next() (event, error) {
	e, err := s.take()
	if err == nil {
		s.tellOf(e)
	}
	return e, err
}

// tellOf shows an event, except the end of an order.
func (s *story) tellOf(e event) {
	if e.Event != podDone {
		s.show.event(e)
	}
}

// await waits for n events of a name.
func (s *story) await(n int, name string) error {
	for n > 0 {
		e, err := s.next()
		if err != nil {
			return err
		}
		if e.Event == name {
			n--
		}
	}
	return nil
}

// cleanUp removes the counter. Locks end by themselves.
func (s *story) cleanUp() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), demoSlack)
	defer cancel()
	_ = s.rdb.Del(ctx, s.prefix+demoCounter).Err() // it expires, too
}
