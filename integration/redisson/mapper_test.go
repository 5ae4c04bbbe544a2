package redisson_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/redisson"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rlimiter"
	"github.com/holdfast-go/holdfast/rsemaphore"
)

// mappedLease is that of both sides: whoever gets in long before its end has had a
// message.
const mappedLease = 30 * time.Second

// side is what one side does with one primitive.
type side struct {
	take func()              // gets what keeps the other side out
	try  func() bool         // asks for what the other side has
	wait func() <-chan error // waits for it; nil where no message ends a wait
	give func()              // gives back what take got
	done func()              // gives back what try or wait got
	// parked says that a Java waiter would hear of a release, see
	// TestReleaseOfAWriterIsMissed.
	parked func() bool
}

// primitive is one that both sides have, under a name that is mapped.
type primitive struct {
	// channel is where it is told that something was given back: % is the key.
	channel string
	// lock: it needs no setting, and leaves nothing behind.
	lock bool
	mine func(t *testing.T, c *holdfast.Client, name string) side
	java func(t *testing.T, o *redisson.Owner, name string) side
}

// ofLocks is a kind of lock: one side has the one, the other asks for the other.
func ofLocks(channel, javaHas, javaWants string, has, wants func(c *holdfast.Client, name string) holdfast.Locker) primitive {
	return primitive{
		channel: channel, lock: true,
		mine: func(t *testing.T, c *holdfast.Client, name string) side {
			t.Helper()
			var had, got *holdfast.Hold
			return side{
				take: func() {
					h, err := has(c, name).TryLock(t.Context())
					require.NoError(t, err)
					had = h
				},
				try: func() bool {
					h, err := wants(c, name).TryLock(t.Context())
					got = h
					return asked(t, err)
				},
				wait: func() <-chan error {
					return start(func() (err error) {
						got, err = wants(c, name).Lock(t.Context())
						return err
					})
				},
				give: func() { require.NoError(t, had.Unlock(t.Context())) },
				done: func() { require.NoError(t, got.Unlock(t.Context())) },
			}
		},
		java: func(t *testing.T, o *redisson.Owner, name string) side {
			t.Helper()
			had, wanted := o.Object(javaHas, name), o.Object(javaWants, name)
			return side{
				take: func() { require.True(t, redisson.Get[bool](had.Call("tryLock"))) },
				try:  func() bool { return redisson.Get[bool](wanted.Call("tryLock")) },
				wait: func() <-chan error { return start(wanted.Call("lock").Err) },
				give: func() { had.Call("unlock").OK() },
				done: func() { wanted.Call("unlock").OK() },

				parked: o.Parked,
			}
		},
	}
}

