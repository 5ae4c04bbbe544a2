package main

import (
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
	return `Opens a lock of any kind, whoever holds it, and wakes who waits for it. Nothing is asked. Who was thrown out is printed; a holder learns of it when its lease is to be renewed, and until then works on, beside the next one: make sure that it is dead.

Exit code: 0 if the lock was opened, 1 if it was free, 64 if NAME is no lock (nothing is touched) or for wrong usage, 69 if Redis gave no answer, 77 if it refused.`
}

// Run implements the command.
func (c *unlockCmd) Run(p *program) error {
	return p.withClient(func(s *session) error {
		before, err := s.client.Inspect(s.ctx, c.Name)
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
			err = writeJSON(p.stdout, struct {
				Opened bool          `json:"opened"`
				Before holdfast.Info `json:"before"`
			}{opened, before})
		} else if opened {
			_, err = fmt.Fprintf(p.stdout, "opened %q\n", c.Name)
			for _, h := range before.Holders {
				fmt.Fprintf(p.stdout, "thrown out: %s, %s\n", h, lasting(h.TTL, true))
			}
		}
		switch {
		case err != nil:
			return err
		case opened:
			return nil
		case c.JSON:
			return exitError{code: exitFailed}
		}
		return exitError{exitFailed, fmt.Errorf("%q is free: nobody to throw out", c.Name)}
	})
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
