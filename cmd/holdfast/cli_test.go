package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// inProcess is for what ends before anything is started.
func inProcess(env []string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = Main(args, strings.NewReader(""), &out, &errs, env)
	return code, out.String(), errs.String()
}

func TestWrongUsage(t *testing.T) {
	const secret = "pa55word"
	url := "--redis=redis://:" + secret + "@127.0.0.1:1"
	for name, args := range map[string][]string{
		"nothing":          {},
		"unknown command":  {"walk"},
		"unknown flag":     {"run", "x", url, "--wiat", "5s", "--", "true"},
		"no name":          {"run", url},
		"no command":       {"run", "x", url},
		"nothing after --": {"run", "x", url, "--"},
		"no Redis":         {"run", "x", "--", "true"},
		"bad wait":         {"run", "x", url, "--wait", "long", "--", "true"},
		"negative wait":    {"run", "x", url, "--wait=-1s", "--", "true"},
		"negative grace":   {"run", "x", url, "--grace=-1s", "--", "true"},
		"bad lease":        {"run", "x", url, "--lease", "0s", "--", "true"},
		"bad watchdog":     {"run", "x", url, "--watchdog", "1ms", "--", "true"},
		"lease twice":      {"run", "x", url, "--lease", "1m", "--watchdog", "1m", "--", "true"},
		"bad scheme":       {"run", "x", "--redis=http://:" + secret + "@h", "--", "true"},
		"unlock, unforced": {"unlock", "x", url},
		"ls, no Redis":     {"ls"},
		"inspect, no name": {"inspect", url},
		"inspect, empty":   {"inspect", "", url},
		"watch, bad name":  {"watch", "a}", url},
		"ls, empty":        {"ls", "", url},
		"bad URL":          {"run", "x", "--redis=redis://:" + secret + "%zz@h", "--", "true"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := inProcess(nil, args...)
			require.Equal(t, exitUsage, code, stderr)
			require.Regexp(t, `^holdfast: .+\n$`, stderr)
			require.NotContains(t, stdout+stderr, secret)
		})
	}
}

// Whoever is wrong in a command is told of its help, not of the program's.
func TestHintsNameTheCommand(t *testing.T) {
	for args, want := range map[string]string{
		"run x --wiat 5s -- true":   "see holdfast run --help",
		"run x --wait long -- true": "see holdfast run --help",
		"run x":                     "see holdfast run --help",
		"inspect":                   "see holdfast inspect --help",
		"walk":                      "see holdfast --help",
	} {
		code, _, stderr := inProcess(nil, strings.Fields(args)...)
		require.Equal(t, exitUsage, code, args)
		require.Contains(t, stderr, want, args)
	}
}

func TestRefusesWithoutURLAndSaysHow(t *testing.T) {
	code, _, stderr := inProcess([]string{"HOLDFAST_REDIS_URL="}, "run", "x", "--", "true")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "--redis URL")
	require.Contains(t, stderr, "$HOLDFAST_REDIS_URL")
}

func TestHelpAndVersion(t *testing.T) {
	env := []string{"HOLDFAST_REDIS_URL=redis://:pa55word@h"}
	for args, want := range map[string]string{
		"--help":         "Commands:",
		"run --help":     "Usage: holdfast run [flags] NAME [flags] -- COMMAND [ARG ...]\n\nRun a command",
		"--version":      "holdfast (devel), library",
		"ls --version":   "holdfast (devel), library",
		"run -h":         "76   the lock was lost",
		"demo --help":    "--json",
		"ls --help":      "Exit code",
		"inspect --help": "Exit code",
		"watch --help":   "Ctrl-C",
		"unlock --help":  "1 if it was free",
		"version":        "holdfast (devel), library",
	} {
		code, stdout, stderr := inProcess(env, strings.Fields(args)...)
		require.Zero(t, code, args)
		require.Empty(t, stderr, args)
		require.Contains(t, stdout, want, args)
		require.NotContains(t, stdout, "pa55word", args)
		require.NotContains(t, stdout, "demo-pod", args)
	}
}

func TestEnvironment(t *testing.T) {
	e := environ{"A=1", "B=2", "C=x=y", "A=3"}
	require.Equal(t, "1", e.get("A"))
	require.Equal(t, "x=y", e.get("C"))
	require.Empty(t, e.get("D"))
	require.ElementsMatch(t, environ{"C=x=y", "B=4"}, e.with(map[string]string{"A": "", "B": "4"}))
}

func TestNoColorsOffATerminal(t *testing.T) {
	require.Equal(t, "text", newPalette(io.Discard, nil).paint("text", podColors[0]))
	require.Equal(t, "\x1b[36mtext\x1b[0m", palette{on: true}.paint("text", podColors[0]))
}
