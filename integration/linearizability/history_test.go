package linearizability

import (
	"cmp"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/integration/internal/history"
)

// record is what was asked and answered. Its methods may be called from any
// goroutine.
type record struct {
	kind history.Kind
	mu   sync.Mutex
	ops  []history.Op
}

// size is the number of calls so far.
func (h *record) size() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ops)
}

// add records a call that has come to its end.
func (h *record) add(op history.Op, o history.Outcome) {
	op.End, op.Outcome, op.Kind = history.Now(), o, h.kind
	h.mu.Lock()
	defer h.mu.Unlock()
	op.ID = int64(len(h.ops) + 1)
	h.ops = append(h.ops, op)
}

// count is the number of calls that had an outcome.
func (h *record) count(c history.Call, o history.Outcome) (n int) {
	for _, op := range h.ops {
		if op.Call == c && op.Outcome == o {
			n++
		}
	}
	return n
}

// searchLimit bounds the search for an order. One that is over fails the test.
const searchLimit = 2 * time.Minute

func (h *record) model(t *testing.T) porcupine.Model {
	t.Helper()
	m, ok := history.Model(h.kind)
	require.True(t, ok, h.kind)
	return m
}

// check searches the order that explains the history.
func (h *record) check(t *testing.T) {
	t.Helper()
	began, m := time.Now(), h.model(t)
	result, info := porcupine.CheckOperationsVerbose(m, history.Exact(h.ops), searchLimit)
	t.Logf("%d calls, looked at for %v: %s", len(h.ops), time.Since(began).Round(time.Millisecond), result)
	if result == porcupine.Ok {
		return
	}
	picture := filepath.Join(t.ArtifactDir(), "history.html")
	require.NoError(t, porcupine.VisualizePath(m, info, picture))
	require.Equal(t, porcupine.Ok, result, "no order explains the answers, or none was found in time; go test -artifacts keeps %s", picture)
}

// names are those that were used.
func (h *record) names() []string { return slices.Sorted(maps.Keys(h.byName())) }

// byName splits a history: names have nothing to do with each other.
func (h *record) byName() map[string][]history.Op {
	parts := make(map[string][]history.Op)
	for _, op := range h.ops {
		parts[op.Name] = append(parts[op.Name], op)
	}
	return parts
}

// rejectWithout makes sure that the check of this history can fail: without some
// call it makes no sense. It looks first at the names with the fewest open calls: to
// find no order means to have tried all.
func (h *record) rejectWithout(t *testing.T, c history.Call) {
	t.Helper()
	open := func(ops []history.Op) (n int) {
		for _, op := range ops {
			if op.Outcome == history.Unknown {
				n++
			}
		}
		return n
	}
	parts := slices.SortedFunc(maps.Values(h.byName()), func(a, b []history.Op) int { return cmp.Compare(open(a), open(b)) })
	for _, part := range parts {
		for i, op := range part {
			if op.Call != c || op.Outcome != history.Done {
				continue
			}
			without := slices.Delete(slices.Clone(part), i, i+1)
			if porcupine.CheckOperationsTimeout(h.model(t), history.Exact(without), searchLimit) == porcupine.Illegal {
				return
			}
		}
	}
	require.Fail(t, "without any one call the history makes as much sense", c)
}
