package golden

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/keys"
)

// stage is where one section is played: an empty Redis, a client, and somebody
// who looks and listens.
type stage struct {
	*testing.T
	client  *holdfast.Client
	rdb     *redis.Client
	ears    *redis.PubSub
	names   idNames
	began   time.Time
	answers []string
	steps   []step
}

// play makes the calls of one section.
func play(t *testing.T, name string, calls func(*stage)) section {
	t.Helper()
	s := &stage{T: t, rdb: server.Client(t), began: time.Now()}
	require.NoError(t, s.rdb.FlushAll(t.Context()).Err())
	client, err := holdfast.New(server.Client(t))
	require.NoError(t, err)
	s.client = client
	t.Cleanup(func() { s.ok(client.Close()) })
	s.ears = s.rdb.PSubscribe(t.Context(), "*")
	t.Cleanup(func() { s.ok(s.ears.Close()) })
	_, err = s.ears.Receive(t.Context()) // the confirmation
	require.NoError(t, err)

	calls(s)
	if len(s.answers) > 0 {
		s.steps = append(s.steps, step{lines: s.answers})
	}
	return section{name, s.steps}
}

// as is a context of the owner that in Java is a thread.
func (s *stage) as(thread int) context.Context {
	return holdfast.WithOwnerID(s.Context(), strconv.Itoa(thread))
}

// answer notes what a call answered, in the words of the record.
func (s *stage) answer(format string, args ...any) {
	s.answers = append(s.answers, s.anonymous(fmt.Sprintf(format, args...)))
}

// ok fails the test for a call that must succeed.
func (s *stage) ok(err error) {
	s.Helper()
	require.NoError(s, err)
}

// yes is ok for calls that answer whether they did it.
func (s *stage) yes(did bool, err error) {
	s.Helper()
	require.NoError(s, err)
	require.True(s, did)
}

// look ends a step: it notes all that stands in Redis, and what was said.
func (s *stage) look(name string) {
	s.Helper()
	lines := slices.Concat(s.answers, s.keys(), s.messages())
	s.answers = nil
	s.steps = append(s.steps, step{name, lines, time.Since(s.began)})
}

func (s *stage) keys() (lines []string) {
	s.Helper()
	all, err := s.rdb.Keys(s.Context(), "*").Result()
	require.NoError(s, err)
	slices.Sort(all)
	for _, key := range all {
		kind, err := s.rdb.Type(s.Context(), key).Result()
		require.NoError(s, err)
		ttl, err := s.rdb.PTTL(s.Context(), key).Result()
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
		lines = append(lines, comparable(s.anonymous(line), &s.names))
	}
	return lines
}

// checkPrivate holds a key that Redisson doesn't know to what WIRE promises of
// it: it goes by itself, and it stands in the slot of its name.
func (s *stage) checkPrivate(key string, ttl time.Duration) {
	s.Helper()
	require.Positive(s, ttl, "the private key %s never goes", key)
	base, _, _ := strings.Cut(key, ":holdfast:")
	require.Equal(s, keys.Slot(base), keys.Slot(key), key)
}

func (s *stage) value(key, kind string) (words []string) {
	s.Helper()
	ctx := s.Context()
	switch kind {
	case "string":
		v, err := s.rdb.Get(ctx, key).Result()
		require.NoError(s, err)
		return []string{escape(v)}
	case "list":
		vs, err := s.rdb.LRange(ctx, key, 0, -1).Result()
		require.NoError(s, err)
		for _, v := range vs {
			words = append(words, escape(v))
		}
	case "hash":
		vs, err := s.rdb.HGetAll(ctx, key).Result()
		require.NoError(s, err)
		for f, v := range vs {
			words = append(words, escape(f), escape(v))
		}
	case "zset":
		now, err := s.rdb.Time(ctx).Result()
		require.NoError(s, err)
		vs, err := s.rdb.ZRangeWithScores(ctx, key, 0, -1).Result()
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
func (s *stage) messages() (lines []string) {
	s.Helper()
	const mark = "golden:look"
	require.NoError(s, s.rdb.Publish(s.Context(), mark, "").Err())
	for {
		msg, err := s.ears.ReceiveMessage(s.Context())
		require.NoError(s, err)
		if msg.Channel == mark {
			return lines
		}
		lines = append(lines, s.anonymous(fmt.Sprintf("msg %s <- %s", msg.Channel, msg.Payload)))
	}
}

var thread = regexp.MustCompile(`<client>:(\d+)`)

// anonymous replaces this client's id and its owners as in the record.
func (s *stage) anonymous(line string) string {
	line = strings.ReplaceAll(line, s.client.ID(), "<client>")
	return thread.ReplaceAllString(line, "<client>:<$1>")
}
