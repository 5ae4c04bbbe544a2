package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/rlock"
)

type runCmd struct {
	Wait     waitFlag       `placeholder:"D" help:"Wait for the lock, at most so long (30s, 1h30m), or as long as it takes: --wait forever. Default: one try."`
	Lease    *time.Duration `placeholder:"D" xor:"lease" help:"Hold the lock for so long at most, without renewal. A command that still runs then is terminated."`
	Watchdog *time.Duration `placeholder:"D" xor:"lease" help:"How long the lock stays taken after this machine died. It is renewed every third of that as long as the command runs. Default: 30s."`
	Grace    time.Duration  `default:"10s" placeholder:"D" help:"When the lock is lost: time between SIGTERM and SIGKILL, in which somebody else may hold it. 0s kills at once. Default: ${default}."`
	Name     string         `arg:"" help:"Name of the lock."`
	Command  []string       `arg:"" passthrough:"partial" help:"Command and its arguments, best after --."`
}

// Help is what kong shows below the summary.
func (runCmd) Help() string {
	return `Like flock(1), across machines: takes the lock NAME, runs COMMAND, and gives the lock back when it has ended. NAME is the whole key: where a service has a prefix (WithPrefix), write it in front. Flags stand before -- or COMMAND; what follows COMMAND is COMMAND's.

The lock is renewed while COMMAND runs. If it is lost all the same (Redis lost it or couldn't be reached, or its --lease is over), COMMAND gets SIGTERM, and after --grace SIGKILL. COMMAND has a process group of its own, which these and all other signals are sent to; if it reads from a terminal, it stays in the terminal's. On Linux it is killed if holdfast is.

COMMAND finds HOLDFAST_NAME and HOLDFAST_OWNER (the lock's field in Redis) in its environment. Signals to holdfast are passed on to it: HUP, INT, QUIT, TERM, USR1, USR2. While still waiting for the lock, they end holdfast.

Exit code: that of COMMAND, 128+n if signal n ended it, and
  64   wrong usage
  69   Redis gave no answer (after some 3 s, or at the end of --wait)
  75   somebody else has the lock
  76   the lock was lost while COMMAND ran
  77   Redis refused: password, rights, memory
  126  COMMAND can't be executed
  127  COMMAND was not found
Whatever is not COMMAND's own doing has a line on stderr that begins with "holdfast:".`
}

// waitFlag is a duration or "forever".
type waitFlag struct {
	forever bool
	bound   time.Duration
}

// UnmarshalText reads the flag.
func (w *waitFlag) UnmarshalText(text []byte) error {
	if string(text) == "forever" {
		w.forever = true
		return nil
	}
	d, err := time.ParseDuration(string(text))
	if err != nil || d < 0 {
		return fmt.Errorf("%q is neither a duration like 30s nor forever", text)
	}
	w.bound = d
	return nil
}

// Run implements the command.
func (c *runCmd) Run(p *program) error {
	cmd, err := c.prepare(p)
	if err != nil {
		return err
	}
	client, err := c.open(p)
	if err != nil {
		return err
	}
	defer client.Close()

	signals, stop := catchSignals()
	defer stop()
	hold, err := c.acquire(client, signals)
	if err != nil {
		return err
	}
	cmd.Env = p.env.with(map[string]string{
		"HOLDFAST_NAME":  hold.Name(),
		"HOLDFAST_OWNER": hold.Owner(),
		"HOLDFAST_TOKEN": token(hold),
	})
	err = c.supervise(p, cmd, hold, signals)
	return giveBack(p, hold, err)
}

