package linearizability

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

// verb is what is asked.
type verb string

const (
	lock      verb = "lock" // of a read-write lock: to write
	unlock    verb = "unlock"
	isLocked  verb = "is locked" // answers 1 or 0
	holdCount verb = "hold count"

	readLock   verb = "read lock"
	readUnlock verb = "read unlock"
	readCount  verb = "read hold count"

	acquire   verb = "acquire"
	release   verb = "release"
	available verb = "available"

	// undo ends what an open call may have taken.
	undo verb = "undo"
)

// input is a call.
type input struct {
	name  string
	verb  verb
	owner string
	n     int64 // permits
	id    int   // of an open call, and of its undoing
}

// output is its answer.
type output struct {
	open    bool // there was none
	refused bool
	n       int64
}

// end is when a call ends that doesn't.
const end = math.MaxInt64

// history is what was recorded. Its methods may be called from any goroutine.
type history struct {
	began time.Time
	mu    sync.Mutex
	calls []porcupine.Operation
}

func newHistory() *history { return &history{began: time.Now()} }

func (h *history) now() int64 { return int64(time.Since(h.began)) }

// size is the number of calls so far.
func (h *history) size() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.calls)
}

// add records a call that began at from and ends now, or is open.
func (h *history) add(from int64, in input, out output) {
	to := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if out.open {
		to, in.id = end, len(h.calls)+1
	}
	h.addLocked(from, to, in, out)
	if out.open && (in.verb == lock || in.verb == readLock || in.verb == acquire) {
		in.verb = undo
		h.addLocked(from, end, in, out)
	}
}

func (h *history) addLocked(from, to int64, in input, out output) {
	// A client of porcupine's has one call at a time; here each has one in all.
	h.calls = append(h.calls, porcupine.Operation{ClientId: len(h.calls), Input: in, Call: from, Output: out, Return: to})
}

// count is the number of calls whose answer is as wanted.
func (h *history) count(v verb, want func(output) bool) (n int) {
	for _, c := range h.calls {
		if c.Input.(input).verb == v && want(c.Output.(output)) {
			n++
		}
	}
	return n
}

func open(o output) bool    { return o.open }
func granted(o output) bool { return !o.open && !o.refused }
func refused(o output) bool { return o.refused }

// searchLimit bounds the search for an order. One that is over fails the test.
const searchLimit = 2 * time.Minute

// check searches the order that explains the history.
func (h *history) check(t *testing.T, m porcupine.Model) {
	t.Helper()
	began := time.Now()
	result, info := porcupine.CheckOperationsVerbose(m, h.calls, searchLimit)
	t.Logf("%d calls, looked at for %v: %s", len(h.calls), time.Since(began).Round(time.Millisecond), result)
	if result == porcupine.Ok {
		return
	}
	picture := filepath.Join(t.ArtifactDir(), "history.html")
	require.NoError(t, porcupine.VisualizePath(m, info, picture))
	require.Equal(t, porcupine.Ok, result, "no order explains the answers, or none was found in time; go test -artifacts keeps %s", picture)
}

// names are those that were used.
func (h *history) names() []string {
	used := make(map[string]bool)
	for _, c := range h.calls {
		used[c.Input.(input).name] = true
	}
	return slices.Sorted(maps.Keys(used))
}

// rejectWithout makes sure that the check of this history can fail: with one
// giving back less it makes no sense. It does so for the name with the fewest open
// calls: to find no order means to have tried all.
func (h *history) rejectWithout(t *testing.T, m porcupine.Model, give verb) {
	t.Helper()
	given := func(c porcupine.Operation) bool {
		return c.Input.(input).verb == give && granted(c.Output.(output))
	}
	var calls []porcupine.Operation
	least := len(h.calls)
	for _, part := range byName(h.calls) {
		n := 0
		for _, c := range part {
			if open(c.Output.(output)) {
				n++
			}
		}
		if n < least && slices.ContainsFunc(part, given) {
			calls, least = part, n
		}
	}
	require.NotEmpty(t, calls, give)
	i := slices.IndexFunc(calls, given)
	reject(t, m, slices.Delete(calls, i, i+1))
}

// reject makes sure that no order explains a history.
func reject(t *testing.T, m porcupine.Model, calls []porcupine.Operation) {
	t.Helper()
	require.Equal(t, porcupine.Illegal, porcupine.CheckOperationsTimeout(m, calls, searchLimit))
}

// byName splits a history: names have nothing to do with each other.
func byName(calls []porcupine.Operation) [][]porcupine.Operation {
	parts := make(map[string][]porcupine.Operation)
	for _, c := range calls {
		name := c.Input.(input).name
		parts[name] = append(parts[name], c)
	}
	var out [][]porcupine.Operation
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		out = append(out, parts[name])
	}
	return out
}

func describe(in, out any) string {
	i, o := in.(input), out.(output)
	text := fmt.Sprintf("%s %s", i.verb, i.name)
	if i.owner != "" {
		text += " by " + i.owner[:min(8, len(i.owner))]
	}
	if i.n != 0 {
		text += fmt.Sprintf(" %d", i.n)
	}
	switch {
	case o.open:
		return text + ": ?"
	case o.refused:
		return text + ": refused"
	}
	return fmt.Sprintf("%s: %d", text, o.n)
}
