package topology

import (
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// adminTimeout is how long a server may take to answer what is asked of it here.
const adminTimeout = time.Second

// Node is one server process. Its address stays over restarts.
type Node struct {
	name   string
	server *redistest.Server
	admin  *redis.Client
}

func newNode(name string, s *redistest.Server) *Node {
	opts := s.Options()
	// A server that is stopped or gone is told at once.
	opts.MaxRetries = -1
	opts.DialTimeout, opts.ReadTimeout, opts.WriteTimeout = adminTimeout, adminTimeout, adminTimeout
	opts.DialerRetries = 1
	opts.Protocol = 2
	return &Node{name: name, server: s, admin: redis.NewClient(opts)}
}

// Name is the node's within its topology, and that of the folder with its log.
func (n *Node) Name() string { return n.name }

// Addr is its host:port.
func (n *Node) Addr() string { return n.server.Addr() }

// Pid is its process, 0 while it is down.
func (n *Node) Pid() int { return n.server.Pid() }

// Log is the path of its log.
func (n *Node) Log() string { return n.server.Log() }

// Server is the process behind it.
func (n *Node) Server() *redistest.Server { return n.server }

// Admin is a client for looking at this one server, and for doing to it what an
// operator may do. It doesn't repeat what fails, and gives up after a second.
func (n *Node) Admin() *redis.Client { return n.admin }

// Kill ends the server with SIGKILL. Restart brings it back.
func (n *Node) Kill() { n.server.Kill() }

// Restart brings it up at the same address, and kills it first if it runs: with
// its data if the topology is durable, else empty.
func (n *Node) Restart() error { return n.wrap("restart", n.server.TryRestart()) }

// RestartEmpty is Restart without the data, whatever the topology.
func (n *Node) RestartEmpty() error {
	n.server.Kill()
	if err := n.server.Wipe(); err != nil {
		return n.wrap("wipe", err)
	}
	return n.Restart()
}

// Pause stops it with SIGSTOP.
func (n *Node) Pause() error { return n.wrap("pause", n.server.TryPause()) }

// Resume lets it go on.
func (n *Node) Resume() error { return n.wrap("resume", n.server.TryResume()) }

func (n *Node) wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("topology: %s %s: %w", what, n.name, err)
}

func (n *Node) close() error {
	err := n.admin.Close()
	if n.server.Stop() {
		err = errors.Join(err, fmt.Errorf("%s died by itself:\n%s", n.name, n.server.LogTail()))
	}
	return errors.Join(err, n.server.Wipe())
}
