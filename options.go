package holdfast

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/script"
)

// Option configures a Client. Options are checked in New and Open.
type Option func(*settings) error

type settings struct {
	lease    time.Duration
	fair     time.Duration
	batch    int
	patience time.Duration
	poll     time.Duration
	mapName  func(string) string
	sharding ShardedPubSub
	replicas script.Replicas
	log      *slog.Logger
	observe  func(Event)
}

func defaults() settings {
	return settings{
		lease:    30 * time.Second,
		fair:     5 * time.Minute,
		batch:    100,
		patience: 3 * time.Second,
		poll:     5 * time.Second,
		mapName:  func(name string) string { return name },
		log:      slog.New(slog.DiscardHandler),
	}
}

func collect(opts []Option) (settings, error) {
	s := defaults()
	for _, set := range opts {
		if set == nil {
			continue
		}
		if err := set(&s); err != nil {
			return s, err
		}
	}
	return s, nil
}

// WithLease sets the lease of holds that are renewed: how long a lock stays
// taken after its holder's process died. Renewed every third of it. Default
// 30 s, Redisson's lockWatchdogTimeout; at least 30 ms, at most a century.
func WithLease(d time.Duration) Option {
	return func(s *settings) error {
		if d < 30*time.Millisecond {
			return errs.Invalid("WithLease(%v): a lease below 30ms can't be renewed in time: choose a longer one", d)
		}
		s.lease = lease.Round(d)
		return nil
	}
}

// WithRenewBatch sets how many names one renewal command carries at most.
// Default 100.
func WithRenewBatch(n int) Option {
	return func(s *settings) error {
		if n < 1 {
			return errs.Invalid("WithRenewBatch(%d): a batch holds at least one name", n)
		}
		s.batch = n
		return nil
	}
}

// WithFairTimeout sets how long the place of a waiter in the queue of a fair lock
// is kept, behind those before it, if no time to wait was given. What this module
// waits for keeps its place as long as it lives: it shows that every third of
// 15 s, or of this time if that is shorter, and is passed over without word for
// so long. Others (Redisson) wait for this long for a waiter that died. Default 5
// minutes, as theirs; at least 100 ms, at most a day.
func WithFairTimeout(d time.Duration) Option {
	return func(s *settings) error {
		if d < 100*time.Millisecond || d > 24*time.Hour {
			return errs.Invalid("WithFairTimeout(%v): choose from 100ms to 24h", d)
		}
		s.fair = lease.Round(d)
		return nil
	}
}

// WithCommandTimeout sets how long a call that doesn't wait goes on without an
// answer: it sends its command again, as the same request, until then. A single
// sending keeps the read timeout of the go-redis client, which may be longer.
// Default 3 s; from 1 ms to 1 minute, which is how long a copy of a command may
// be late without harm.
func WithCommandTimeout(d time.Duration) Option {
	return func(s *settings) error {
		if d < time.Millisecond || d > time.Minute {
			return errs.Invalid("WithCommandTimeout(%v): choose from 1ms to 1m", d)
		}
		s.patience = d
		return nil
	}
}

// WithPollFallback sets after how long a waiter that hears nothing asks Redis
// again: it bounds a wait where notifications are lost, refused or missing.
// Default 5 s.
func WithPollFallback(d time.Duration) Option {
	return func(s *settings) error {
		if d < 10*time.Millisecond {
			return errs.Invalid("WithPollFallback(%v): polling faster than every 10ms would be a load test", d)
		}
		s.poll = min(d, lease.Max)
		return nil
	}
}

// ShardedPubSub is a mode of WithShardedPubSub.
type ShardedPubSub = script.Sharding

// Modes of WithShardedPubSub.
const (
	// Auto is On where the nodes of a cluster know sharded pub/sub (Redis 7,
	// Valkey), else Off.
	Auto = script.Auto
	// On is SPUBLISH and SSUBSCRIBE: a release is told in its shard only.
	On = script.On
	// Off is PUBLISH and SUBSCRIBE: every node of a cluster is told every release.
	Off = script.Off
)

// WithShardedPubSub sets how releases are told to waiters. Default Auto, which
// one node of the cluster is asked for, once: a cluster whose nodes are being
// upgraded needs On or Off. Redisson has the same three modes, AUTO by default;
// services that share locks must agree, else their waiters only poll each other.
func WithShardedPubSub(mode ShardedPubSub) Option {
	return func(s *settings) error {
		if mode < Auto || mode > Off {
			return errs.Invalid("WithShardedPubSub(%d): choose Auto, On or Off", mode)
		}
		s.sharding = mode
		return nil
	}
}

// WithPrefix puts a prefix before every name: one per application that shares a
// Redis. Redisson services do the same with a NameMapper.
func WithPrefix(prefix string) Option {
	return WithNameMapper(func(name string) string { return prefix + name })
}

// WithNameMapper makes the key of every name. It must be a pure function;
// services that share locks must agree on it. It replaces WithPrefix.
func WithNameMapper(key func(name string) string) Option {
	return func(s *settings) error {
		if key == nil {
			return errs.Invalid("WithNameMapper(nil): leave the option out instead")
		}
		s.mapName = key
		return nil
	}
}

// WithLogger sets where the client tells of lost holds, failed renewals, lost
// connections and requests that get no answer. Default: nowhere. (go-redis has a log of its own, to stderr:
// see redis.SetLogger.)
func WithLogger(log *slog.Logger) Option {
	return func(s *settings) error {
		if log == nil {
			return errs.Invalid("WithLogger(nil): leave the option out instead")
		}
		s.log = log
		return nil
	}
}

// checkContext turns a nil context into an error: it would panic far from here.
func checkContext(ctx context.Context, call string) error {
	if ctx == nil {
		return fmt.Errorf("%w: %s was given a nil context: pass context.Background()", errs.ErrInvalid, call)
	}
	return nil
}
