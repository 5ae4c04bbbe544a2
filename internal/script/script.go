// Package script runs the module's Lua scripts and decides what a missing
// reply means. go-redis resends a script after a lost reply as if nothing had
// happened; here a command goes out with NoRetry, and it is this package that
// sends it again, marked as a further copy of the same request.
package script

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	_ "embed"
	"encoding/hex"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed marker.lua
var marker string

// Script is one .lua file.
type Script struct {
	name    string
	plain   text
	sharded text // the same, publishing by SPUBLISH
	// publishes: the texts differ.
	publishes bool
	mutates   bool
}

// text is what Redis is given, and the name that it gives it: strings, boxed
// once.
type text struct{ src, sha any }

func newText(src string) text {
	sum := sha1.Sum([]byte(src)) //nolint:gosec // see the import
	return text{src, hex.EncodeToString(sum[:])}
}

// New makes a script that may run any number of times without harm, at any
// time: it needs no marker. Where it says 'PUBLISH', in these quotes, it says
// 'SPUBLISH' on a cluster with sharded pub/sub.
func New(name, src string) *Script {
	// Two texts instead of an argument: managed services want to see which
	// commands a script calls.
	s := &Script{name: name, plain: newText(src), sharded: newText(strings.ReplaceAll(src, "'PUBLISH'", "'SPUBLISH'"))}
	s.publishes = s.plain != s.sharded
	return s
}

// here is the line of a script before which its usual case has been dealt with.
const here = "\n-- marker.lua stands here.\n"

// Mutating makes a script that opens with marker.lua: KEYS[2] is its marker, the
// last of ARGV says which copy this is, and it answers a whole number. A script
// that can tell its usual case with fewer commands does so before the line
// "marker.lua stands here"; it must look whether the marker is there.
func Mutating(name, src string) *Script {
	head, rest, ok := strings.Cut(src, here)
	if !ok {
		head, rest = "", src
	}
	s := New(name, head+"\n"+marker+rest)
	s.mutates = true
	return s
}

// Name is the file's name, for errors and logs.
func (s *Script) Name() string { return s.name }

// Source is the text that Redis is given.
func (s *Script) Source() string { return s.plain.src.(string) }

// Places in the argument list of an EVALSHA.
const (
	argVerb = iota
	argScript
	argNumKeys
	argKeys
)

// Call is one request: a script with its keys and arguments. Copies of it
// differ in nothing but the mark at the end.
type Call struct {
	script   *Script
	args     []any
	defaults []any
	marked   bool
	failure  *Failure
	granted  func(val any) bool // see Replicated
}

// Noting is the request whose failures are noted in f.
func (c Call) Noting(f *Failure) Call {
	c.failure = f
	return c
}

// Keys are KEYS of a mutating script: the key it is about, its marker, the
// marker that it voids, or nil, and what further keys it has, from KEYS[4] on.
// They are of type any, as go-redis wants them, so that a key which serves many
// calls is boxed once.
type Keys struct {
	Key, Marker, Voided any
	More                []any
}

// NewCall makes a request of a script that needs no marker.
func NewCall(s *Script, keys []string, argv ...any) Call {
	args := make([]any, argKeys, argKeys+len(keys)+len(argv))
	args[argVerb], args[argScript], args[argNumKeys] = verbSHA, s.plain.sha, len(keys)
	for _, k := range keys {
		args = append(args, k)
	}
	return Call{script: s, args: append(args, argv...)}
}

// NewMutation makes a request of a Mutating script. Its first copy is sent with
// argv alone. Further copies have the arguments that were left out at its end,
// whose values are defaults, and then the mark of a copy.
func NewMutation(s *Script, keys Keys, defaults []any, argv ...any) Call {
	if keys.Voided == nil && len(keys.More) > 0 {
		keys.Voided = keys.Marker // none; see marker.lua
	}
	n := 2 + len(keys.More)
	if keys.Voided != nil {
		n++
	}
	args := make([]any, argKeys, argKeys+n+len(argv))
	args[argVerb], args[argScript], args[argNumKeys] = verbSHA, s.plain.sha, n
	args = append(args, keys.Key, keys.Marker)
	if keys.Voided != nil {
		args = append(append(args, keys.Voided), keys.More...)
	}
	return Call{script: s, args: append(args, argv...), defaults: defaults}
}

// Again is the request of a Mutating script with another marker and another first
// argument, in place of those that it has.
func (c Call) Again(marker, first any) Call {
	args := make([]any, len(c.args))
	copy(args, c.args)
	args[argKeys+1], args[argKeys+args[argNumKeys].(int)] = marker, first
	return Call{script: c.script, args: args, defaults: c.defaults}
}

// Marks of a copy, boxed once, and verbs.
var (
	laterCopy  any = "1"
	alwaysMark any = "2"

	verbSHA  any = "evalsha"
	verbEval any = "eval"
)

// AlwaysMark has even the first copy write its marker: for scripts whose
// effect can't be read off the state afterwards.
func (c Call) AlwaysMark() Call {
	c.mark(alwaysMark)
	return c
}

// Resent is the request as its further copies are sent.
func (c Call) Resent() Call {
	if c.script.mutates && !c.marked {
		c.mark(laterCopy)
	}
	return c
}

func (c *Call) mark(copy any) {
	c.args = append(append(c.args[:len(c.args):len(c.args)], c.defaults...), copy)
	c.marked = true
}

// command makes the command for one sending. load sends the text instead of
// its hash, which also loads it: the answer to NOSCRIPT.
func (c *Call) command(ctx context.Context, sharded, load bool) command {
	args, t := c.args, c.script.plain
	if sharded {
		t = c.script.sharded
	}
	if load || sharded {
		verb, which := verbSHA, t.sha
		if load {
			verb, which = verbEval, t.src
		}
		args = append([]any{verb, which}, c.args[argNumKeys:]...)
	}
	return command{redis.NewCmd(ctx, args...)}
}

// command is a redis.Cmd that go-redis doesn't send a second time on its own.
type command struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (command) NoRetry() bool { return true }