var primitives = map[string]primitive{
	"Lock": ofLocks(lockChannel, "Lock", "Lock", plainLock, plainLock),
	// Each waiter of a fair lock has a channel of its own.
	"FairLock":                   ofLocks(lockChannel+":*", "FairLock", "FairLock", fairLock, fairLock),
	"WriteLock before WriteLock": ofLocks(rwChannel, "WriteLock", "WriteLock", writeKind.mine, writeKind.mine),
	"ReadLock before WriteLock":  ofLocks(rwChannel, "ReadLock", "WriteLock", readKind.mine, writeKind.mine),
	"WriteLock before ReadLock":  ofLocks(rwChannel, "WriteLock", "ReadLock", writeKind.mine, readKind.mine),
	"Semaphore": {
		channel: "redisson_sc:{%}",
		mine: func(t *testing.T, c *holdfast.Client, name string) side {
			t.Helper()
			s := c.Semaphore(name)
			give := func() { require.NoError(t, s.Release(t.Context(), 1)) }
			return side{
				take: func() {
					_, err := s.TrySetPermits(t.Context(), 1)
					require.NoError(t, err)
					require.NoError(t, s.TryAcquire(t.Context(), 1))
				},
				try:  func() bool { return asked(t, s.TryAcquire(t.Context(), 1)) },
				wait: func() <-chan error { return start(func() error { return s.Acquire(t.Context(), 1) }) },
				give: give, done: give,
			}
		},
		java: func(t *testing.T, o *redisson.Owner, name string) side {
			t.Helper()
			s := o.Object("Semaphore", name)
			give := func() { s.Call("release").OK() }
			return side{
				take: func() {
					s.Call("trySetPermits", 1).OK()
					require.True(t, redisson.Get[bool](s.Call("tryAcquire")))
				},
				try:  func() bool { return redisson.Get[bool](s.Call("tryAcquire")) },
				wait: func() <-chan error { return start(s.Call("acquire").Err) },
				give: give, done: give,
			}
		},
	},
	"PermitExpirableSemaphore": {
		channel: "redisson_sc:{%}",
		mine: func(t *testing.T, c *holdfast.Client, name string) side {
			t.Helper()
			e := c.ExpirableSemaphore(name)
			var p *rsemaphore.Permit
			give := func() { require.NoError(t, p.Release(t.Context())) }
			try := func() (err error) {
				p, err = e.TryAcquire(t.Context())
				return err
			}
			return side{
				take: func() {
					_, err := e.TrySetPermits(t.Context(), 1)
					require.NoError(t, err)
					require.NoError(t, try())
				},
				try: func() bool { return asked(t, try()) },
				wait: func() <-chan error {
					return start(func() (err error) {
						p, err = e.Acquire(t.Context())
						return err
					})
				},
				give: give, done: give,
			}
		},
		java: func(t *testing.T, o *redisson.Owner, name string) side {
			t.Helper()
			e := o.Object("PermitExpirableSemaphore", name)
			var id string
			give := func() { e.Call("release", id).OK() }
			try := func() bool {
				p := redisson.Get[*string](e.Call("tryAcquire"))
				if p != nil {
					id = *p
				}
				return p != nil
			}
			return side{
				take: func() {
					e.Call("trySetPermits", 1).OK()
					require.True(t, try())
				},
				try: try,
				wait: func() <-chan error {
					f := e.Call("acquire")
					return start(func() error {
						err := f.Err()
						if err == nil {
							id = redisson.Get[string](f)
						}
						return err
					})
				},
				give: give, done: give,
			}
		},
	},
	"CountDownLatch": {
		channel: "redisson_countdownlatch__channel__{%}",
		mine: func(t *testing.T, c *holdfast.Client, name string) side {
			t.Helper()
			l := c.Latch(name)
			return side{
				take: func() {
					set, err := l.TrySetCount(t.Context(), 1)
					require.NoError(t, err)
					require.True(t, set)
				},
				try:  func() bool { return asked(t, l.TryAwait(t.Context())) },
				wait: func() <-chan error { return start(func() error { return l.Await(t.Context()) }) },
				give: func() { require.NoError(t, l.CountDown(t.Context())) },
				done: func() {},
			}
		},
		java: func(t *testing.T, o *redisson.Owner, name string) side {
			t.Helper()
			l := o.Object("CountDownLatch", name)
			return side{
				take: func() { require.True(t, redisson.Get[bool](l.Call("trySetCount", 1))) },
				try:  func() bool { return redisson.Get[bool](l.Call("await", 200, redisson.Millis)) },
				wait: func() <-chan error { return start(l.Call("await").Err) },
				give: func() { l.Call("countDown").OK() },
				done: func() {},
			}
		},
	},
	"RateLimiter": { // nothing is given back, so there is nothing to be told
		mine: func(t *testing.T, c *holdfast.Client, name string) side {
			t.Helper()
			l := c.RateLimiter(name)
			return side{
				take: func() {
					require.NoError(t, l.SetRate(t.Context(), rlimiter.Overall, 1, time.Hour)) // clears the window
					require.NoError(t, l.TryAcquire(t.Context(), 1))
				},
				try: func() bool { return asked(t, l.TryAcquire(t.Context(), 1)) },
			}
		},
		java: func(t *testing.T, o *redisson.Owner, name string) side {
			t.Helper()
			l := o.Object("RateLimiter", name)
			return side{
				take: func() {
					l.Call("setRate", "OVERALL", 1, redisson.D(time.Hour)).OK()
					require.True(t, redisson.Get[bool](l.Call("tryAcquire")))
				},
				try: func() bool { return redisson.Get[bool](l.Call("tryAcquire")) },
			}
		},
	},
}

func plainLock(c *holdfast.Client, n string) holdfast.Locker { return c.Lock(n) }
func fairLock(c *holdfast.Client, n string) holdfast.Locker  { return c.FairLock(n) }

// asked says whether what was asked for was granted.
func asked(t *testing.T, err error) bool {
	t.Helper()
	if err != nil {
		require.ErrorIs(t, err, holdfast.ErrNotAcquired)
	}
	return err == nil
}

func start(wait func() error) <-chan error {
	got := make(chan error, 1)
	go func() { got <- wait() }()
	return got
}

