package redisson_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/redisson"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rlock"
	"github.com/holdfast-go/holdfast/rsemaphore"
)

// fixed is a lease that is neither renewed nor over while a test lasts: whoever gets
// in long before its end has had a message.
const fixed = 20 * time.Second

// party is one side of a hand-over.
type party struct {
	ask  func() error // waits until it has it
	give func() error
}

// exchange is what goes to and fro between the sides.
type exchange struct {
	java func(o *redisson.Owner, name string) party
	mine func(t *testing.T, c *holdfast.Client, name string) party
	// asks is how often a side may ask after a release: once, if the machine is quick.
	asks int64
	// newOnly: 3.x hasn't got it.
	newOnly bool
	// listens: a Java waiter that listens has no thread that sleeps.
	listens bool
	// goOnly: Redisson's waiter comes back by itself.
	goOnly bool
}

func locks(java string, mine func(c *holdfast.Client, name string) holdfast.Locker) exchange {
	return exchange{
		asks: 2,
		java: func(o *redisson.Owner, name string) party {
			return javaLock(o.Object(java, name))
		},
		mine: func(t *testing.T, c *holdfast.Client, name string) party {
			t.Helper()
			return goLock(t, mine(c, name))
		},
	}
}

func javaLock(l *redisson.Object) party {
	return party{
		ask:  func() error { return l.Call("lock", fixed.Milliseconds(), redisson.Millis).Err() },
		give: func() error { return l.Call("unlock").Err() },
	}
}

func goLock(t *testing.T, l holdfast.Locker) party {
	t.Helper()
	var h *holdfast.Hold
	return party{
		ask: func() (err error) {
			h, err = l.Lock(t.Context(), holdfast.Lease(fixed))
			return err
		},
		give: func() error { return h.Unlock(t.Context()) },
	}
}

var exchanges = map[string]exchange{
	"Lock":       locks("Lock", plainLock),
	"FencedLock": locks("FencedLock", func(c *holdfast.Client, n string) holdfast.Locker { return c.FencedLock(n) }),
	"FairLock":   locks("FairLock", fairLock),
	"NonReentrantLock": newer(locks("NonReentrantLock", func(c *holdfast.Client, n string) holdfast.Locker {
		return c.Lock(n, rlock.NonReentrant())
	})),
	"NonReentrantFairLock": newer(locks("NonReentrantFairLock", func(c *holdfast.Client, n string) holdfast.Locker {
		return c.FairLock(n, rlock.NonReentrant())
	})),
	"WriteLock":                locks("WriteLock", writeKind.mine),
	"Java writes and Go reads": locks("WriteLock", readKind.mine),
	"Java reads and Go writes": locks("ReadLock", writeKind.mine),
	"MultiLock": {
		asks: 8, goOnly: true, // two locks, one after the other, and two releases
		java: func(o *redisson.Owner, name string) party { return javaLock(o.MultiLock(name, name+"-2")) },
		mine: func(t *testing.T, c *holdfast.Client, name string) party {
			t.Helper()
			return goLock(t, c.MultiLock(c.Lock(name), c.Lock(name+"-2")))
		},
	},
	"Semaphore": {
		asks: 2, listens: true,
		java: func(o *redisson.Owner, name string) party {
			s := o.Object("Semaphore", name)
			s.Call("trySetPermits", 1).OK()
			return party{
				ask:  func() error { return s.Call("acquire").Err() },
				give: func() error { return s.Call("release").Err() },
			}
		},
		mine: func(t *testing.T, c *holdfast.Client, name string) party {
			t.Helper()
			s := c.Semaphore(name)
			return party{
				ask:  func() error { return s.Acquire(t.Context(), 1) },
				give: func() error { return s.Release(t.Context(), 1) },
			}
		},
	},
	"PermitExpirableSemaphore": {
		asks: 2, listens: true,
		java: func(o *redisson.Owner, name string) party {
			s := o.Object("PermitExpirableSemaphore", name)
			s.Call("trySetPermits", 1).OK()
			var id string
			return party{
				ask: func() error {
					f := s.Call("acquire", fixed.Milliseconds(), redisson.Millis)
					err := f.Err()
					if err == nil {
						id = redisson.Get[string](f)
					}
					return err
				},
				give: func() error { return s.Call("release", id).Err() },
			}
		},
		mine: func(t *testing.T, c *holdfast.Client, name string) party {
			t.Helper()
			s := c.ExpirableSemaphore(name)
			var p *rsemaphore.Permit
			return party{
				ask: func() (err error) {
					p, err = s.Acquire(t.Context(), holdfast.Lease(fixed))
					return err
				},
				give: func() error { return p.Release(t.Context()) },
			}
		},
	},
}

func newer(e exchange) exchange {
	e.newOnly = true
	return e
}

