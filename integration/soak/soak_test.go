package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The program finds nothing in a short run, and draws.
func TestShortSoak(t *testing.T) {
	cfg := config{
		duration: 6 * time.Second, every: 100 * time.Millisecond, clients: 2, workers: 12, pace: 20 * time.Millisecond,
		lease: time.Second, seed: 1,
	}
	var out bytes.Buffer
	svg := filepath.Join(t.TempDir(), "soak.svg")
	err := run(t.Context(), cfg, svg, &out)
	t.Log(out.String())
	require.NoError(t, err)
	require.FileExists(t, svg)
	require.Contains(t, out.String(), "SOAK: PASS")
}

// What grows is told, what wavers isn't.
func TestJudge(t *testing.T) {
	for what, c := range map[string]struct {
		value func(i int) float64
		grew  bool
	}{
		"level":     {func(int) float64 { return 100 }, false},
		"wavers":    {func(i int) float64 { return 100 + float64(i%20) }, false},
		"peaks":     {func(i int) float64 { return 100 + 900*float64(i%50/49) }, false},
		"falls":     {func(i int) float64 { return 1000 - float64(i) }, false},
		"leaks":     {func(i int) float64 { return 100 + 0.2*float64(i) }, true},
		"late leak": {func(i int) float64 { return 100 + max(0, float64(i)-600) }, true},
		"warms up":  {func(i int) float64 { return min(float64(i), 100) }, false},
	} {
		t.Run(what, func(t *testing.T) {
			s := &series{name: "x", share: 0.1, more: 1, settles: 100 * time.Second}
			for i := range 1000 {
				s.add(time.Duration(i)*time.Second, c.value(i))
			}
			var out strings.Builder
			wrong := (&result{series: []*series{s}}).judge(&out)
			require.Equal(t, c.grew, len(wrong) > 0, "%s %v", out.String(), wrong)
		})
	}
	s := &series{name: "x", settles: time.Minute}
	s.add(time.Second, 1)
	var out strings.Builder
	require.Empty(t, (&result{series: []*series{s}}).judge(&out))
	require.Contains(t, out.String(), "NOT JUDGED")
}
