package security

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rlock"
)

// lease is short, so that an exercise lasts through some renewals.
const lease = 2 * time.Second

// exercises work with everything that a primitive can do, as two clients of one
// user, and answer what went wrong.
var exercises = map[string]func(context.Context, *pair) error{
	"Lock": func(ctx context.Context, p *pair) error {
		return p.lock(ctx, func(c *holdfast.Client) rlock.Locker { return c.Lock("n") })
	},
	"SpinLock": func(ctx context.Context, p *pair) error {
		return p.lock(ctx, func(c *holdfast.Client) rlock.Locker { return c.SpinLock("n", nil) })
	},
	"FencedLock": func(ctx context.Context, p *pair) error { return p.fenced(ctx) },
	"FairLock": func(ctx context.Context, p *pair) error {
		err := p.lock(ctx, func(c *holdfast.Client) rlock.Locker { return c.FairLock("n") })
		return errors.Join(err, p.queue(ctx))
	},
	"MultiLock": func(ctx context.Context, p *pair) error {
		return p.lock(ctx, func(c *holdfast.Client) rlock.Locker { return c.MultiLock(c.Lock("n"), c.Lock("m")) })
	},
	"RWLock": func(ctx context.Context, p *pair) error {
		return errors.Join(
			p.lock(ctx, func(c *holdfast.Client) rlock.Locker { return c.RWLock("w").Write() }),
			p.readers(ctx),
		)
	},
	"Semaphore":          func(ctx context.Context, p *pair) error { return p.semaphore(ctx) },
	"ExpirableSemaphore": func(ctx context.Context, p *pair) error { return p.expirable(ctx) },
	"Latch":              func(ctx context.Context, p *pair) error { return p.latch(ctx) },
	"RateLimiter":        func(ctx context.Context, p *pair) error { return p.limiter(ctx) },
	"Inspect, Locks":     func(ctx context.Context, p *pair) error { return p.inspect(ctx) },
}

// A user with exactly the documented rights can do everything, notifications
// included.
func TestACLDocumentedRights(t *testing.T) {
	rows := documented(t)
	for what := range exercises {
		require.Contains(t, rows, what)
	}
	for what, exercise := range exercises {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, rows[what], holdfast.WithPollFallback(never))
			require.NoError(t, exercise(within(t, 4*prompt), p))
			require.NoError(t, errors.Join(p.failures()...), "behind the calls")
			require.NotContains(t, p.log.String(), "refused")
		})
	}
}

// One right less, and the error says which. Without pub/sub waiters poll.
func TestACLOneRightLess(t *testing.T) {
	rows := documented(t)
	for what := range exercises {
		all := rows[what]
		for _, c := range all.commands {
			t.Run(what+"/"+c, func(t *testing.T) {
				if c != "eval" {
					t.Parallel()
				} else { // it is needed once per script: these come first, one by one
					require.NoError(t, server.Client(t).ScriptFlush(t.Context()).Err())
				}
				less := all
				less.commands = without(all.commands, c)
				oneLess(t, what, less, c)
			})
		}
		for _, k := range all.keys {
			t.Run(what+"/key "+k, func(t *testing.T) {
				t.Parallel()
				less := all
				less.keys = without(all.keys, k)
				oneLess(t, what, less, "key")
			})
		}
		for _, c := range all.channels {
			t.Run(what+"/channel "+c, func(t *testing.T) {
				t.Parallel()
				less := all
				less.channels = without(all.channels, c)
				oneLess(t, what, less, "")
			})
		}
	}
}

// oneLess requires that an exercise with a right less fails with an error that
// names it; or does all its work, if it is one of notifications.
func oneLess(t *testing.T, what string, r rights, lacks string) {
	p := newPair(t, r, holdfast.WithPollFallback(50*time.Millisecond))
	err := errors.Join(exercises[what](within(t, 4*prompt), p), errors.Join(p.failures()...))
	switch lacks {
	case "", "publish", "subscribe", "unsubscribe", "ping", "pubsub|numsub":
		require.NoError(t, err)
		return
	}
	if err == nil { // what goes on behind a caller has only the log to tell
		err = fmt.Errorf("%w: %s", holdfast.ErrDenied, p.log.String())
	}
	require.ErrorIs(t, err, holdfast.ErrDenied)
	require.NotErrorIs(t, err, holdfast.ErrNotAcquired)
	require.Contains(t, strings.ToLower(err.Error()), lacks)
	if lacks == "key" {
		require.Contains(t, err.Error(), p.prefix, "the keys are told")
	}
	require.NotContains(t, err.Error()+p.log.String(), password)
}

// What a script did before a right was missing is taken back: a lock without an
// expiry would be taken for ever.
func TestACLHalfDone(t *testing.T) {
	all := documented(t)
	for what, take := range map[string]func(*pair) rlock.Locker{
		"Lock":       func(p *pair) rlock.Locker { return p.a.Lock("n") },
		"FencedLock": func(p *pair) rlock.Locker { return p.a.FencedLock("n") },
		"FairLock":   func(p *pair) rlock.Locker { return p.a.FairLock("n") },
		"MultiLock":  func(p *pair) rlock.Locker { return p.a.MultiLock(p.a.Lock("n"), p.a.Lock("m")) },
		"RWLock":     func(p *pair) rlock.Locker { return p.a.RWLock("n").Write() },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			less := all[what]
			less.commands = without(less.commands, "pexpire")
			p := newPair(t, less)
			_, err := take(p).Lock(within(t, prompt))
			require.ErrorIs(t, err, holdfast.ErrDenied)
			require.ErrorContains(t, err, "PEXPIRE")
			rdb := server.Client(t)
			redistest.Eventually(t, prompt, func() bool {
				n, err := rdb.Exists(t.Context(), p.prefix+"n", p.prefix+"m").Result()
				return err == nil && n == 0
			}, "it is undone")
		})
	}
}

// pair are two clients of one user, as in two processes.
type pair struct {
	t      *testing.T
	prefix string
	a, b   *holdfast.Client
	log    lines
	mu     sync.Mutex
	failed []error // renewals
}

func newPair(t *testing.T, r rights, opts ...holdfast.Option) *pair {
	name := strings.NewReplacer("/", "-", "|", "_", " ", "_", "*", "", "{", "", "}", "", ":", "_", ",", "").Replace(t.Name())
	p := &pair{t: t, prefix: name + ":"}
	url := r.user(t, name, p.prefix)
	opts = append(opts, holdfast.WithPrefix(p.prefix), holdfast.WithLease(lease), holdfast.WithFairTimeout(2*lease), holdfast.WithObserver(p.observe), p.log.option())
	p.a, p.b = open(t, url, opts...), open(t, url, opts...)
	return p
}

func (p *pair) observe(e holdfast.Event) {
	if e, ok := e.(holdfast.RenewalFailed); ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.failed = append(p.failed, e.Err)
	}
}

func (p *pair) failures() []error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// step names the call that failed.
func step(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
