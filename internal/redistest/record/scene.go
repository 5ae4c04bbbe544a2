package record

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/keys"
)

// latchPrefix begins the keys by which Redisson knows its own resends: private to
// the sender, as ours are.
const latchPrefix = "redisson_unlock_latch:"

// Scene is where one section is played: an empty Redis, and somebody who looks
// and listens.
type Scene struct {
	testing.TB
	Redis *redis.Client
	// Anonymous writes what differs from run to run, ids of clients and threads,
	// as the files do.
	Anonymous func(string) string

	ears    *redis.PubSub
	names   idNames
	began   time.Time
	answers []string
	steps   []Step
}

// NewScene empties the server.
func NewScene(tb testing.TB, rdb *redis.Client) *Scene {
	tb.Helper()
	s := &Scene{TB: tb, Redis: rdb, began: time.Now()}
	require.NoError(tb, rdb.FlushAll(tb.Context()).Err())
	s.ears = rdb.PSubscribe(tb.Context(), "*")
	tb.Cleanup(func() { require.NoError(tb, s.ears.Close()) })
	_, err := s.ears.Receive(tb.Context()) // the confirmation
	require.NoError(tb, err)
	return s
}

// Section is what was seen.
func (s *Scene) Section(name string) Section {
	if len(s.answers) > 0 {
		s.steps = append(s.steps, Step{Lines: s.answers})
		s.answers = nil
	}
	return Section{name, s.steps}
}

// Answer notes what a call answered, in the words of the record.
func (s *Scene) Answer(format string, args ...any) {
	s.answers = append(s.answers, s.Anonymous(fmt.Sprintf(format, args...)))
}

// Look ends a step: it notes all that stands in Redis, and what was said.
func (s *Scene) Look(name string) {
	s.Helper()
	lines := slices.Concat(s.answers, s.keys(), s.messages())
	s.answers = nil
	s.steps = append(s.steps, Step{name, lines, time.Since(s.began)})
}

func (s *Scene) keys() (lines []string) {
	s.Helper()
	all, err := s.Redis.Keys(s.Context(), "*").Result()
	require.NoError(s, err)
	slices.Sort(all)
	for _, key := range all {
		if strings.HasPrefix(key, latchPrefix) {
			continue
		}
		kind, err := s.Redis.Type(s.Context(), key).Result()
		require.NoError(s, err)
		ttl, err := s.Redis.PTTL(s.Context(), key).Result()
		require.NoError(s, err)
		if strings.Contains(key, ":holdfast:") {
			s.checkPrivate(key, ttl)
			continue
		}
		life := "no ttl"
		if ttl >= 0 {
			life = fmt.Sprintf("ttl %.0fs", ttl.Seconds())
		}
		line := fmt.Sprintf("key %s | %s | %s | %s", key, kind, life, strings.Join(s.value(key, kind), " "))
		lines = append(lines, comparable(s.Anonymous(line), &s.names))
	}
	return lines
}

// checkPrivate holds a key that Redisson doesn't know to what WIRE promises of
// it: it goes by itself, and it stands in the slot of its name.
func (s *Scene) checkPrivate(key string, ttl time.Duration) {
	s.Helper()
	require.Positive(s, ttl, "the private key %s never goes", key)
	base, _, _ := strings.Cut(key, ":holdfast:")
	require.Equal(s, keys.Slot(base), keys.Slot(key), key)
}

func (s *Scene) value(key, kind string) (words []string) {
	s.Helper()
	ctx := s.Context()
	switch kind {
	case "string":
		v, err := s.Redis.Get(ctx, key).Result()
		require.NoError(s, err)
		return []string{escape(v)}
	case "list":
		vs, err := s.Redis.LRange(ctx, key, 0, -1).Result()
		require.NoError(s, err)
		for _, v := range vs {
			words = append(words, escape(v))
		}
	case "hash":
		vs, err := s.Redis.HGetAll(ctx, key).Result()
		require.NoError(s, err)
		for f, v := range vs {
			words = append(words, escape(f), escape(v))
		}
	case "zset":
		now, err := s.Redis.Time(ctx).Result()
		require.NoError(s, err)
		vs, err := s.Redis.ZRangeWithScores(ctx, key, 0, -1).Result()
		require.NoError(s, err)
		for _, v := range vs {
			words = append(words, escape(v.Member.(string)), score(v.Score, now))
		}
	default:
		require.Fail(s, "no primitive leaves this", "key %s: %s", key, kind)
	}
	return words
}

// score writes a moment near now as its distance, and anything else as it is.
func score(f float64, now time.Time) string {
	d := time.UnixMilli(int64(f)).Sub(now)
	switch n := int(d.Round(time.Second) / time.Second); {
	case d.Abs() > 24*time.Hour:
		return strconv.FormatFloat(f, 'f', -1, 64)
	case n == 0:
		return "<now0s>"
	default:
		return fmt.Sprintf("<now%+ds>", n)
	}
}

// messages are those since the last look: all that came before one of our own.
func (s *Scene) messages() (lines []string) {
	s.Helper()
	const mark = "golden:look"
	require.NoError(s, s.Redis.Publish(s.Context(), mark, "").Err())
	for {
		msg, err := s.ears.ReceiveMessage(s.Context())
		require.NoError(s, err)
		if msg.Channel == mark {
			return lines
		}
		lines = append(lines, s.Anonymous(fmt.Sprintf("msg %s <- %s", msg.Channel, msg.Payload)))
	}
}
