package history

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Options of a check. The zero value is what a run is judged by.
type Options struct {
	// Limit bounds the search for an order of one name's calls: a search that is
	// over counts as failed. Default 1 minute.
	Limit time.Duration
	// Grace is how long a call may take beyond its bound, from the end of the last
	// fault that it met. Default 10 s.
	Grace time.Duration
	// Beat is for how long a waiter of a fair lock keeps its place at least without
	// being heard. Default 15 s.
	Beat time.Duration
}

// Violation is something that must not be.
type Violation struct {
	Kind string // of the invariant: exclusion, hang, leak, …
	Name string // concerned; may be empty
	Text string
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s: %s", v.Kind, v.Name, v.Text) }

// Verdict is what a check found.
type Verdict struct {
	Violations []Violation
	Calls      int // with an end
	Open       int // calls without one
	Names      int
	Largest    int           // partition, in calls
	Slowest    time.Duration // search
	Holds      int           // that were certain for a while, and permits
	Told       int           // losses of holds that were told
	Excused    int           // windows of losses of data that some of a hold's life fell into
	Lasted     int64         // how long all holds were seen to last
	Judged     int64         // outside of those windows
	Queued     int           // pairs of waiters whose order was judged

	pictures map[string][]byte // HTML of partitions that failed, by name
	history  *History
}

// String is one line, for the end of a run.
func (v Verdict) String() string {
	what := "OK"
	if len(v.Violations) > 0 {
		what = fmt.Sprintf("FAILED: %d violations", len(v.Violations))
	}
	return fmt.Sprintf("%s: %d calls (%d open) on %d names (largest %d calls, slowest search %v), %d holds, %d losses told, %d times excused, judged for %s of their time, %d places in line",
		what, v.Calls, v.Open, v.Names, v.Largest, v.Slowest.Round(time.Millisecond), v.Holds, v.Told, v.Excused, v.Share(), v.Queued)
}

// Share is how much of the time of all holds was judged, in percent.
func (v Verdict) Share() string {
	if v.Lasted == 0 {
		return "none"
	}
	return fmt.Sprintf("%.0f %%", 100*float64(v.Judged)/float64(v.Lasted))
}

// Save writes the verdict (verdict.txt), the whole history in the order of its
// beginnings (history.jsonl), and porcupine's view of each partition that failed
// (<name>.html) into a folder.
func (v Verdict) Save(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var text strings.Builder
	for _, x := range v.Violations {
		fmt.Fprintln(&text, x)
	}
	fmt.Fprintln(&text, v)
	if err := os.WriteFile(filepath.Join(dir, "verdict.txt"), []byte(text.String()), 0o644); err != nil {
		return err
	}
	for name, html := range v.pictures {
		if err := os.WriteFile(filepath.Join(dir, fileName(name)+".html"), html, 0o644); err != nil {
			return err
		}
	}
	if v.history == nil {
		return nil
	}
	return v.history.Save(filepath.Join(dir, "history.jsonl"))
}

// fileName keeps what every file system takes.
func fileName(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, name)
}

// Check looks for everything that must not be. It doesn't change the history.
func Check(h *History, o Options) Verdict {
	if o.Limit == 0 {
		o.Limit = time.Minute
	}
	if o.Grace == 0 {
		o.Grace = 10 * time.Second
	}
	if o.Beat == 0 {
		o.Beat = 15 * time.Second
	}
	c := &check{Options: o, history: h, verdict: Verdict{history: h, pictures: make(map[string][]byte)}}
	c.count()
	c.errors()
	for _, v := range c.views() {
		c.verdict.Names++
		if _, ok := models[v.kind]; ok {
			c.explain(v)
		}
		switch v.kind {
		case Limiter:
			c.rates(v)
		case Register:
			c.fences(v)
		case Fair:
			c.order(v)
		}
		c.hangs(v)
	}
	return c.verdict
}

// check is one check under way.
type check struct {
	Options
	history *History
	verdict Verdict
}

