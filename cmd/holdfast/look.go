package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/holdfast-go/holdfast"
)

type lsCmd struct {
	All     bool   `help:"Show fenced locks that are free, too: their tokens stay in Redis."`
	JSON    bool   `name:"json" help:"One JSON object per line."`
	Pattern string `arg:"" optional:"" default:"*" help:"Names to show, a pattern of Redis: h*llo, h?llo, h[ae]llo. Default: all."`
}

// Help is what kong shows below the summary.
func (lsCmd) Help() string {
	return `Shows locks, semaphores, latches and rate limiters, whoever put them there: Go, Java, or holdfast run. Redis is asked with SCAN and pipelines, so that it serves others meanwhile. Each line is of one moment, all together are not. Names are whole keys: with WithPrefix("app:") those of a service are app:*.

What looks the same in Redis has one name here: a lock may be fair if nobody waits for it, a counter may be a semaphore, a latch, or a number of another program's. Bytes of names that can't be printed are shown as \xff.

Exit code: 0, also if there is nothing; 77 if Redis refused, or names may not be read: the others are shown, and one line says how many those are; 69 if it gave no answer; 64 for wrong usage.`
}

// Run implements the command.
func (c *lsCmd) Run(p *program) error {
	return p.withClient(func(s *session) error {
		table := newTable(p.stdout, "NAME", "KIND", "STATE")
		var failed error // of the first name that could not be read
		unread := 0
		for info, err := range s.client.Locks(s.ctx, c.Pattern) {
			switch {
			case err != nil && info.Name != "":
				unread++
				failed = cmp.Or(failed, err)
			case err != nil:
				return err
			case info.Kind == holdfast.KindFencedLock && !info.Held() && info.QueueLen == 0 && !c.All:
			case c.JSON:
				if err := writeJSON(p.stdout, info); err != nil {
					return err
				}
			default:
				table.row(text(info.Name), string(info.Kind), strings.Join(info.Details(), ", "))
			}
		}
		if err := table.flush(); err != nil || failed == nil {
			return err
		}
		if unread > 1 {
			failed = fmt.Errorf("%d names can't be read, the first: %w", unread, failed)
		}
		return failed
	})
}

type inspectCmd struct {
	JSON bool   `name:"json" help:"One JSON object; times are RFC 3339, durations milliseconds."`
	Name string `arg:"" help:"Name to look at."`
}

// Help is what kong shows below the summary.
func (inspectCmd) Help() string {
	return `Shows what stands at NAME at this moment: which primitive, who holds it and how often, for how long, who waits, permits, tokens, rates. It changes nothing. NAME is the whole key: with WithPrefix("app:") it is holdfast inspect app:order:1.

Exit code: 0, also if nothing stands there; 69 if Redis gave no answer; 77 if it refused; 64 for wrong usage.`
}

// Run implements the command.
func (c *inspectCmd) Run(p *program) error {
	return p.withClient(func(s *session) error {
		info, err := s.client.Inspect(s.ctx, c.Name)
		switch {
		case err != nil:
			return err
		case c.JSON:
			return writeJSON(p.stdout, info)
		}
		return show(p.stdout, info)
	})
}

// show writes all that is known of a name.
func show(w io.Writer, i holdfast.Info) error {
	facts := newTable(w)
	facts.row("name", text(i.Name))
	facts.row("kind", strings.Join(append([]string{string(i.Kind)}, i.Details()...), ", "))
	if i.Mode != "" {
		facts.row("mode", i.Mode)
	}
	facts.row("lives", lasting(i.TTL, i.Type != "none"))
	if i.Token > 0 {
		facts.row("token", strconv.FormatInt(i.Token, 10))
	}
	facts.row("listeners", strconv.FormatInt(i.Listeners, 10))
	facts.row("seen", i.At.Format(time.RFC3339Nano)+" by the server's clock")
	err := facts.flush()

	holders := newTable(w, "HOLDER", "HOLDS", "MODE", "FOR")
	for _, h := range i.Holders {
		holders.row(text(h.Owner), strconv.FormatInt(h.Count, 10), h.Mode, lasting(h.TTL, true))
	}
	queue := newTable(w, "IN LINE", "ALIVE", "PLACE KEPT")
	for n, q := range i.Queue {
		queue.row(fmt.Sprintf("%d. %s", n+1, text(q.Owner)), yes(q.Alive), until(q.Until, i.At, "-"))
	}
	waiting := newTable(w, "WAITS", "FOR", "ALIVE")
	for mode, list := range map[string][]holdfast.Waiter{"write": i.Writers, "read": i.Readers} {
		for _, q := range list {
			waiting.row(text(q.Owner), mode, yes(q.Alive))
		}
	}
	permits := newTable(w, "PERMIT", "EXPIRES")
	for _, h := range i.Permits {
		permits.row(h.ID, until(h.Expires, i.At, "never"))
	}
	return errors.Join(err, holders.flushApart(), queue.flushApart(), waiting.flushApart(), permits.flushApart())
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// lasting is how long something lasts, for people.
func lasting(d time.Duration, there bool) string {
	switch {
	case !there:
		return "-"
	case d < 0:
		return "without expiry"
	case d == 0:
		return "over"
	}
	return d.Round(100 * time.Millisecond).String()
}

// until is how far off a moment is.
func until(t, now time.Time, zero string) string {
	if t.IsZero() {
		return zero
	}
	return "for " + t.Sub(now).Round(100*time.Millisecond).String()
}

// text is s as it can be shown on one line.
func text(s string) string {
	q := strconv.Quote(s)
	return q[1 : len(q)-1]
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// table writes columns that are as wide as they have to be.
type table struct {
	out  io.Writer
	w    *tabwriter.Writer
	head []string
	rows int
}

func newTable(out io.Writer, head ...string) *table {
	return &table{out: out, w: tabwriter.NewWriter(out, 0, 8, 2, ' ', 0), head: head}
}

func (t *table) row(cells ...string) {
	if t.rows == 0 && len(t.head) > 0 {
		fmt.Fprintln(t.w, strings.Join(t.head, "\t"))
	}
	t.rows++
	fmt.Fprintln(t.w, strings.Join(cells, "\t"))
}

func (t *table) flush() error { return t.w.Flush() }

// flushApart is flush with an empty line before it, if there is anything.
func (t *table) flushApart() error {
	if t.rows > 0 {
		fmt.Fprintln(t.out)
	}
	return t.w.Flush()
}
