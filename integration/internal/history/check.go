package history

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Options of a check. The zero value is what a run is judged by.
type Options struct {
	// Limit bounds the search for an order of one name's calls: a search that is
	// over counts as failed. Default 1 minute.
	Limit time.Duration
	// Grace is how long a call may take beyond its bound, from the end of the last
	// fault that it met. Default 10 s.
	Grace time.Duration
	// Slots answers the hash slot of a name, for events that concern slots.
	Slot func(name string) int
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
	Holds      int // that were certain for a while
	Excused    int // holds that ended, or overlapped others, in a window of a loss of data

	pictures map[string][]byte // HTML of partitions that failed, by name
	history  *History
}

// String is one line, for the end of a run.
func (v Verdict) String() string {
	what := "OK"
	if len(v.Violations) > 0 {
		what = fmt.Sprintf("FAILED: %d violations", len(v.Violations))
	}
	return fmt.Sprintf("%s: %d calls, %d open, %d names, %d holds, %d excused", what, v.Calls, v.Open, v.Names, v.Holds, v.Excused)
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
	v := Verdict{history: h}
	for _, op := range h.Ops {
		switch op.Outcome {
		case Open:
			v.Open++
		case Failed:
			v.Violations = append(v.Violations, Violation{Kind: "error", Name: op.Name, Text: op.Error})
			fallthrough
		default:
			v.Calls++
		}
	}
	return v
}
