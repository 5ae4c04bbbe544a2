package script

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/errs"
)

// fate is what an error says about the command that failed.
type fate int

const (
	// maybeRan: no answer came. The command may have run, or may run yet.
	maybeRan fate = iota
	// notYet: it surely didn't run, and may if it is sent again.
	notYet
	// refused: the server said no, and will say so again.
	refused
	// noScript: it didn't run because the script isn't loaded.
	noScript
)

// temporary are the error replies that end by themselves: failover, restart,
// resharding, a long script of somebody else. None of them has run anything.
var temporary = []string{
	"LOADING", "BUSY", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN",
	"MOVED", "ASK", "NOREPLICAS", "MISCONF", "ERR max number of clients reached",
}

func fateOf(err error) fate {
	var reply redis.Error
	if errors.As(err, &reply) {
		text := bare(reply)
		switch {
		case strings.HasPrefix(text, "NOSCRIPT"):
			return noScript
		case hasAnyPrefix(text, temporary):
			return notYet
		default:
			return refused
		}
	}
	var op *net.OpError
	switch {
	case errors.Is(err, redis.ErrClosed), distrusted(err):
		return refused
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted),
		errors.As(err, &op) && op.Op == "dial":
		return notYet
	}
	return maybeRan
}

// distrusted reports whether the two sides of a connection came to no agreement on
// TLS: asking again would not change that.
func distrusted(err error) bool {
	var (
		cert *tls.CertificateVerificationError // we don't trust the server
		head tls.RecordHeaderError             // it speaks no TLS
	)
	// Without a Conn the record came later, when a command may have run.
	if errors.As(err, &cert) || errors.As(err, &head) && head.Conn != nil {
		return true
	}
	if err == nil {
		return false
	}
	// An alert of the server's. Their type is not exported.
	_, alert, ok := strings.Cut(err.Error(), "remote error: tls: ")
	return ok && hasAnyOf(alert, "certificate", "access denied", "handshake failure", "protocol version")
}

func hasAnyOf(s string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(s, p) })
}

// isReply reports whether the server answered with an error.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// bare is the text of an error reply without what Redis 6 puts before an error
// that was raised inside a script.
func bare(reply redis.Error) string {
	text := reply.Error()
	// The embedded server of tests puts a stack trace around it.
	if i := strings.Index(text, "WRONGTYPE"); i > 0 && strings.HasPrefix(text, "ERR Error compiling script") {
		line, _, _ := strings.Cut(text[i:], "\n")
		return line
	}
	if !strings.HasPrefix(text, "ERR Error running script") {
		return text
	}
	if i := strings.LastIndex(text, "@user_script:"); i >= 0 {
		if _, inner, ok := strings.Cut(text[i+len("@user_script:"):], ": "); ok {
			return strings.TrimPrefix(inner, "-")
		}
	}
	return text
}

func hasAnyPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

// Explain turns go-redis' error into one that a caller can branch on, with the
// cause in it.
func Explain(err error) error {
	var reply redis.Error
	switch {
	case errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("%w: the go-redis client under it was closed: %w", errs.ErrClosed, err)
	case distrusted(err):
		return fmt.Errorf("%w: %w", errs.ErrDenied, err)
	case !errors.As(err, &reply):
		return fmt.Errorf("%w: %w", errs.ErrUnavailable, err)
	case strings.HasPrefix(bare(reply), "WRONGTYPE"):
		return fmt.Errorf("%w: %w", errWrongType, err)
	case hasAnyPrefix(bare(reply), temporary):
		return fmt.Errorf("%w: %w", errs.ErrUnavailable, err)
	case wantsPassword(bare(reply)):
		return fmt.Errorf("%w: this server wants a password: redis://user:password@host: %w", errs.ErrDenied, err)
	case strings.HasPrefix(bare(reply), "WRONGPASS"):
		return fmt.Errorf("%w: the server knows no such user, or another password: redis://user:password@host (special characters escaped): %w", errs.ErrDenied, err)
	default:
		return fmt.Errorf("%w: %w", errs.ErrDenied, err)
	}
}

// wantsPassword reports whether a server refused because nobody said who asks. To
// a request of many words it says so in terms of its protocol.
func wantsPassword(text string) bool {
	return strings.HasPrefix(text, "NOAUTH") || strings.HasPrefix(text, "ERR Protocol error: unauthenticated ")
}

var errWrongType = errors.New("the key holds another type")

// IsWrongType reports whether a command failed because its key holds a value
// of another Redis type.
func IsWrongType(err error) bool { return errors.Is(err, errWrongType) }

// Company reports whether a call on several keys failed because of one of them:
// a key that the user has no right to, or one in a slot that moves.
func Company(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && (fateOf(err) == refused || strings.HasPrefix(bare(reply), "TRYAGAIN"))
}

// Temporary reports whether asking again later may succeed.
func Temporary(err error) bool { return errors.Is(err, errs.ErrUnavailable) }
