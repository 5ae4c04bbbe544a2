package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

const (
	probeEvery   = 5 * time.Millisecond
	probeTimeout = time.Second
)

// awaitReady returns once p itself answers at addr. Another server may sit on
// the same port: then p is about to exit, and the answer was not its own.
func awaitReady(p *process, addr, password string, deadline time.Time) error {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		pid, err := probe(addr, password)
		switch {
		case err == nil && pid == p.pid():
			return nil
		case err == nil:
			return errPortTaken
		case time.Now().After(deadline):
			return fmt.Errorf("no answer in time: %w", err)
		}
		select {
		case <-p.exited:
			if p.portTaken() {
				return errPortTaken
			}
			return errExited
		case <-tick.C:
		}
	}
}

// probe asks the server at addr for PING and for its process id. It speaks over
// a bare connection: a go-redis pool keeps a dialing goroutine for up to a second
// after its Close when nobody listens.
func probe(addr, password string) (pid int, err error) {
	conn, err := net.DialTimeout("tcp4", addr, probeTimeout)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(probeTimeout)); err != nil {
		return 0, err
	}

	in := bufio.NewReader(conn)
	if password != "" {
		if err := ask(conn, in, "+OK", "AUTH", password); err != nil {
			return 0, err
		}
	}
	if err := ask(conn, in, "+PONG", "PING"); err != nil {
		return 0, err
	}
	if err := ask(conn, in, "$", "INFO", "server"); err != nil {
		return 0, err
	}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return 0, err
		}
		if id, ok := strings.CutPrefix(line, "process_id:"); ok {
			return strconv.Atoi(strings.TrimSpace(id))
		}
	}
}

// ask sends one command and wants the first line of its answer to begin with want.
func ask(conn net.Conn, in *bufio.Reader, want string, cmd ...string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(cmd))
	for _, arg := range cmd {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := conn.Write([]byte(b.String())); err != nil {
		return err
	}
	line, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	if !strings.HasPrefix(line, want) {
		return errors.New(cmd[0] + " was answered with " + strings.TrimSpace(line))
	}
	return nil
}
