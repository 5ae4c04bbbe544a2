package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/integration/internal/history"
	"github.com/holdfast-go/holdfast/integration/internal/topology"
)

// A server that gets no time stands in history.
func TestStalledServerIsNoted(t *testing.T) {
	top, err := topology.Start(t.Context(), topology.Single, topology.Options{Dir: t.TempDir()})
	require.NoError(t, err)
	defer func() { require.NoError(t, top.Close()) }()
	path := filepath.Join(t.TempDir(), "nemesis.jsonl")
	w, err := history.Create(path, history.Judge)
	require.NoError(t, err)
	stop := watchStalls(top.Nodes(), w)
	from := history.Now()
	require.NoError(t, top.Nodes()[0].Pause())
	<-time.After(4 * sluggish)
	require.NoError(t, top.Nodes()[0].Resume())
	require.NoError(t, top.Nodes()[0].Admin().Ping(t.Context()).Err())
	to := history.Now()
	require.Eventually(t, func() bool {
		h, err := history.Load(path)
		require.NoError(t, err)
		for _, e := range h.Events {
			if e.What == history.Stall && e.Harmless && e.Process == nil && e.Begin < to && e.End > from {
				return true
			}
		}
		return false
	}, 10*time.Second, 10*time.Millisecond)
	stop()
	stop()
	require.NoError(t, w.Close())
}
