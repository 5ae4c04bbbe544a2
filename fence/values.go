package fence

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed set.lua
var setSrc string

var setScript = redis.NewScript(setSrc)

// Values are strings in Redis that are fenced: beside each key stands another,
// {key}:fence (key:fence if the key has braces of its own), with the largest token
// that has written it. Both are in one cluster slot; the script does check and
// write in one step. Read values with GET.
//
// A Values has no state; it may be used from any goroutine.
type Values struct {
	rdb    redis.Scripter
	keep   time.Duration
	holder string
}

// ValuesOption configures Values.
type ValuesOption func(*Values) error

// KeepFence has a fence expire so long after the last write or claim; by default
// it stays for ever, as do the tokens of locks. Choose far more than the longest
// time by which a holder can be late: once a fence is gone, an old token passes.
// Zero: for ever; otherwise at least a second.
func KeepFence(d time.Duration) ValuesOption {
	return func(v *Values) error {
		if d != 0 && d < time.Second {
			return invalid("KeepFence(%v): a fence that goes so soon fences nothing off: choose 1s or far more", d)
		}
		v.keep = d
		return nil
	}
}

// NewValues makes Values on a go-redis client. Errors: holdfast.ErrInvalid.
// Nothing is sent.
func NewValues(rdb redis.Scripter, opts ...ValuesOption) (*Values, error) {
	if rdb == nil {
		return nil, invalid("NewValues was given no go-redis client")
	}
	v := &Values{rdb: rdb}
	for _, set := range opts {
		if set == nil {
			continue
		}
		if err := set(v); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// By is v for the writes of one holder: pass Hold.Owner. The holder of the largest
// token is then remembered beside it, and the same token from another one is
// ErrStale. Two holders have one token if Redis has lost the grant of the earlier,
// as a failover can; see the package comment. All writers of a key use By, or none.
func (v *Values) By(holder string) *Values {
	by := *v
	by.holder = holder
	return &by
}

// Set writes a value, if no newer holder has. ttl is the life of the value, in
// whole milliseconds, rounded up; 0: no end. Errors: ErrStale (a *StaleError);
// holdfast.ErrInvalid for a token that is none, a bad key, a negative ttl, or if
// one of the two keys holds something else, which is left alone; go-redis' own, in
// which case the value may have been written: to send it again does no harm.
func (v *Values) Set(ctx context.Context, key string, token int64, value []byte, ttl time.Duration) error {
	if ttl < 0 {
		return invalid("value of %q with the negative time to live %v: give 0 for no end", key, ttl)
	}
	return v.run(ctx, key, token, value, wholeMillis(ttl))
}

// Claim raises the fence of a value and leaves the value alone: from then on no
// earlier holder can write it. What to do first with a value that is read before
// it is written. Errors: as Set.
func (v *Values) Claim(ctx context.Context, key string, token int64) error {
	return v.run(ctx, key, token)
}

func wholeMillis(d time.Duration) int64 {
	n := d.Milliseconds()
	if d%time.Millisecond > 0 {
		n++
	}
	return min(n, maxToken) // Redis adds it to the clock
}

// Answers of set.lua.
const (
	written  = 0
	badValue = -1
	badFence = -2
)

func (v *Values) run(ctx context.Context, key string, token int64, write ...any) error {
	if err := checkToken(token); err != nil {
		return err
	}
	fence, err := fenceKey(key)
	if err != nil {
		return err
	}
	args := append([]any{token, wholeMillis(v.keep), v.holder}, write...)
	answer, err := setScript.Run(ctx, v.rdb, []string{key, fence}, args...).Int64()
	switch {
	case err != nil:
		return fmt.Errorf("fence: write %q: %w", key, err)
	case answer == written:
		return nil
	case answer == badValue:
		return invalid("the key %q holds no string: it was left alone: choose another key", key)
	case answer == badFence:
		return invalid("the key %q holds no token: nothing was written: choose another key, or mend it", fence)
	}
	return &StaleError{Token: token, Seen: answer}
}

// fenceKey is where the largest token of key stands, in the slot of key.
func fenceKey(key string) (string, error) {
	_, after, braces := strings.Cut(key, "{")
	switch {
	case key == "":
		return "", invalid("the key is empty")
	case !braces && strings.Contains(key, "}"), braces && strings.IndexByte(after, '}') <= 0:
		return "", invalid("the key %q has braces that are no hash tag: its fence would stand in another cluster slot; remove them or write a whole {…}", key)
	case braces:
		return key + ":fence", nil
	}
	return "{" + key + "}:fence", nil
}
