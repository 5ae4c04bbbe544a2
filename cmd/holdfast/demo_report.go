package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/fatih/color"
)

// event is something that happened in the demo. A pod reports it to its parent
// as a line of JSON; the parent adds when, where and who.
type event struct {
	At    float64 `json:"at"`            // seconds since the start
	Act   string  `json:"act,omitempty"` // start, nightly, stock, no-locks, takeover
	Pod   int     `json:"pod"`           // 0: the demo itself
	Event string  `json:"event"`
	Text  string  `json:"text"`
}

// result is what the demo found out.
type result struct {
	Checks []check `json:"checks"`

	NightlyRuns int `json:"nightly_runs"`
	Stock       int `json:"stock"`
	// Sold, and the lowest that the shelf ever was: what was sold of what was
	// there. Below zero it has been oversold.
	SoldLocked     int     `json:"sold_with_lock"`
	LowestLocked   int     `json:"lowest_with_lock"`
	SoldUnlocked   int     `json:"sold_without_lock"`
	LowestUnlocked int     `json:"lowest_without_lock"`
	Lease          float64 `json:"lease_seconds"`
	Takeover       float64 `json:"takeover_seconds"`
}

// check is one thing that had to be so.
type check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Text string `json:"text"`
}

// reporter shows the demo while it runs, to people or to programs.
type reporter struct {
	out     io.Writer
	json    bool
	palette palette
	start   time.Time
	current string // act
}

func newReporter(p *program, asJSON bool) *reporter {
	return &reporter{out: p.stdout, json: asJSON, palette: newPalette(p.stdout, p.env), start: time.Now()}
}

// act begins a part of the story.
func (r *reporter) act(name, title string) {
	r.current = name
	if r.json {
		r.event(event{Event: "act", Text: title})
		return
	}
	if name != "start" {
		fmt.Fprintln(r.out)
	}
	fmt.Fprintln(r.out, r.palette.paint(title, color.Bold))
}

// podColors are for telling the pods apart.
var podColors = [...]color.Attribute{color.FgCyan, color.FgMagenta, color.FgYellow}

func (r *reporter) event(e event) {
	e.At, e.Act = r.seconds(), r.current
	if r.json {
		r.line(e)
		return
	}
	who := "     "
	text := e.Text
	switch {
	case e.Pod > 0:
		c := podColors[(e.Pod-1)%len(podColors)]
		who = r.palette.paint(fmt.Sprintf("pod %d", e.Pod), c, color.Bold)
		text = r.palette.paint(text, c)
	case e.Event == "kill":
		text = r.palette.paint(text, color.FgRed)
	}
	fmt.Fprintf(r.out, "%s  %s  %s\n", r.palette.paint(fmt.Sprintf("%7.3fs", e.At), color.Faint), who, text)
}

// verdict shows the checks, and answers whether all of them hold.
func (r *reporter) verdict(found result) bool {
	ok := true
	for _, c := range found.Checks {
		ok = ok && c.OK
	}
	if r.json {
		r.line(struct {
			At    float64 `json:"at"`
			Event string  `json:"event"`
			OK    bool    `json:"ok"`
			result
		}{r.seconds(), "verdict", ok, found})
		return ok
	}
	r.act("verdict", "Verdict")
	for _, c := range found.Checks {
		mark := r.palette.paint("holds ", color.FgGreen, color.Bold)
		if !c.OK {
			mark = r.palette.paint("BROKEN", color.FgRed, color.Bold)
		}
		fmt.Fprintf(r.out, "  %s  %s\n", mark, c.Text)
	}
	all := r.palette.paint("every check holds", color.FgGreen, color.Bold)
	if !ok {
		all = r.palette.paint("the demo failed", color.FgRed, color.Bold)
	}
	fmt.Fprintf(r.out, "  %s, in %.1f s\n", all, r.seconds())
	return ok
}

// seconds since the start, to the millisecond.
func (r *reporter) seconds() float64 {
	return float64(time.Since(r.start).Milliseconds()) / 1000
}

func (r *reporter) line(v any) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // of plain data, there is none
	}
	_, _ = io.WriteString(r.out, b.String()) // as with Println: a reader that left is no failure of the demo
}
