package script

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/errs"
)

// reply is an error reply of the server.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// What a failure says about the command decides whether it is sent again, and as
// what it is told.
func TestFates(t *testing.T) {
	const six = "ERR Error running script (call to f_3cd6): @user_script:56: "
	for _, c := range []struct {
		err   error
		fate  fate
		match error
	}{
		{reply("NOSCRIPT No matching script. Please use EVAL."), noScript, errs.ErrDenied},
		{reply("LOADING Redis is loading the dataset in memory"), notYet, errs.ErrUnavailable},
		{reply("BUSY Redis is busy running a script."), notYet, errs.ErrUnavailable},
		{reply("READONLY You can't write against a read only replica. script: 3cd6, on @user_script:1."), notYet, errs.ErrUnavailable},
		{reply(six + "-READONLY You can't write against a read only replica."), notYet, errs.ErrUnavailable},
		{reply("TRYAGAIN Multiple keys request during rehashing of slot"), notYet, errs.ErrUnavailable},
		{reply("MISCONF Redis is configured to save RDB snapshots"), notYet, errs.ErrUnavailable},
		{reply("WRONGPASS invalid username-password pair"), refused, errs.ErrDenied},
		{reply("NOPERM this user has no permissions"), refused, errs.ErrDenied},
		{reply("OOM command not allowed when used memory > 'maxmemory'."), refused, errs.ErrDenied},
		{reply("WRONGTYPE Operation against a key"), refused, errWrongType},
		{reply(six + "WRONGTYPE Operation against a key"), refused, errWrongType},
		{redis.ErrClosed, refused, errs.ErrClosed},
		{redis.ErrPoolTimeout, notYet, errs.ErrUnavailable},
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, notYet, errs.ErrUnavailable},
		{&net.OpError{Op: "read", Err: errors.New("i/o timeout")}, maybeRan, errs.ErrUnavailable},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake", Conn: &net.TCPConn{}}, refused, errs.ErrDenied},
		{tls.RecordHeaderError{Msg: "oversized record received"}, maybeRan, errs.ErrUnavailable}, // the command was sent
		{io.EOF, maybeRan, errs.ErrUnavailable},
		{fmt.Errorf("wrapped: %w", io.ErrUnexpectedEOF), maybeRan, errs.ErrUnavailable},
		{context.Canceled, maybeRan, errs.ErrUnavailable},
	} {
		require.Equal(t, c.fate, fateOf(c.err), "%v", c.err)
		err := Explain(c.err)
		require.ErrorIs(t, err, c.match)
		require.ErrorIs(t, err, c.err, "the cause stays in it")
	}
}

// However a server says that it wants a password, the error says where it goes.
func TestPasswordWanted(t *testing.T) {
	for _, text := range []string{"NOAUTH Authentication required.", "ERR Protocol error: unauthenticated multibulk length"} {
		require.ErrorIs(t, Explain(reply(text)), errs.ErrDenied)
		require.ErrorContains(t, Explain(reply(text)), "wants a password: redis://user:password@host")
	}
	require.ErrorContains(t, Explain(reply("WRONGPASS invalid username-password pair or user is disabled.")), "another password: redis://user:password@host")
	require.NotContains(t, Explain(reply("ERR Protocol error: too big mbulk count string")).Error(), "password")
}

// Further copies carry what the first one leaves out, and a mark; the first one
// isn't changed by that.
func TestCopies(t *testing.T) {
	s := Mutating("test.lua", "return answer(1)")
	c := NewMutation(s, Keys{Key: "k", Marker: "m"}, []any{1}, "owner", 30000)
	first := len(c.args)
	later := c.Resent()
	require.Equal(t, []any{"k", "m", "owner", 30000, 1, "1"}, later.args[argKeys:])
	require.Len(t, c.args, first)
	require.Equal(t, later, later.Resent(), "one mark is enough")
	require.Equal(t, []any{"k", "m", "owner", 30000, 1, "2"}, c.AlwaysMark().Resent().args[argKeys:])
	require.Equal(t, 3, NewMutation(s, Keys{Key: "k", Marker: "m", Voided: "v"}, nil).args[argNumKeys])
	plain := NewCall(New("plain.lua", "return 1"), []string{"k"}, 1)
	require.Equal(t, plain, plain.Resent(), "a script without marker has no mark")
}

// What is written to see whether replicas follow would be taken for an answer where a
// marker stands.
func TestNoMarkerIsTheProbe(t *testing.T) {
	r := NewRunner(nil, nil, nil)
	number, ok := strings.CutPrefix(r.NewMarker(r.MarkerPrefix("k")), r.MarkerPrefix("k"))
	require.True(t, ok)
	_, err := strconv.ParseUint(number, markerBase, 64)
	require.NoError(t, err)
	probe, ok := strings.CutPrefix(r.probe("k"), r.MarkerPrefix("k"))
	require.True(t, ok)
	_, err = strconv.ParseUint(probe, markerBase, 64)
	require.Error(t, err, "the number of a marker could come to it")
}

// A request that is made after the example of another shares nothing with it: a hook of
// the user's may change what is sent.
func TestAgain(t *testing.T) {
	s := Mutating("s.lua", "return 1")
	c := NewMutation(s, Keys{Key: "k", Marker: "m"}, []any{1}, "owner", 30000)
	again := c.Again("n", "other")
	require.Equal(t, []any{"k", "n", "other", 30000}, again.args[argKeys:])
	require.Equal(t, []any{"k", "n", "other", 30000, 1, "1"}, again.Resent().args[argKeys:])
	again.args[argKeys] = "changed"
	require.Equal(t, []any{"k", "m", "owner", 30000}, c.args[argKeys:])
}
