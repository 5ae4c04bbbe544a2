package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/rlock"
)

// session is a client for one command, and a context that ends with a signal.
type session struct {
	ctx    context.Context //nolint:containedctx // lives as long as the command
	client *holdfast.Client
}

// withClient runs f with a client on the Redis that the user named. A signal ends
// its context.
func (p *program) withClient(f func(*session) error) error {
	if p.redisURL() == "" {
		return usage("which Redis? Give --redis URL, or set $%s, e.g. redis://localhost:6379/0", urlVariable)
	}
	client, err := holdfast.Open(p.redisURL(), holdfast.WithLogger(p.logger()))
	if err != nil {
		return err
	}
	defer client.Close()
	signals, stop := catchSignals()
	defer stop()
	ctx, settle := interruptible(signals)
	err = f(&session{ctx: ctx, client: client})
	if sig := settle(); sig != nil && (err == nil || errors.Is(err, context.Canceled)) {
		return sig
	}
	return err
}

type unlockCmd struct {
	Force bool   `required:"" help:"Take the lock from its holder. There is no other unlock here: who holds a lock gives it back."`
	JSON  bool   `name:"json" help:"One JSON object: opened, and before, what stood there."`
	Name  string `arg:"" help:"Name of the lock."`
}

// Help is what kong shows below the summary.
func (unlockCmd) Help() string {
	return `Opens the lock at NAME, the whole key, of any kind, whoever holds it, and wakes who waits for it. Nothing is asked. Who was thrown out is printed; a holder learns of it when its lease is to be renewed, and until then works on, beside the next one: make sure that it is dead. A user who may open the lock, but not look at it, isn't told who that was; who waits in a fair lock's line then finds out by polling.

Exit code: 0 if the lock was opened, 1 if it was free, 64 if NAME is no lock (nothing is touched) or for wrong usage, 69 if Redis gave no answer, 77 if it refused.`
}

// Run implements the command.
func (c *unlockCmd) Run(p *program) error {
	return p.withClient(func(s *session) error {
		before, err := s.client.Inspect(s.ctx, c.Name)
		if errors.Is(err, holdfast.ErrDenied) {
			return c.blind(s, p)
		}
		if err != nil {
			return err
		}
		if !before.IsLock() && before.Kind != holdfast.KindFree {
			return usage("%q is no lock: %s; nothing was touched", c.Name, strings.Join(append([]string{string(before.Kind)}, before.Details()...), ", "))
		}
		opened := false
		if before.HolderCount > 0 {
			opened, err = locker(s.client, before).ForceUnlock(s.ctx)
			if err != nil {
				return err
			}
		}
		if c.JSON {
			err = writeJSON(p.stdout, unlocked{opened, &before})
		} else if opened {
			_, err = fmt.Fprintf(p.stdout, "opened %q\n", c.Name)
			for _, h := range before.Holders {
				fmt.Fprintf(p.stdout, "thrown out: %s, %s\n", h, lasting(h.TTL, true))
			}
		}
		return c.end(opened, err)
	})
}

// unlocked is the outcome as JSON. Before is null if it may not be looked at.
type unlocked struct {
	Opened bool           `json:"opened"`
	Before *holdfast.Info `json:"before"`
}

// blind opens the lock for a user who may not look which kind it is: who has the
// rights to open one should not need others first.
func (c *unlockCmd) blind(s *session, p *program) error {
	rw := s.client.RWLock(c.Name)
	opened, answered := false, false
	var denied, invalid error
	for _, l := range []rlock.Locker{s.client.Lock(c.Name), rw.Write(), rw.Read()} {
		var err error
		opened, err = l.ForceUnlock(s.ctx)
		answered = answered || err == nil
		switch {
		case err == nil:
		case errors.Is(err, holdfast.ErrDenied): // it may be of another kind that this user has the rights for
			denied = cmp.Or(denied, err)
		case errors.Is(err, holdfast.ErrInvalid): // it is of another kind
			invalid = cmp.Or(invalid, err)
		default:
			return err
		}
		if opened {
			break
		}
	}
	switch {
	case !answered:
		return cmp.Or(denied, invalid)
	case c.JSON:
		return c.end(opened, writeJSON(p.stdout, unlocked{Opened: opened}))
	case opened:
		_, err := fmt.Fprintf(p.stdout, "opened %q\nthrown out: not known, no right to look\n", c.Name)
		return err
	}
	return c.end(false, nil)
}

// end is the end of a command that had an answer, and wrote it with err.
func (c *unlockCmd) end(opened bool, err error) error {
	switch {
	case err != nil:
		return err
	case opened:
		return nil
	case c.JSON:
		return exitError{code: exitFailed}
	}
	return exitError{exitFailed, fmt.Errorf("%q is free: nobody to throw out", c.Name)}
}

// locker is the lock that stands at a name.
func locker(c *holdfast.Client, i holdfast.Info) rlock.Locker {
	switch {
	case i.Kind == holdfast.KindFairLock:
		return c.FairLock(i.Name)
	case i.Kind == holdfast.KindRWLock && i.Mode == "write":
		return c.RWLock(i.Name).Write()
	case i.Kind == holdfast.KindRWLock:
		return c.RWLock(i.Name).Read()
	}
	return c.Lock(i.Name)
}
