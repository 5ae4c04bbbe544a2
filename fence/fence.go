package fence

import (
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
)

// ErrStale says that a newer holder has written, or claimed, what was to be
// written: nothing was changed. Whoever gets it has lost the lock. The error is a
// [*StaleError].
var ErrStale = errors.New("fence: a newer holder was here")

// StaleError is ErrStale with the numbers.
type StaleError struct {
	// Token is the caller's, Seen the larger one that the resource has seen. If they
	// are equal, another holder has written with that token: see By.
	Token, Seen int64
}

func (e *StaleError) Error() string {
	if e.Seen == e.Token {
		return fmt.Sprintf("%v: token %d was seen from another holder, so Redis has lost tokens: raise them (FencedLock.RaiseToken) and lock anew: nothing was written", ErrStale, e.Token)
	}
	return fmt.Sprintf("%v: token %d, but %d was seen: nothing was written", ErrStale, e.Token, e.Seen)
}

// Is reports whether target is ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// maxToken is the largest that a lock gives.
const maxToken = 1<<52 - 1

func checkToken(token int64) error {
	switch {
	case token == 0:
		return invalid("token 0: the hold is not of a FencedLock, so nothing tells its writes from those of an earlier holder")
	case token < 0, token > maxToken:
		return invalid("token %d: tokens are numbers from 1 to 2^52 - 1: pass what Hold.Token answered", token)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: fence: %s", holdfast.ErrInvalid, fmt.Sprintf(format, args...))
}
