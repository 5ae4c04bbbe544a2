package rsemaphore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/keys"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/object"
	"github.com/holdfast-go/holdfast/internal/script"
)

var (
	//go:embed number.lua
	numberSrc string
	//go:embed add.lua
	addSrc string
	//go:embed set.lua
	setSrc string
	//go:embed expire.lua
	expireSrc string
	//go:embed delete.lua
	deleteSrc string

	addScript    = counting("add.lua", addSrc)
	setScript    = counting("set.lua", setSrc)
	expireScript = counting("expire.lua", expireSrc)
	deleteScript = counting("delete.lua", deleteSrc)
)

// counting makes a script that opens with marker.lua and number.lua.
func counting(name, src string) *script.Script { return script.Mutating(name, numberSrc+src) }

// Answers of the scripts that change a number.
const (
	missing = 0
	done    = 1
	unheard = 2 // done, but PUBLISH was refused
	tooMany = 3
)

// maxPermits is the largest number of permits: what a Lua number holds exactly.
const maxPermits = 1<<53 - 1

// counter is what both kinds of semaphore have in common: a number of free
// permits under the name, and a channel that tells its changes.
type counter struct {
	*object.Object
	channel    string
	channelArg any
	more       []any  // further keys
	line       string // where those of this client wait
}

func newCounter(s *hold.Services, name string) *counter {
	o := object.New(s, name)
	c := &counter{Object: o, channel: keys.Prefixed("redisson_sc", o.RedisKey())}
	c.channelArg, c.line = c.channel, o.RedisKey()
	return c
}

func (c *counter) keys() script.Keys {
	k := c.Keys()
	k.More = c.more
	return k
}

// change sends a request that every copy marks.
func (c *counter) change(ctx context.Context, what string, d object.Delivery, s *script.Script, argv ...any) (int64, error) {
	n, err := c.Change(ctx, what, d, script.NewMutation(s, c.keys(), nil, argv...).AlwaysMark())
	if err != nil {
		return 0, err
	}
	if s != drainScript { // whose answer is a number of permits
		c.heard(n == unheard)
	}
	return n, nil
}

// heard wakes the lines of this client where no notification will.
func (c *counter) heard(mute bool) {
	if mute {
		c.Muted(c.RedisKey())
		c.Loop.Freed(c.line)
	}
}

// count refuses a number of permits that makes no sense for what.
func (c *counter) count(what string, n, least int64) error {
	switch {
	case n < least && least > 0:
		return errs.Invalid("%s %s: %d permits: give a number of at least %d", what, errs.Quote(c.Name()), n, least)
	case n < least && least == 0:
		return errs.Invalid("%s %s: %d permits: give 0 or more", what, errs.Quote(c.Name()), n)
	case n > maxPermits || n < -maxPermits:
		return errs.Invalid("%s %s: %d permits: the number doesn't fit into 53 bits", what, errs.Quote(c.Name()), n)
	}
	return nil
}

// ttl refuses a time to live that isn't positive, and answers whole milliseconds.
func (c *counter) ttl(what string, d time.Duration) (int64, error) {
	if d <= 0 {
		return 0, errs.Invalid("%s %s: a time of %v is not positive: to remove it use Delete", what, errs.Quote(c.Name()), d)
	}
	return lease.Round(d).Milliseconds(), nil
}

func (c *counter) trySet(ctx context.Context, n int64, ttl int64) (bool, error) {
	if err := c.count("set the permits of", n, 0); err != nil {
		return false, err
	}
	r, err := c.change(ctx, "set the permits of", object.AtMostNow, setScript, n, c.channelArg, ttl)
	return r != missing, err
}

func (c *counter) add(ctx context.Context, what string, d object.Delivery, n int64, there bool) (bool, error) {
	ifThere := 0
	if there {
		ifThere = 1
	}
	r, err := c.change(ctx, what, d, addScript, n, c.channelArg, ifThere)
	if err == nil && r == tooMany {
		err = errs.Invalid("%s %s: %d more permits and the number would not fit into 53 bits; nothing was changed", what, errs.Quote(c.Name()), n)
	}
	return err == nil && r != missing, err
}

func (c *counter) exists(ctx context.Context) (bool, error) {
	n, err := object.Ask(ctx, c.Object, "look at", func(ctx context.Context) (int64, error) {
		return c.Runner.Redis().Exists(ctx, c.RedisKey()).Result()
	})
	return n > 0, err
}

func (c *counter) expire(ctx context.Context, d time.Duration) (bool, error) {
	ttl, err := c.ttl("expire", d)
	if err != nil {
		return false, err
	}
	r, err := c.change(ctx, "expire", object.AtMostNow, expireScript, ttl)
	return r != missing, err
}

func (c *counter) remove(ctx context.Context) (bool, error) {
	r, err := c.change(ctx, "delete", object.AtMostNow, deleteScript)
	return r != missing, err
}

// free reads the number of free permits.
func (c *counter) free(ctx context.Context) (int64, error) {
	return object.Ask(ctx, c.Object, "look at", func(ctx context.Context) (int64, error) {
		text, err := c.Runner.Redis().Get(ctx, c.RedisKey()).Result()
		if errors.Is(err, redis.Nil) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		return parseNumber(text)
	})
}

// parseNumber reads a number of permits as the scripts do.
func parseNumber(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, notANumber(fmt.Sprintf("WRONGTYPE holdfast: a string that is no number of permits: %.20q", text))
	}
	return n, nil
}

// notANumber is what a script would have answered for such a value.
type notANumber string

func (e notANumber) Error() string { return string(e) }

// RedisError implements redis.Error.
func (notANumber) RedisError() {}
