package redistest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
	host, port, err := net.SplitHostPort(master.Addr())
	if err != nil {
		tb.Fatal(err)
	}

	// The sentinel rewrites its file, so it is in a folder of its own.
	dir := tb.TempDir()
	conf := filepath.Join(dir, "sentinel.conf")
	lines := []string{
		fmt.Sprintf("sentinel monitor %s %s %s 1", masterName, host, port),
		fmt.Sprintf("sentinel down-after-milliseconds %s 1000", masterName),
	}
	if master.password != "" {
		lines = append(lines, fmt.Sprintf("sentinel auth-pass %s %s", masterName, master.password))
	}
	if err := os.WriteFile(conf, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		tb.Fatal(err)
	}
	return &Sentinel{master: master, sentinel: startAt(tb, dir, []string{conf, "--sentinel"})}
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
