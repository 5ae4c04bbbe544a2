package history

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// What was written is read, also when the process was killed in the middle of a
// line.
func TestRecords(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(filepath.Join(dir, "1.jsonl"), 1)
	require.NoError(t, err)
	before := Now()
	id := w.Begin(Op{Kind: Fenced, Name: "n", Call: Acquire, Owner: "a"})
	w.End(id, Result{Outcome: Done, Granted: 7})
	at := Now()
	w.Seen(id, at)
	w.Seen(id, at-1) // a look may be written later
	w.Queued(id, at)
	w.Told(id, errors.New("lost"))
	w.Begin(Op{Kind: Latch, Name: "m", Call: Await})
	w.Report(Report{Calls: map[string]int{"done": 1}})
	require.NoError(t, w.Close())

	e, err := Create(filepath.Join(dir, "0.jsonl"), Judge)
	require.NoError(t, err)
	cut := e.Begins(Event{What: "cut", Scope: Scope{Names: []string{"n"}}})
	e.Begins(Event{What: "lasts", Loses: true})
	e.Ends(cut)
	require.NoError(t, e.Close())

	f, err := os.OpenFile(filepath.Join(dir, "1.jsonl"), os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(t, err)
	_, err = f.WriteString(`{"begin":{"process":1,`)
	require.NoError(t, err)
	require.NoError(t, f.Close())

	h, err := Load(filepath.Join(dir, "1.jsonl"), filepath.Join(dir, "0.jsonl"))
	require.NoError(t, err)
	require.Len(t, h.Ops, 2)
	op := h.Ops[0]
	require.Equal(t, [4]any{1, int64(1), Done, int64(7)}, [4]any{op.Process, op.ID, op.Outcome, op.Granted})
	require.LessOrEqual(t, before, op.Start)
	require.LessOrEqual(t, op.Start, op.End)
	require.LessOrEqual(t, op.End, op.Told)
	require.Equal(t, [3]any{at, at, "lost"}, [3]any{op.Seen, op.Queue, op.Cause})
	require.Equal(t, Open, h.Ops[1].Outcome)
	require.Len(t, h.Events, 2)
	require.NotZero(t, h.Events[0].End)
	require.Zero(t, h.Events[1].End)
	require.Len(t, h.Reports, 1)
}

// A file that is no history is an error, and so is one that can't be written.
func TestBadRecords(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"text":    "hello\n",
		"unknown": `{"begin":{"verb":"lock"}}` + "\n",
		"orphan":  `{"end":{"process":1,"id":3}}` + "\n",
		"seen":    `{"seen":{"process":1,"id":3}}` + "\n",
		"over":    `{"over":{"id":3}}` + "\n",
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := Load(path)
		require.Error(t, err, name)
	}
	_, err := Load(filepath.Join(dir, "absent"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Create(filepath.Join(dir, "text"), 1)
	require.ErrorIs(t, err, os.ErrExist)

	w, err := Create(filepath.Join(dir, "closed"), 1)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	w.Begin(Op{})
	require.ErrorIs(t, w.Close(), os.ErrClosed)
}
