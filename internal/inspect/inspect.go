package inspect

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/keys"
	"github.com/holdfast-go/holdfast/internal/script"
)

//go:embed inspect.lua
var inspectSrc string

var inspectScript = script.New("inspect.lua", inspectSrc)

// One answers what stands at a name, in one round trip.
func One(ctx context.Context, s *hold.Services, name string) (Info, error) {
	if ctx == nil {
		return Info{}, hold.ErrNilContext("inspect", name)
	}
	key, err := s.Key(name)
	if err != nil {
		return Info{}, err
	}
	reply, err := hold.Query(ctx, s, func(ctx context.Context) (script.Reply, error) {
		return s.Send(ctx, s.Patience, call(key)), nil
	})
	if err == nil {
		err = reply.Err
	}
	if err != nil {
		return Info{}, fmt.Errorf("holdfast: inspect %s: %w", errs.Quote(name), err)
	}
	return readInfo(name, key, reply.Val), nil
}

// call asks what stands at a key.
func call(key string) script.Call {
	channels := Channels(key)
	return script.NewCall(
		inspectScript,
		[]string{
			key,
			keys.Prefixed("redisson_lock_token", key),
			keys.Prefixed("redisson_lock_queue", key),
			keys.Prefixed("redisson_lock_timeout", key),
			keys.Suffixed(key, "holdfast:alive"),
			keys.Suffixed(key, "holdfast:writers"),
			keys.Suffixed(key, "holdfast:readers"),
			keys.Suffixed(key, "timeout"),
			keys.Suffixed(key, "value"),
			keys.Suffixed(key, "permits"),
			keys.Suffixed(key, "holdfast:opened"),
		},
		start(key), Limit, channels[0], channels[1], channels[2], channels[3],
	)
}

// start is what the suffixed keys of key start with.
func start(key string) string {
	s := keys.Suffixed(key, "")
	return s[:len(s)-1]
}

// Channels are those on which news of a key may be published: of a semaphore, of
// a latch, of a lock, of a read-write lock. Waiters of a fair lock have their own.
func Channels(key string) []string {
	return []string{
		keys.Prefixed("redisson_sc", key),
		"redisson_countdownlatch__channel__{" + key + "}",
		keys.Prefixed("redisson_lock__channel", key),
		keys.Prefixed("redisson_rwlock", key),
	}
}