// A NameMapper in Java and a prefix or mapper in Go that agree are one set of
// names: each side is kept out by the other and hears its releases, and what
// stands in Redis has the mapped name. To whoever has no mapper, on either side,
// it is another name.
func TestNameMapper(t *testing.T) {
	const prefix = "app:"
	mappings := map[string]holdfast.Option{
		"WithPrefix":     holdfast.WithPrefix(prefix),
		"WithNameMapper": holdfast.WithNameMapper(func(name string) string { return prefix + name }),
	}
	versions(t, func(t *testing.T, unmapped *redisson.JVM) {
		version := newest
		if strings.HasSuffix(t.Name(), older) {
			version = older
		}
		mapped := redisson.Start(t, home, redisson.Config{Version: version, Watchdog: mappedLease, Prefix: prefix, Addrs: []string{server.Addr()}})
		for option, mapping := range mappings {
			for what, p := range primitives {
				t.Run(option+"/"+what, func(t *testing.T) {
					c, _ := connect(t, holdfast.WithLease(mappedLease), mapping)
					without, _ := connect(t)
					name := strings.ReplaceAll(t.Name(), " ", "_") + "/" + c.ID() // another one in each run
					kind, _, _ := strings.Cut(what, " ")
					pair := pair{primitive: p, rdb: server.Client(t), name: name, key: prefix + name}
					others := []side{p.mine(t, without, name), p.java(t, unmapped.Owner(t, "a"), name)}
					pair.seen = func(t *testing.T) {
						t.Helper()
						for client, name := range map[*holdfast.Client]string{c: name, without: prefix + name} {
							info, err := client.Inspect(t.Context(), name)
							require.NoError(t, err)
							require.NotEqual(t, "none", info.Type)
							require.Equal(t, prefix+pair.name, info.Key)
						}
						info, err := without.Inspect(t.Context(), name)
						require.NoError(t, err)
						require.Equal(t, "none", info.Type)
						require.True(t, redisson.Get[bool](mapped.Owner(t, "looks").Object(kind, name).Call("isExists")))
						require.False(t, redisson.Get[bool](unmapped.Owner(t, "looks").Object(kind, name).Call("isExists")))
					}
					mine, javas := p.mine(t, c, name), p.java(t, mapped.Owner(t, "a"), name)
					pair.round(t, mine, javas)
					pair.round(t, javas, mine)

					if !p.lock {
						return
					}
					// At the end: 3.x leaves a note of each unlock for a while.
					for _, has := range []side{mine, javas} {
						has.take()
						for _, without := range others {
							require.True(t, without.try(), "who has no mapper is kept out")
							without.done()
						}
						has.give()
					}
				})
			}
		}
	})
}

// pair is a primitive that a Go client and a JVM use under a mapped name.
type pair struct {
	primitive

	rdb       *redis.Client
	name, key string
	seen      func(t *testing.T) // checks who sees it under which name
}

// round has one side keep the other out, and then let it in.
func (p pair) round(t *testing.T, has, wants side) {
	t.Helper()
	has.take()
	require.False(t, wants.try(), "both are in")
	keys := p.find(t, func(pattern string) *redis.StringSliceCmd { return p.rdb.Keys(t.Context(), pattern) })
	require.Contains(t, keys, p.key)
	p.seen(t)
	if wants.wait == nil {
		return
	}

	channel := strings.ReplaceAll(p.channel, "%", p.key)
	heard := func(n int) {
		t.Helper()
		redistest.Eventually(t, prompt, func() bool {
			on, err := p.rdb.PubSubChannels(t.Context(), channel).Result()
			return err == nil && len(on) == n
		}, "%d channels are listened to: %s", n, channel)
	}
	heard(0)
	got := wants.wait()
	heard(1)
	if wants.parked != nil {
		redistest.Eventually(t, prompt, wants.parked, "the Java waiter waits")
	}
	p.find(t, func(pattern string) *redis.StringSliceCmd { return p.rdb.Keys(t.Context(), pattern) })
	p.find(t, func(pattern string) *redis.StringSliceCmd { return p.rdb.PubSubChannels(t.Context(), pattern) })
	select {
	case err := <-got:
		require.Fail(t, "it doesn't wait", "%v", err)
	default:
	}
	gave := time.Now()
	has.give()
	select {
	case err := <-got:
		require.NoError(t, err)
		t.Logf("woken after %s", time.Since(gave))
	case <-time.After(mappedLease / 3):
		require.Fail(t, "no message wakes it")
	}
	wants.done()
	if p.lock {
		require.Zero(t, p.rdb.Exists(t.Context(), p.key).Val(), "it is free")
	}
}

// find answers what has the name in it, which is the mapped one everywhere.
func (p pair) find(t *testing.T, ask func(pattern string) *redis.StringSliceCmd) []string {
	t.Helper()
	found, err := ask("*" + p.name + "*").Result()
	require.NoError(t, err)
	require.NotEmpty(t, found)
	for _, n := range found {
		require.Contains(t, n, p.key)
	}
	return found
}
