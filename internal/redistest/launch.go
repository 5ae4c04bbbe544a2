package redistest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Launch is Start without a test: for programs, and for what is made of several
// servers. The caller ends the server with Stop.
//
// Bin is the server binary, empty for the one that Start would take. Dir is the
// server's folder, which must be there and be its alone: its log (server.log), its
// configuration file and, if args say so, its data are in it, and stay there. What
// the server is told later (to follow another master, say) is written to the file
// when somebody asks it to, and is in force after a restart. Conf are lines of that
// file, ahead of args, which can't be changed later.
func Launch(bin, dir string, conf []string, args ...string) (*Server, error) {
	lines := append([]string{`save ""`, "appendonly no", "daemonize no"}, conf...)
	path := filepath.Join(dir, "server.conf")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	return start(bin, dir, append([]string{path}, args...))
}

// LaunchSentinel is Launch for a sentinel.
func LaunchSentinel(bin, dir string, w Watch) (*Server, error) {
	args, err := sentinelArgs(dir, w)
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	return start(bin, dir, args)
}

// Stop ends the server for good, and reports whether it had died by itself before.
func (s *Server) Stop() (died bool) { return s.stop() }

// Log is the path of the log of all of the server's runs.
func (s *Server) Log() string { return s.logPath() }

// LogTail is the end of that log.
func (s *Server) LogTail() string { return s.logTail() }

// Wipe takes the data away that a server which is down has kept, so that it comes
// back empty. What a node of a cluster knows about the cluster stays.
func (s *Server) Wipe() error {
	s.life.Lock()
	defer s.life.Unlock()
	if s.proc.Load().running() {
		return errors.New("redistest: wipe: the server runs")
	}
	return s.wipe()
}

func (s *Server) wipe() error {
	err := os.Remove(filepath.Join(s.dir, "dump.rdb"))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if e := os.Remove(filepath.Join(s.dir, "appendonly.aof")); !errors.Is(e, fs.ErrNotExist) { // Redis 6
		err = errors.Join(err, e)
	}
	return errors.Join(err, os.RemoveAll(filepath.Join(s.dir, "appendonlydir")))
}
