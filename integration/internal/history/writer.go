package history

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

// line is what stands in a line of a file: one of these.
type line struct {
	Begin  *Op     `json:"begin,omitempty"`
	End    *ended  `json:"end,omitempty"`
	Seen   *seen   `json:"seen,omitempty"`
	Event  *Event  `json:"event,omitempty"`
	Over   *over   `json:"over,omitempty"`
	Report *Report `json:"report,omitempty"`
}

type ended struct {
	Process int   `json:"process"`
	ID      int64 `json:"id"`
	Result
}

// seen is a look at a hold: Seen is when it was certain, or Told when it was not
// any more.
type seen struct {
	Process int    `json:"process"`
	ID      int64  `json:"id"` // of the acquisition
	Seen    int64  `json:"seen,omitempty"`
	Queue   int64  `json:"queue,omitempty"`
	Told    int64  `json:"told,omitempty"`
	Cause   string `json:"cause,omitempty"`
}

type over struct {
	ID  int64 `json:"id"`
	End int64 `json:"end"`
}

// Writer appends to the file of one process. Each record is one write to the
// kernel, which outlives the process. Its methods may be called from any
// goroutine. The first failure is answered by Close.
type Writer struct {
	process int

	mu   sync.Mutex
	file *os.File
	last int64
	err  error
}

// Create makes the file of a process; it must not exist yet.
func Create(path string, process int) (*Writer, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	return &Writer{process: process, file: f}, nil
}

func (w *Writer) write(l line) {
	text, err := json.Marshal(l)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && w.file == nil {
		err = os.ErrClosed
	}
	if err == nil {
		_, err = w.file.Write(append(text, '\n'))
	}
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("history: record: %w", err)
	}
}

func (w *Writer) next() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last++
	return w.last
}

// Begin records a call that is about to be made, and answers its ID. It sets
// Process, ID and Start.
func (w *Writer) Begin(op Op) int64 {
	op.Process, op.ID, op.Start = w.process, w.next(), Now()
	w.write(line{Begin: &op})
	return op.ID
}

// End records how a call ended. It sets End, unless that is set.
func (w *Writer) End(id int64, r Result) {
	if r.End == 0 {
		r.End = Now()
	}
	w.write(line{End: &ended{Process: w.process, ID: id, Result: r}})
}

// Seen records that what a call acquired was certain at a moment that is over: the
// clock was read, and then the context of the hold answered no error.
func (w *Writer) Seen(id, at int64) {
	w.write(line{Seen: &seen{Process: w.process, ID: id, Seen: at}})
}

// Queued records that a waiter was in the queue of a fair lock at a moment that is
// over: the server was asked, and then the clock.
func (w *Writer) Queued(id, at int64) {
	w.write(line{Seen: &seen{Process: w.process, ID: id, Queue: at}})
}

// Told records that the holder of what a call acquired has learnt by now of its
// loss.
func (w *Writer) Told(id int64, cause error) {
	w.write(line{Seen: &seen{Process: w.process, ID: id, Told: Now(), Cause: fmt.Sprint(cause)}})
}

// Begins records that something begins to be done, now, before it is done, and
// answers its ID.
func (w *Writer) Begins(e Event) int64 {
	e.ID, e.Begin, e.End = w.next(), Now(), 0
	w.write(line{Event: &e})
	return e.ID
}

// Ends records that it is over, after it is.
func (w *Writer) Ends(id int64) { w.write(line{Over: &over{ID: id, End: Now()}}) }

// Stalls records, until done is closed, each time in which this process got none
// from its machine. With a process they are its own, else everybody's.
func (w *Writer) Stalls(done <-chan struct{}, process *int) {
	const often, late = 20 * time.Millisecond, 200 * time.Millisecond
	for last := Now(); ; {
		select {
		case <-done:
			return
		case <-time.After(often):
		}
		now := Now()
		if time.Duration(now-last) > late {
			w.Stalled(process, last, now)
		}
		last = now
	}
}

// Stalled records a Stall that is over.
func (w *Writer) Stalled(process *int, begin, end int64) {
	w.write(line{Event: &Event{ID: w.next(), What: Stall, Harmless: true, Process: process, Begin: begin, End: end}})
}

// Report records the last word of the process.
func (w *Writer) Report(r Report) {
	r.Process, r.At = w.process, Now()
	w.write(line{Report: &r})
}

// Close closes the file, and answers the first error of all its records.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		return w.err
	}
	err := w.file.Close()
	w.file = nil
	if w.err == nil {
		w.err = err
	}
	return w.err
}
