package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast"
)

type watchCmd struct {
	JSON bool   `name:"json" help:"One JSON object per change."`
	Name string `arg:"" help:"Name to watch."`
}

// Help is what kong shows below the summary.
func (watchCmd) Help() string {
	return `Shows what stands at NAME, the whole key, until Ctrl-C: on a terminal all of it, every second and whenever news of it is published; elsewhere a line per change, with the server's time. What comes and goes between two looks isn't seen. While Redis gives no answer it says so and goes on.

Exit code: 0 after Ctrl-C; 77 if Redis refused; 64 for wrong usage; 128+n if signal n ended it.`
}

// sight is what a look found.
type sight struct {
	info holdfast.Info
	err  error
}

// Run implements the command.
func (c *watchCmd) Run(p *program) error {
	err := p.withClient(func(s *session) error {
		ctx, cancel := context.WithCancel(s.ctx)
		sights, gone := make(chan sight), make(chan struct{})
		defer func() { cancel(); <-gone }()
		go func() {
			defer close(gone)
			defer close(sights)
			for info, err := range s.client.Watch(ctx, c.Name) {
				select {
				case sights <- sight{info, err}:
				case <-ctx.Done():
				}
			}
		}()
		return c.follow(ctx, p, s.client, sights)
	})
	var sig interrupted
	if errors.As(err, &sig) && sig.Signal == syscall.SIGINT {
		return nil
	}
	return err
}

func (c *watchCmd) follow(ctx context.Context, p *program, client *holdfast.Client, sights <-chan sight) error {
	live := isTerminal(p.stdout) && !c.JSON
	var tick <-chan time.Time
	if live {
		t := time.NewTicker(time.Second)
		defer t.Stop()
		tick = t.C
	}
	for {
		var seen sight
		var ok bool
		select {
		case seen, ok = <-sights:
			if !ok {
				return ctx.Err()
			}
		case <-tick: // times run down though nothing changes
			seen.info, seen.err = client.Inspect(ctx, c.Name)
			seen.info.Name = c.Name
		}
		switch {
		case seen.err != nil && seen.info.Name == "":
			return seen.err
		case seen.err != nil:
			if ctx.Err() == nil {
				p.say("%v", seen.err)
			}
			continue
		}
		if err := c.draw(p, seen.info, live); err != nil {
			return err
		}
	}
}

func (c *watchCmd) draw(p *program, i holdfast.Info, live bool) error {
	switch {
	case c.JSON:
		return writeJSON(p.stdout, i)
	case live:
		fmt.Fprint(p.stdout, "\x1b[H\x1b[2J") // to the corner, and all clear
		return show(p.stdout, i)
	}
	_, err := fmt.Fprintf(p.stdout, "%s  %s\n", i.At.Format("2006-01-02T15:04:05.000Z07:00"),
		strings.Join(append([]string{string(i.Kind)}, i.Details()...), ", "))
	return err
}
