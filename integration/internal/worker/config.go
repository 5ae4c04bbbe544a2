// Package worker is one client process of a chaos run: goroutines that use names of
// all primitives as a seed tells them, and write down what they ask and are
// answered (package history).
//
// A process is told what to do by one line of JSON, a Config, on its standard
// input; it stops when that is closed, or by SIGTERM: it begins nothing more, lets
// the calls under way come to their end, looks for holds and subscriptions that were
// forgotten, closes the client, looks for what was left, and writes a Report as the last line of its history.
package worker

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/integration/internal/history"
)

// Topology is how the servers are found.
type Topology string

// Topologies.
const (
	Single   Topology = "single"
	Sentinel Topology = "sentinel"
	Cluster  Topology = "cluster"
)

// Config is what one process does. Durations are nanoseconds in JSON.
type Config struct {
	Process    int    `json:"process"`
	Seed       uint64 `json:"seed"`       // the same for all processes
	Goroutines int    `json:"goroutines"` // default 16
	Names      int    `json:"names"`      // of each kind at a time; default 3
	History    string `json:"history"`    // file to be made

	Topology   Topology          `json:"topology"` // default single
	Addrs      []string          `json:"addrs"`    // the server; the sentinels; nodes of the cluster
	MasterName string            `json:"master_name,omitempty"`
	Proxies    map[string]string `json:"proxies,omitempty"` // real address to that which is dialled instead
	Username   string            `json:"username,omitempty"`
	Password   string            `json:"password,omitempty"`

	Prefix string `json:"prefix,omitempty"` // of all names; default "chaos:"
	// Epoch is the moment (history.Now) at which the first generation of names
	// begins, the same for all processes, and Generation how long each lasts;
	// default 5 s, some hundred calls of a name. Each generation has names of its own.
	Epoch      int64         `json:"epoch"`
	Generation time.Duration `json:"generation,omitempty"`

	Lease          time.Duration `json:"lease,omitempty"`           // WithLease; default 3 s
	FairTimeout    time.Duration `json:"fair_timeout,omitempty"`    // WithFairTimeout; default the library's
	CommandTimeout time.Duration `json:"command_timeout,omitempty"` // WithCommandTimeout; default 1 s
	ReadTimeout    time.Duration `json:"read_timeout,omitempty"`    // of go-redis; default 500 ms
	Poll           time.Duration `json:"poll,omitempty"`            // WithPollFallback; default 1 s
	Replicas       int           `json:"replicas,omitempty"`        // WithReplicas; default none
	ReplicaTimeout time.Duration `json:"replica_timeout,omitempty"` // default 500 ms

	// Kinds that are used; default all.
	Kinds []history.Kind `json:"kinds,omitempty"`
	// Register is the address of the guarded resource; without one, fenced locks
	// guard nothing.
	Register string `json:"register,omitempty"`

	// Settle is how long the calls under way have at the stop; default 30 s.
	Settle time.Duration `json:"settle,omitempty"`
}

// complete fills in what was left out, and refuses what makes no sense.
func (c Config) complete() (Config, error) {
	set(&c.Goroutines, 16)
	set(&c.Names, 3)
	set(&c.Topology, Single)
	set(&c.Prefix, "chaos:")
	set(&c.Generation, 5*time.Second)
	set(&c.Lease, 3*time.Second)
	set(&c.CommandTimeout, time.Second)
	set(&c.ReadTimeout, 500*time.Millisecond)
	set(&c.Poll, time.Second)
	set(&c.ReplicaTimeout, 500*time.Millisecond)
	set(&c.Settle, 30*time.Second)
	if len(c.Kinds) == 0 {
		c.Kinds = All
	}
	switch {
	case len(c.Addrs) == 0:
		return c, errors.New("worker: no address of a server")
	case c.History == "":
		return c, errors.New("worker: no file for the history")
	case c.Goroutines < 0 || c.Names < 0 || c.Generation < 0:
		return c, fmt.Errorf("worker: %d goroutines, %d names, generations of %v", c.Goroutines, c.Names, c.Generation)
	}
	for _, k := range c.Kinds {
		if use[k] == nil {
			return c, fmt.Errorf("worker: nobody knows how to use a %q", k)
		}
	}
	return c, nil
}

func set[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}