// prepare checks everything that can be checked without Redis: a mistyped
// command should not wait for its lock first.
func (c *runCmd) prepare(p *program) (*exec.Cmd, error) {
	words := c.Command
	if words[0] == "--" { // kong leaves it in front of an argument like ours
		words = words[1:]
	}
	switch {
	case len(words) == 0:
		return nil, usage("no command: write holdfast run NAME -- COMMAND ... (see holdfast run --help)")
	case c.Grace < 0:
		return nil, usage("--grace %v: it can't be negative (see holdfast run --help)", c.Grace)
	case p.redisURL() == "":
		return nil, usage("which Redis? Give --redis URL, or set $%s, e.g. redis://localhost:6379/0", urlVariable)
	}
	cmd := exec.Command(words[0], words[1:]...)
	if cmd.Err != nil {
		return nil, startError(words[0], cmd.Err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.stdin, p.stdout, p.stderr
	return cmd, nil
}

func (c *runCmd) open(p *program) (*holdfast.Client, error) {
	opts := []holdfast.Option{holdfast.WithLogger(p.logger())}
	if c.Watchdog != nil {
		opts = append(opts, holdfast.WithLease(*c.Watchdog))
	}
	return holdfast.Open(p.redisURL(), opts...)
}

// acquire takes the lock, unless a signal comes first. What it got when both
// come together is given back.
func (c *runCmd) acquire(client *holdfast.Client, signals <-chan os.Signal) (*holdfast.Hold, error) {
	var opts []rlock.Option
	if c.Lease != nil {
		opts = append(opts, holdfast.Lease(*c.Lease))
	}
	lock := client.Lock(c.Name)
	ctx, settle := interruptible(signals)
	var hold *holdfast.Hold
	var err error
	if c.Wait.forever {
		hold, err = lock.Lock(ctx, opts...)
	} else {
		hold, err = lock.TryLock(ctx, append(opts, holdfast.Wait(c.Wait.bound))...)
	}
	if sig := settle(); sig != nil {
		if err == nil {
			err = hold.Unlock(context.Background())
		}
		if errors.Is(err, context.Canceled) {
			err = nil // the signal's own doing
		}
		return nil, errors.Join(sig, err)
	}
	return hold, err
}

// supervise runs the command and answers its end as an exitError.
func (c *runCmd) supervise(p *program, cmd *exec.Cmd, hold *holdfast.Hold, signals <-chan os.Signal) error {
	run, err := start(cmd)
	if err != nil {
		return startError(cmd.Path, err)
	}
	lost := hold.Context().Done() // nobody else ends this context
	var kill <-chan time.Time
	for {
		select {
		case <-run.ended:
			if lost == nil {
				run.killRest()
				return exitError{code: exitLost}
			}
			return exitError{code: run.exitCode()}
		case s := <-signals:
			run.passOn(s)
		case <-lost:
			lost = nil
			cause := context.Cause(hold.Context())
			if c.Grace == 0 {
				p.say("%v: the command gets SIGKILL", cause)
				run.kill()
				continue
			}
			p.say("%v: the command gets SIGTERM, and in %v SIGKILL", cause, c.Grace)
			run.terminate()
			timer := time.NewTimer(c.Grace)
			defer timer.Stop()
			kill = timer.C
		case <-kill:
			p.say("the command didn't end within %v: it gets SIGKILL", c.Grace)
			run.kill()
		}
	}
}

// giveBack ends the hold. If it was lost the command ran on without a lock for
// a while, which matters more than how it ended.
func giveBack(p *program, hold *holdfast.Hold, ended error) error {
	err := hold.Unlock(context.Background())
	var exit exitError
	switch {
	case err == nil || errors.As(ended, &exit) && exit.code == exitLost:
		return ended
	case errors.Is(err, holdfast.ErrLost):
		return exitError{exitLost, fmt.Errorf("%w: the lock was lost before the command had ended", err)}
	default:
		p.say("%v: the lock stays taken for its lease at most", err)
		return ended
	}
}

func token(hold *holdfast.Hold) string {
	if n := hold.Token(); n != 0 {
		return strconv.FormatInt(n, 10)
	}
	return ""
}

// startError sorts why a command could not be started, as a shell does.
func startError(name string, err error) error {
	code := exitCannotRun
	if slices.ContainsFunc(notFound, func(target error) bool { return errors.Is(err, target) }) {
		code = exitNotFound
	}
	text := strings.TrimPrefix(err.Error(), "exec: ")
	if !strings.Contains(text, name) {
		text = name + ": " + text
	}
	return exitError{code, errors.New(text)}
}

var notFound = []error{exec.ErrNotFound, exec.ErrDot, os.ErrNotExist}
