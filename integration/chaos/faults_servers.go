package main

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/integration/internal/history"
	"github.com/holdfast-go/holdfast/integration/internal/topology"
)

// appUser is the user that the clients log in as.
const appUser, appPassword = "app", "app"

// users is the file of users that every start of a server reads. What ACL SETUSER
// changes is not written to it.
const users = "user " + appUser + " on >" + appPassword + " ~* &* +@all\nuser default on nopass ~* &* +@all\n"

// downAfter is after which silence a server is taken for dead. Faults after which
// nothing shall fail over stay well below.
const downAfter = 1500 * time.Millisecond

// Faults that an operator may cause at all servers. A server that is down or stopped
// at that moment hears nothing of it, or late.
var orderFaults = []kind{
	{
		name: "kill-pubsub", does: "CLIENT KILL TYPE pubsub on every server, every 100 ms",
		lane: orders, least: 300 * time.Millisecond, most: 1500 * time.Millisecond,
		new: func(event) fault { return &pubsubKills{} },
	},
	{
		name: "flush-scripts", does: "SCRIPT FLUSH on every server, every 50 ms",
		lane: orders, least: 300 * time.Millisecond, most: 1500 * time.Millisecond,
		new: func(event) fault { return &scriptFlushes{} },
	},
	{
		name: "pause", does: "CLIENT PAUSE on every server",
		lane: orders, least: 200 * time.Millisecond, most: 500 * time.Millisecond,
		new: func(e event) fault { return clientPause{time: e.For} },
	},
	{
		name: "no-channels", does: "ACL: the clients' user loses its channels, SUBSCRIBE and PUBLISH are refused",
		lane: orders, least: 300 * time.Millisecond, most: 2 * time.Second,
		new: func(event) fault { return &denial{take: []string{"resetchannels"}, give: []string{"&*"}} },
	},
	{
		name: "no-subscribe", does: "ACL: the clients' user loses all commands of publish/subscribe but PUBLISH",
		lane: orders, least: 300 * time.Millisecond, most: 2 * time.Second,
		new: func(event) fault {
			return &denial{take: []string{"-@pubsub", "+publish"}, give: []string{"+@all"}}
		},
	},
}

// Faults of one server after which all data is there.
var serverFaults = []kind{
	{
		name: "freeze-server", does: "SIGSTOP of a master, too short to be taken for dead",
		lane: servers, least: 200 * time.Millisecond, most: 700 * time.Millisecond,
		new: func(e event) fault { return &freeze{pick: e.Pick} },
	},
	{
		name: "kill-server", does: "kill -9 of the server, which comes back with its data (appendfsync always)",
		lane: servers, on: []topology.Kind{topology.Single}, least: 0, most: time.Second,
		new: func(event) fault { return kill{} },
	},
}

type pubsubKills struct{ stop func() error }

func (f *pubsubKills) Begin(ctx context.Context, w *world) error {
	f.stop = every(100*time.Millisecond, func() error {
		return w.onEach(func(n *topology.Node) error {
			return n.Admin().ClientKillByFilter(ctx, "TYPE", "pubsub").Err()
		})
	})
	return nil
}

func (f *pubsubKills) End(context.Context, *world) error { return f.stop() }

type scriptFlushes struct{ stop func() error }

func (f *scriptFlushes) Begin(ctx context.Context, w *world) error {
	f.stop = every(50*time.Millisecond, func() error {
		return w.onEach(func(n *topology.Node) error { return n.Admin().ScriptFlush(ctx).Err() })
	})
	return nil
}

func (f *scriptFlushes) End(context.Context, *world) error { return f.stop() }

type clientPause struct{ time time.Duration }

func (f clientPause) Begin(ctx context.Context, w *world) error {
	return w.onEach(func(n *topology.Node) error { return n.Admin().ClientPause(ctx, f.time).Err() })
}

// End: it ends by itself.
func (clientPause) End(context.Context, *world) error { return nil }

// freeze stops a master.
type freeze struct {
	pick uint64
	node *topology.Node
}

func (f *freeze) Aim(ctx context.Context, w *world, e *history.Event) (err error) {
	f.node, err = w.aim(ctx, f.pick, e)
	return err
}

func (f *freeze) Begin(context.Context, *world) error { return f.node.Pause() }
func (f *freeze) End(context.Context, *world) error   { return f.node.Resume() }

// denial takes rights from the clients' user.
type denial struct{ take, give []string }

func (f *denial) Begin(ctx context.Context, w *world) error {
	return w.onEach(func(n *topology.Node) error { return n.Admin().ACLSetUser(ctx, appUser, f.take...).Err() })
}

// End gives the rights back, also where the server is down and comes back by and by.
func (f *denial) End(ctx context.Context, w *world) error {
	var all error
	for _, n := range w.top.Nodes() {
		all = errors.Join(all, retry(ctx, func() error { return n.Admin().ACLSetUser(ctx, appUser, f.give...).Err() }))
	}
	return all
}

// kill ends the only server, which comes back with its data.
type kill struct{}

func (kill) Begin(_ context.Context, w *world) error {
	w.top.Nodes()[0].Kill()
	return nil
}

// End tries again: on a busy machine a server may take too long to come up.
func (kill) End(ctx context.Context, w *world) error { return retry(ctx, w.top.Nodes()[0].Restart) }