func (c *check) violated(kind, name, format string, args ...any) {
	c.verdict.Violations = append(c.verdict.Violations, Violation{Kind: kind, Name: name, Text: fmt.Sprintf(format, args...)})
}

// count counts, and finds what needs no search: errors that nothing explains, and
// what processes say of themselves.
func (c *check) count() {
	for _, op := range c.history.Ops {
		if op.Told != 0 {
			c.verdict.Told++
		}
		switch op.Outcome {
		case Open:
			c.verdict.Open++
			continue
		case Failed:
			c.violated("error", op.Name, "%s: %s", op, op.Error)
		}
		c.verdict.Calls++
	}
	for _, r := range c.history.Reports {
		if r.Leaks != "" {
			c.violated("leak", fmt.Sprintf("process %d", r.Process), "%s", r.Leaks)
		}
		if r.Error != "" {
			c.violated("process", fmt.Sprintf("process %d", r.Process), "%s", r.Error)
		}
	}
}

// views splits the history by name.
func (c *check) views() []*view {
	over := make(map[int]int64)
	for _, r := range c.history.Reports {
		over[r.Process] = r.At
	}
	killed := make(map[int]int64)
	var long []span
	for _, e := range c.history.Events {
		switch s := e.span(); {
		case e.Killed && e.Process != nil:
			killed[*e.Process] = e.Begin
		case !e.Killed && !e.Harmless && (e.End == 0 || s.to-s.from > int64(undoing/4)):
			long = append(long, s)
		}
	}
	leases := c.leases()
	byName := make(map[string]*view)
	losses := c.history.losses()
	for i := range c.history.Ops {
		op := &c.history.Ops[i]
		for _, name := range op.names() {
			v := byName[name]
			if v == nil {
				v = &view{kind: op.Kind, name: name, leases: leases, over: over, killed: killed, long: long}
				for _, l := range losses {
					if l.scope.concerns(name) {
						v.losses = append(v.losses, l)
					}
				}
				byName[name] = v
			}
			v.ops = append(v.ops, op)
		}
	}
	var all []*view
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		v := byName[name]
		v.losses = slices.DeleteFunc(v.losses, func(l loss) bool { return v.ops[0].Start >= l.to }) // it began later
		all = append(all, v)
	}
	return all
}

// explain looks for an order of the calls of a name that explains all answers.
func (c *check) explain(v *view) {
	v.certain()
	c.verdict.Holds += v.holds
	c.verdict.Excused += v.excused
	c.verdict.Lasted += v.lasted
	c.verdict.Judged += v.judged
	c.verdict.Largest = max(c.verdict.Largest, len(v.calls))
	began := time.Now()
	result := porcupine.CheckOperationsTimeout(models[v.kind], v.calls, c.Limit)
	c.verdict.Slowest = max(c.verdict.Slowest, time.Since(began))
	switch result {
	case porcupine.Ok:
		return
	case porcupine.Unknown:
		c.violated("undecided", v.name, "no order of %d calls was found within %v, nor that there is none", len(v.calls), c.Limit)
	case porcupine.Illegal:
		text := fmt.Sprintf("no order of %d calls explains the answers", len(v.calls))
		if a, b, at := v.overlap(); a != nil && v.kind != Expirable && v.kind != Semaphore {
			text += fmt.Sprintf(": both held it at %d: %s, certain from %d to %d, and %s, certain from %d to %d", at, a, a.End, a.Seen, b, b.End, b.Seen)
		}
		c.violated("order", v.name, "%s", text)
	}
	c.picture(v)
}

// picture draws a partition that failed.
func (c *check) picture(v *view) {
	_, info := porcupine.CheckOperationsVerbose(models[v.kind], v.calls, min(c.Limit, 10*time.Second))
	var html bytes.Buffer
	if err := porcupine.Visualize(models[v.kind], info, &html); err != nil {
		c.violated("picture", v.name, "it could not be drawn: %v", err)
		return
	}
	c.verdict.pictures[v.name] = html.Bytes()
}