// scripts is how many scripts the server has run for all clients.
func scripts(t *testing.T, rdb *redis.Client) int64 {
	t.Helper()
	stats, err := rdb.Info(context.Background(), "commandstats").Result()
	require.NoError(t, err)
	var sum int64
	for line := range strings.Lines(stats) {
		name, rest, _ := strings.Cut(line, ":calls=")
		if name == "cmdstat_eval" || name == "cmdstat_evalsha" {
			calls, _, _ := strings.Cut(rest, ",")
			n, err := strconv.ParseInt(calls, 10, 64)
			require.NoError(t, err)
			sum += n
		}
	}
	return sum
}

// table is where the sides of one exchange sit.
type table struct {
	exchange

	rdb        *redis.Client
	mine, java party
	owner      *redisson.Owner
	name       string
}

func (e exchange) between(t *testing.T, c *holdfast.Client, j *redisson.JVM, rdb *redis.Client, name string) *table {
	t.Helper()
	o := j.Owner(t, name)
	return &table{exchange: e, rdb: rdb, mine: e.mine(t, c, name), java: e.java(o, name), owner: o, name: name}
}

// listened says whether somebody listens for the name, on whichever channel.
func (p *table) listened(t *testing.T) bool {
	t.Helper()
	on, err := p.rdb.PubSubChannels(context.Background(), "*{"+p.name+"}*").Result()
	require.NoError(t, err)
	return len(on) > 0
}

// goWaits has Go ask for what Java has, and answers once it sleeps: it has asked,
// listens, and has asked again.
func (p *table) goWaits(t *testing.T) <-chan error {
	t.Helper()
	before := scripts(t, p.rdb)
	got := start(p.mine.ask)
	redistest.Eventually(t, prompt, func() bool { return p.listened(t) && scripts(t, p.rdb) >= before+2 }, "the Go waiter listens")
	return got
}

// javaWaits is the reverse.
func (p *table) javaWaits(t *testing.T) <-chan error {
	t.Helper()
	before := scripts(t, p.rdb)
	got := start(p.java.ask)
	sleeps := p.owner.Parked
	if p.listens {
		sleeps = func() bool { return p.listened(t) && scripts(t, p.rdb) >= before+2 }
	}
	redistest.Eventually(t, prompt, sleeps, "the Java waiter waits")
	return got
}

// taken waits for what must come by a message, and answers how long it took.
func taken(t *testing.T, got <-chan error, since time.Time) time.Duration {
	t.Helper()
	select {
	case err := <-got:
		require.NoError(t, err)
		return time.Since(since)
	case <-time.After(fixed / 2):
		require.Fail(t, "no message wakes it")
		return 0
	}
}

// Whatever is given back goes to and fro between the sides within 100 ms, by messages
// alone: in the median, as a machine may stop either side for a while. Leases are long
// and fixed, so that nothing else could wake a waiter, and none asks in between.
func TestHandOver(t *testing.T) {
	const rounds, bar = 7, 100 * time.Millisecond
	versions(t, func(t *testing.T, j *redisson.JVM) {
		is := func(version string) bool { return strings.HasSuffix(t.Name(), version) }
		c, sent := connect(t)
		rdb := server.Client(t)
		for what, e := range exchanges {
			if e.newOnly && is(older) {
				continue
			}
			t.Run(what, func(t *testing.T) {
				p := e.between(t, c, j, rdb, strings.ReplaceAll(t.Name(), " ", "_"))
				require.NoError(t, p.java.ask())
				var toGo, toJava []time.Duration
				var asksOfGo, asksOfJava int64
				for range rounds {
					got := p.goWaits(t)
					sent.Reset()
					gave := time.Now()
					require.NoError(t, p.java.give())
					toGo = append(toGo, taken(t, got, gave))
					asksOfGo += sent.Total()

					got = p.javaWaits(t)
					sent.Reset()
					before := scripts(t, rdb)
					gave = time.Now()
					require.NoError(t, p.mine.give())
					toJava = append(toJava, taken(t, got, gave))
					asksOfJava += scripts(t, rdb) - before - sent.Count("evalsha", "eval")
				}
				require.NoError(t, p.java.give())
				for to, all := range map[string][]time.Duration{"Go": toGo, "Java": toJava} {
					slices.Sort(all)
					t.Logf("to %s: median %s, worst %s", to, all[rounds/2], all[rounds-1])
					require.Less(t, all[rounds/2], bar, "to %s", to)
				}
				t.Logf("asked after a release: Go %d, Java %d in %d rounds", asksOfGo, asksOfJava, rounds)
				require.LessOrEqual(t, asksOfGo, p.asks*rounds, "Go polls")
				require.LessOrEqual(t, asksOfJava, p.asks*rounds, "Java polls")
			})
		}

		// All wait at once, Go and then Java: nobody asks while nothing happens.
		for _, side := range []string{"Go", "Java"} {
			t.Run("quiet "+side, func(t *testing.T) {
				waiting := make(map[*table]<-chan error)
				for what, e := range exchanges {
					if e.newOnly && is(older) || side == "Java" && e.goOnly {
						continue
					}
					p := e.between(t, c, j, rdb, strings.ReplaceAll(t.Name()+what, " ", "_"))
					if side == "Go" {
						require.NoError(t, p.java.ask())
						waiting[p] = p.goWaits(t)
					} else {
						require.NoError(t, p.mine.ask())
						waiting[p] = p.javaWaits(t)
					}
				}
				before := scripts(t, rdb)
				<-time.After(watched)
				asked := scripts(t, rdb) - before
				t.Logf("%d waiters asked %d times in %s", len(waiting), asked, watched)
				require.LessOrEqual(t, asked, int64(len(waiting)/2), "somebody polls")
				for p, got := range waiting {
					has, wants := p.java, p.mine
					if side == "Java" {
						has, wants = wants, has
					}
					gave := time.Now()
					require.NoError(t, has.give())
					taken(t, got, gave)
					require.NoError(t, wants.give())
				}
			})
		}
	})
}

