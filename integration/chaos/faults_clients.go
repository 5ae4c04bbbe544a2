package main

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/integration/internal/history"
)

const killClient = "kill-client"

// Faults of client processes.
var clientFaults = []kind{
	{
		name: "freeze-client", does: "SIGSTOP of a client, for less than a lease",
		lane: clients, least: 100 * time.Millisecond, most: lease * 6 / 10,
		new: func(e event) fault { return &frozen{pick: e.Pick} },
	},
	{
		name: "freeze-long", does: "SIGSTOP of a client, for longer than a lease",
		lane: clients, least: lease * 12 / 10, most: lease * 18 / 10,
		new: func(e event) fault { return &frozen{pick: e.Pick} },
	},
	{
		name: killClient, does: "SIGKILL of a client; a new one takes its place",
		lane: clients,
		new:  func(e event) fault { return &death{pick: e.Pick} },
	},
}

type frozen struct {
	pick uint64
	who  *client
}

func (f *frozen) Aim(_ context.Context, w *world, e *history.Event) error {
	f.who = w.fleet.at(f.pick)
	e.Process = &f.who.process
	return nil
}

func (f *frozen) Begin(_ context.Context, w *world) error { return w.fleet.freeze(f.who) }
func (f *frozen) End(_ context.Context, w *world) error   { return w.fleet.thaw(f.who) }

type death struct {
	pick uint64
	who  *client
}

func (f *death) Aim(_ context.Context, w *world, e *history.Event) error {
	f.who = w.fleet.at(f.pick)
	e.Process, e.Killed = &f.who.process, true
	return nil
}

func (f *death) Begin(_ context.Context, w *world) error { return w.fleet.replace(f.who) }

// End: it is over.
func (*death) End(context.Context, *world) error { return nil }
