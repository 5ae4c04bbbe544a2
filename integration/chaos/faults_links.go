package main

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
)

// Faults between clients and servers: at the proxies, all of them unless it says
// otherwise.
var linkFaults = []kind{
	{
		name: "drop-replies", does: "5 % of all replies are lost; their connections stay open and silent",
		lane: links, least: 300 * time.Millisecond, most: 2 * time.Second,
		new: func(e event) fault { return &rule{do: faultproxy.DropReply, share: 0.05, seed: e.Pick} },
	},
	{
		name: "drop-requests", does: "5 % of all requests are lost; their connections stay open and silent",
		lane: links, least: 300 * time.Millisecond, most: 2 * time.Second,
		new: func(e event) fault { return &rule{do: faultproxy.DropRequest, share: 0.05, seed: e.Pick} },
	},
	{
		name: "close-unanswered", does: "10 % of all requests are carried out, and their connection is closed in place of the reply",
		lane: links, least: 300 * time.Millisecond, most: 2 * time.Second,
		new: func(e event) fault { return &rule{do: faultproxy.CloseAfterForward, share: 0.1, seed: e.Pick} },
	},
	{
		name: "late-requests", does: "5 % of all scripts reach the server only when the fault ends, whatever their clients did meanwhile",
		lane: links, least: 500 * time.Millisecond, most: 3 * time.Second,
		new: func(e event) fault { return &lateRequests{seed: e.Pick} },
	},
	{
		name: "delay", does: "replies and messages come 1 to 80 ms later",
		lane: links, least: 300 * time.Millisecond, most: 3 * time.Second,
		new: func(event) fault { return &latency{} },
	},
	{
		name: "cut", does: "all connections are closed, five times a second",
		lane: links, least: 200 * time.Millisecond, most: 1500 * time.Millisecond,
		new: func(event) fault { return &cutting{} },
	},
	{
		name: "black-hole", does: "nothing gets through, nothing is closed",
		lane: links, least: 300 * time.Millisecond, most: 2500 * time.Millisecond,
		new: func(event) fault { return &blackHole{} },
	},
	{
		name: "refuse", does: "all connections are closed, new ones too",
		lane: links, least: 200 * time.Millisecond, most: 1500 * time.Millisecond,
		new: func(event) fault { return &refusal{} },
	},
}

// rule does something to a share of all requests.
type rule struct {
	do    faultproxy.Action
	share float64
	seed  uint64
	put   []*faultproxy.Fault
}

func (f *rule) Begin(_ context.Context, w *world) error {
	f.put = w.proxies.Add(faultproxy.Rule{Match: faultproxy.Prob(f.share, f.seed), Do: f.do})
	return nil
}

func (f *rule) End(context.Context, *world) error {
	for _, p := range f.put {
		p.Remove()
	}
	return nil
}

type lateRequests struct {
	seed uint64
	due  chan struct{}
	put  []*faultproxy.Fault
}

func (f *lateRequests) Begin(_ context.Context, w *world) error {
	f.due = make(chan struct{})
	f.put = w.proxies.Add(faultproxy.Rule{
		Match: faultproxy.All(faultproxy.Cmd("evalsha", "eval"), faultproxy.Prob(0.05, f.seed)),
		Do:    faultproxy.HoldRequest(f.due),
	})
	return nil
}

func (f *lateRequests) End(context.Context, *world) error {
	for _, p := range f.put {
		p.Remove()
	}
	close(f.due)
	return nil
}

type latency struct{}

func (latency) Begin(_ context.Context, w *world) error {
	for _, p := range w.proxies.All() {
		p.SetLatency(time.Millisecond, 80*time.Millisecond)
	}
	return nil
}

func (latency) End(_ context.Context, w *world) error {
	for _, p := range w.proxies.All() {
		p.SetLatency(0, 0)
	}
	return nil
}

type cutting struct{ stop func() error }

func (f *cutting) Begin(_ context.Context, w *world) error {
	f.stop = every(200*time.Millisecond, func() error {
		for _, p := range w.proxies.All() {
			p.Cut()
		}
		return nil
	})
	return nil
}

func (f *cutting) End(context.Context, *world) error { return f.stop() }

type blackHole struct{}

func (blackHole) Begin(_ context.Context, w *world) error {
	for _, p := range w.proxies.All() {
		p.Blackhole(true)
	}
	return nil
}

func (blackHole) End(_ context.Context, w *world) error {
	for _, p := range w.proxies.All() {
		p.Blackhole(false)
	}
	return nil
}

type refusal struct{}

func (refusal) Begin(_ context.Context, w *world) error {
	for _, p := range w.proxies.All() {
		p.Refuse(true)
		p.Cut()
	}
	return nil
}

func (refusal) End(_ context.Context, w *world) error {
	for _, p := range w.proxies.All() {
		p.Refuse(false)
	}
	return nil
}