// What Redisson says nothing about is learned when the lease that a waiter was told
// is over, and not by asking in between.
func TestReleasesThatRedissonDoesNotTell(t *testing.T) {
	versions(t, func(t *testing.T, j *redisson.JVM) {
		const lease = 2500 * time.Millisecond
		c, sent := connect(t)
		rdb := server.Client(t)
		for what, silently := range map[string]struct {
			channel string
			wants   func(c *holdfast.Client, name string) holdfast.Locker
			take    func(o *redisson.Owner, name string)
			give    func(o *redisson.Owner, name string)
			left    func(o *redisson.Owner, name string) // what is given back at the end
		}{
			"spin unlock": {
				channel: lockChannel, wants: plainLock,
				take: func(o *redisson.Owner, name string) {
					o.Object("SpinLock", name).Call("lock", lease.Milliseconds(), redisson.Millis).OK()
				},
				give: func(o *redisson.Owner, name string) { o.Object("SpinLock", name).Call("unlock").OK() },
			},
			"downgrade": {
				channel: rwChannel, wants: readKind.mine,
				take: func(o *redisson.Owner, name string) {
					o.Object("WriteLock", name).Call("lock", lease.Milliseconds(), redisson.Millis).OK()
				},
				give: func(o *redisson.Owner, name string) {
					o.Object("ReadLock", name).Call("lock", fixed.Milliseconds(), redisson.Millis).OK()
					o.Object("WriteLock", name).Call("unlock").OK()
				},
				left: func(o *redisson.Owner, name string) { o.Object("ReadLock", name).Call("unlock").OK() },
			},
		} {
			t.Run(what, func(t *testing.T) {
				name := strings.ReplaceAll(t.Name(), " ", "_")
				o := j.Owner(t, "a")
				asked := time.Now()
				silently.take(o, name)
				sent.Reset()
				got := waiting(t, rdb, strings.ReplaceAll(silently.channel, "%", name), 0, func() (*holdfast.Hold, error) {
					return silently.wants(c, name).Lock(t.Context())
				})
				redistest.Eventually(t, prompt, func() bool { return sent.Count("evalsha", "eval") >= 2 }, "it has asked twice")
				silently.give(o, name)
				r := receive(t, got, "what is free")
				t.Logf("learned %s after the lock was asked for, by %d questions", r.at.Sub(asked), sent.Count("evalsha", "eval"))
				require.GreaterOrEqual(t, r.at.Sub(asked), lease, "it was told")
				require.LessOrEqual(t, sent.Total(), int64(5), "it polls")
				require.NoError(t, r.hold.Unlock(t.Context()))
				if silently.left != nil {
					silently.left(o, name)
				}
			})
		}

		// A Java spin lock listens to nobody: it asks until it gets in.
		t.Run("a spin lock waits", func(t *testing.T) {
			h, err := c.Lock(t.Name()).Lock(t.Context(), holdfast.Lease(fixed))
			require.NoError(t, err)
			spins := j.Owner(t, "a").Object("SpinLock", t.Name())
			before := scripts(t, rdb)
			waits := spins.Call("lock", fixed.Milliseconds(), redisson.Millis)
			redistest.Eventually(t, prompt, func() bool { return scripts(t, rdb) >= before+5 }, "it asks again and again")
			require.Zero(t, listeners(t, rdb, "redisson_lock__channel:{"+t.Name()+"}"))
			require.NoError(t, h.Unlock(t.Context()))
			waits.OK()
			spins.Call("unlock").OK()
		})
	})
}
