package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// History is what all processes wrote down.
type History struct {
	Ops     []Op    // by Start
	Events  []Event // by Begin
	Reports []Report
}

// key finds a call.
type key struct {
	process int
	id      int64
}

// Load reads files of Writers and puts them together. A last line that was cut off
// is left out: its process was killed meanwhile.
func Load(paths ...string) (*History, error) {
	h := &History{}
	for _, path := range paths {
		if err := h.read(path); err != nil {
			return nil, fmt.Errorf("history: %s: %w", path, err)
		}
	}
	h.sort()
	return h, nil
}

func (h *History) sort() {
	slices.SortStableFunc(h.Ops, func(a, b Op) int { return compare(a.Start, b.Start) })
	slices.SortStableFunc(h.Events, func(a, b Event) int { return compare(a.Begin, b.Begin) })
}

func compare(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (h *History) read(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	ops, events := make(map[key]int), make(map[int64]int)
	in := bufio.NewReaderSize(f, 1<<16)
	for n := 1; ; n++ {
		text, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // with a rest, if its process was killed
		}
		if err != nil {
			return err
		}
		var l line
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&l); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if err := h.add(l, ops, events); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
}

// add takes up one line. The maps lead from what began in this file to its place.
func (h *History) add(l line, ops map[key]int, events map[int64]int) error {
	switch {
	case l.Begin != nil:
		ops[key{l.Begin.Process, l.Begin.ID}] = len(h.Ops)
		h.Ops = append(h.Ops, *l.Begin)
	case l.End != nil:
		i, ok := ops[key{l.End.Process, l.End.ID}]
		if !ok {
			return fmt.Errorf("call %d of process %d ended and never began", l.End.ID, l.End.Process)
		}
		h.Ops[i].Result = l.End.Result
	case l.Seen != nil:
		i, ok := ops[key{l.Seen.Process, l.Seen.ID}]
		if !ok {
			return fmt.Errorf("call %d of process %d acquired something and never began", l.Seen.ID, l.Seen.Process)
		}
		op := &h.Ops[i]
		op.Seen = max(op.Seen, l.Seen.Seen)
		if l.Seen.Queue != 0 {
			op.Queue = l.Seen.Queue
		}
		if op.Told == 0 && l.Seen.Told != 0 {
			op.Told, op.Cause = l.Seen.Told, l.Seen.Cause
		}
	case l.Event != nil:
		events[l.Event.ID] = len(h.Events)
		h.Events = append(h.Events, *l.Event)
	case l.Over != nil:
		i, ok := events[l.Over.ID]
		if !ok {
			return fmt.Errorf("event %d is over and never began", l.Over.ID)
		}
		h.Events[i].End = l.Over.End
	case l.Report != nil:
		h.Reports = append(h.Reports, *l.Report)
	}
	return nil
}

// Save writes the history into one file that Load reads.
func (h *History) Save(path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := bufio.NewWriter(f)
	enc := json.NewEncoder(out)
	for _, e := range h.Events {
		if err := enc.Encode(line{Event: &e}); err != nil {
			return err
		}
	}
	for _, op := range h.Ops {
		lines := []line{{Begin: &op}}
		if op.Outcome != Open {
			lines = append(lines, line{End: &ended{Process: op.Process, ID: op.ID, Result: op.Result}})
		}
		if op.Seen != 0 || op.Told != 0 || op.Queue != 0 {
			lines = append(lines, line{Seen: &seen{
				Process: op.Process, ID: op.ID, Seen: op.Seen, Queue: op.Queue, Told: op.Told, Cause: op.Cause,
			}})
		}
		for _, l := range lines {
			if err := enc.Encode(l); err != nil {
				return err
			}
		}
	}
	for _, r := range h.Reports {
		if err := enc.Encode(line{Report: &r}); err != nil {
			return err
		}
	}
	return out.Flush()
}
