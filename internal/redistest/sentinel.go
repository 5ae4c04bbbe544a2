package redistest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const masterName = "holdfast-master"

// Sentinel is a master server and one sentinel that watches it.
type Sentinel struct {
	master   *Server
	sentinel *Server
}

// StartSentinel starts a master, with the given extra arguments, and a sentinel
// that knows it. There is no replica, so nothing can fail over.
func StartSentinel(tb testing.TB, args ...string) *Sentinel {
	tb.Helper()
	master := Start(tb, args...)
	dir := tb.TempDir()
	argv, err := sentinelArgs(dir, Watch{Master: master, Quorum: 1, DownAfter: time.Second})
	if err != nil {
		tb.Fatal(err)
	}
	return &Sentinel{master: master, sentinel: startAt(tb, dir, argv)}
}

// Watch is what a sentinel is to watch.
type Watch struct {
	Master    *Server
	Quorum    int           // how many sentinels must agree that the master is down
	DownAfter time.Duration // how long it may be silent
	Failover  time.Duration // how long a failover may take; a next one waits for twice as long. 0: the server's default
}

// sentinelArgs writes the file of a sentinel, and answers how it is started.
func sentinelArgs(dir string, w Watch) ([]string, error) {
	host, port, err := net.SplitHostPort(w.Master.Addr())
	if err != nil {
		return nil, err
	}
	lines := []string{
		fmt.Sprintf("sentinel monitor %s %s %s %d", masterName, host, port, w.Quorum),
		fmt.Sprintf("sentinel down-after-milliseconds %s %d", masterName, w.DownAfter.Milliseconds()),
	}
	if w.Failover > 0 {
		lines = append(lines, fmt.Sprintf("sentinel failover-timeout %s %d", masterName, w.Failover.Milliseconds()))
	}
	if w.Master.password != "" {
		lines = append(lines, fmt.Sprintf("sentinel auth-pass %s %s", masterName, w.Master.password))
	}
	// The sentinel rewrites its file, so it is in a folder of its own.
	conf := filepath.Join(dir, "sentinel.conf")
	if err := os.WriteFile(conf, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return nil, err
	}
	return []string{conf, "--sentinel"}, nil
}

// MasterName is the name under which the sentinel knows the master.
func (s *Sentinel) MasterName() string { return masterName }

// SentinelAddr is the sentinel's host:port.
func (s *Sentinel) SentinelAddr() string { return s.sentinel.Addr() }

// Master is the server that holds the data.
func (s *Sentinel) Master() *Server { return s.master }

// Server is the sentinel's own process.
func (s *Sentinel) Server() *Server { return s.sentinel }

// Client returns a client that asks the sentinel for the master; the end of the
// test closes it. Each mod may change its options.
func (s *Sentinel) Client(tb testing.TB, mod ...func(*redis.FailoverOptions)) *redis.Client {
	tb.Helper()
	opts := &redis.FailoverOptions{
		MasterName:    masterName,
		SentinelAddrs: []string{s.SentinelAddr()},
		Password:      s.master.password,
	}
	for _, m := range mod {
		m(opts)
	}
	rdb := redis.NewFailoverClient(opts)
	closeAtEnd(tb, rdb)
	return rdb
}
