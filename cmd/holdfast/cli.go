package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
)

// Exit codes: those of sysexits.h and of shells, which have no code for a lock
// that was lost.
const (
	exitFailed      = 1   // demo: a check didn't hold; unlock: the lock was free
	exitUsage       = 64  // EX_USAGE
	exitUnavailable = 69  // EX_UNAVAILABLE: Redis gave no answer
	exitInternal    = 70  // EX_SOFTWARE
	exitTaken       = 75  // EX_TEMPFAIL: somebody else has the lock
	exitLost        = 76  // the lock was lost while the command ran
	exitDenied      = 77  // EX_NOPERM: Redis refused
	exitCannotRun   = 126 // as in sh: the command can't be executed
	exitNotFound    = 127 // as in sh: there is no such command
	exitSignal      = 128 // plus the number of the signal
)

const urlVariable = "HOLDFAST_REDIS_URL"

type grammar struct {
	Redis   string      `placeholder:"URL" help:"Redis to lock on: redis://[user:password@]host:port/db, rediss:// (TLS), unix:///socket, redis+sentinel://h1,h2/db?master=name, redis+cluster://h1,h2. Default: $$HOLDFAST_REDIS_URL, which other users of the machine can't see."`
	Verbose bool        `short:"v" help:"Say on stderr what the client does: renewals that failed, connections that broke."`
	Help    helpFlag    `short:"h" help:"Show help, of a command if there is one."`
	Version versionFlag `help:"Show the version."`

	Run      runCmd     `cmd:"" help:"Run a command while holding a lock."`
	Ls       lsCmd      `cmd:"" help:"Show the locks and other primitives that there are."`
	Inspect  inspectCmd `cmd:"" help:"Show what stands at a name: holders, waiters, times."`
	Watch    watchCmd   `cmd:"" help:"Show a name, and each change, until Ctrl-C."`
	Unlock   unlockCmd  `cmd:"" help:"Open a lock by force."`
	Demo     demoCmd    `cmd:"" help:"Show what locks are for: three processes, one Redis, one of them dies."`
	DemoPod  podCmd     `cmd:"" hidden:""`
	Versions versionCmd `cmd:"" name:"version" help:"Show the version."`
}

const about = `Distributed locks on Redis, for the command line.

A lock is one key in Redis, in the layout of Redisson: Go, Java and shell scripts can share it. Names are whole keys: what a service locks as order:1, with WithPrefix("app:"), is app:order:1 here.`

// whereTo is the program, or its command, that arguments which can't be read
// were meant for.
func whereTo(err error) string {
	var unread *kong.ParseError
	if errors.As(err, &unread) && unread.Context != nil {
		if node := unread.Context.Selected(); node != nil {
			return node.FullPath()
		}
	}
	return "holdfast"
}

// printHelp is kong's help, with a usage line for run that says where flags go.
func printHelp(o kong.HelpOptions, ctx *kong.Context) error {
	node := ctx.Selected()
	if node == nil || node.Name != "run" {
		return kong.DefaultHelpPrinter(o, ctx)
	}
	var text bytes.Buffer
	out := ctx.Stdout
	ctx.Stdout = &text
	err := kong.DefaultHelpPrinter(o, ctx)
	ctx.Stdout = out
	_, rest, _ := strings.Cut(text.String(), "\n")
	_, werr := fmt.Fprintf(out, "Usage: holdfast run [flags] NAME [flags] -- COMMAND [ARG ...]\n%s", rest)
	return errors.Join(err, werr)
}

// versionFlag shows the version before anything is checked.
type versionFlag bool

// BeforeReset implements a hook of kong.
func (versionFlag) BeforeReset(ctx *kong.Context) error {
	return errors.Join(errHelp, writeVersion(ctx.Stdout))
}

// helpFlag shows the help before anything is checked.
type helpFlag bool

var errHelp = errors.New("help, or the version, was shown")

// BeforeReset implements a hook of kong.
func (helpFlag) BeforeReset(ctx *kong.Context) error {
	return errors.Join(errHelp, ctx.PrintUsage(false))
}

// program is what a command gets from its surroundings.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	env            environ
	redisFlag      string
	verbose        bool
}

// Main is the whole program but for its end: it answers the exit code.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer, env []string) int {
	redis.SetLogger(silent{}) // what matters comes back as an error
	p := &program{stdin: stdin, stdout: stdout, stderr: stderr, env: env}
	var g grammar
	parser, err := kong.New(&g,
		kong.Name("holdfast"), kong.Description(about), kong.Writers(stdout, stderr),
		kong.NoDefaultHelp(), kong.Help(printHelp), kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 80}))
	if err != nil {
		return p.end(err)
	}
	ctx, err := parser.Parse(args)
	switch {
	case errors.Is(err, errHelp):
		return 0
	case err != nil:
		return p.end(exitError{exitUsage, fmt.Errorf("%w (see %s --help)", err, whereTo(err))})
	}
	p.redisFlag, p.verbose = g.Redis, g.Verbose
	return p.end(ctx.Run(p))
}

// exitError is an error with an exit code. Its err is nil if there is nothing
// to say: the command under the lock has said it.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string { return fmt.Sprintf("exit code %d: %v", e.code, e.err) }

func (e exitError) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return exitError{exitUsage, fmt.Errorf(format, args...)}
}

// end says what went wrong, and answers the exit code for it.
func (p *program) end(err error) int {
	if err == nil {
		return 0
	}
	e := exitError{exitInternal, err}
	if !errors.As(err, &e) {
		e.code = codeOf(err)
	}
	if e.err != nil {
		p.say("%s", e.err)
	}
	return e.code
}

// codeOf is the exit code for an error of the library.
func codeOf(err error) int {
	var sig interrupted
	switch {
	case errors.As(err, &sig):
		return exitSignal + sig.number()
	case errors.Is(err, holdfast.ErrNotAcquired):
		return exitTaken
	case errors.Is(err, holdfast.ErrInvalid):
		return exitUsage
	case errors.Is(err, holdfast.ErrDenied):
		return exitDenied
	case errors.Is(err, holdfast.ErrUnavailable), errors.Is(err, holdfast.ErrUncertain):
		return exitUnavailable
	default:
		return exitInternal
	}
}

// say writes a line to stderr. Errors of the library bring the prefix along.
func (p *program) say(format string, args ...any) {
	text := strings.TrimPrefix(fmt.Sprintf(format, args...), "holdfast: ")
	fmt.Fprintf(p.stderr, "holdfast: %s\n", text)
}

// redisURL answers where Redis is, or "" if nobody said so.
func (p *program) redisURL() string {
	if p.redisFlag != "" {
		return p.redisFlag
	}
	return p.env.get(urlVariable)
}

// logger is for the library's own log.
func (p *program) logger() *slog.Logger {
	if !p.verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(p.stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// environ is an environment, as os.Environ answers it.
type environ []string

func (e environ) get(name string) string {
	for _, pair := range e {
		if k, v, _ := strings.Cut(pair, "="); k == name {
			return v
		}
	}
	return ""
}

// with answers a copy in which the variables have these values; without those
// whose value is empty.
func (e environ) with(values map[string]string) environ {
	var out environ
	for _, pair := range e {
		k, _, _ := strings.Cut(pair, "=")
		if _, set := values[k]; !set {
			out = append(out, pair)
		}
	}
	for k, v := range values {
		if v != "" {
			out = append(out, k+"="+v)
		}
	}
	return out
}

// silent is the log of go-redis.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
