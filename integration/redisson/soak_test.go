package redisson_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/redisson"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

const (
	// soakEnv is how long the mixed soak lasts: 10 s by default.
	soakEnv = "HOLDFAST_REDISSON_SOAK"
	// childEnv makes this binary another process: one of the soak (address, names, end),
	// or one that holds locks ("hold", address, name).
	childEnv = "HOLDFAST_REDISSON_CHILD"

	permits  = 3
	soakRate = 50
	workers  = 4 // per process and primitive
	// processes are two JVMs and two of Go.
	processes = 4

	// soakLease is that of holds that a JVM renews, and soakLong is how long some of
	// them last, unless the soak itself is short: without renewal others would come in
	// meanwhile.
	soakLease = 10 * time.Second
	soakLong  = soakLease + 2*time.Second
	// oneIn is how many visits there are to one that lasts so long.
	oneIn = 400
	// answers bounds a Java call: more than the time for which any of them waits.
	answers = time.Minute
)

// guard is a register that whoever holds a primitive enters and leaves. It knows
// how many are in, and refuses one too many, or a token that isn't larger.
var guard = redis.NewScript(`
	local n = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or '0')
	if ARGV[2] == 'leave' then
	  redis.call('HINCRBY', KEYS[1], ARGV[1], -1)
	  return 1
	end
	local others = tonumber(redis.call('HGET', KEYS[1], ARGV[3]) or '0')
	if n >= tonumber(ARGV[4]) or others > 0 then return 0 end
	if ARGV[5] ~= '0' then
	  if tonumber(redis.call('HGET', KEYS[1], 'token') or '0') >= tonumber(ARGV[5]) then return -1 end
	  redis.call('HSET', KEYS[1], 'token', ARGV[5])
	end
	redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
	redis.call('HINCRBY', KEYS[1], 'total', 1)
	return 1`)

// room is what one primitive lets in.
type room struct {
	as, against string // readers and writers keep each other out
	max         int
}

var (
	alone1 = room{"in", "", 1}
	reads  = room{"readers", "writers", 1 << 20}
	writes = room{"writers", "readers", 1}
	threes = room{"in", "", permits}
)

// tally is what a side did: by kind, and what it should not have seen.
type tally struct {
	Kinds      map[string]did
	Violations []string
}

// did is how often one kind was granted and refused, and how often nobody knows what
// became of a request to give it back. Long are those that outlasted a lease.
type did struct{ Granted, Refused, Unknown, Long int }

func (t *tally) add(o tally) {
	for kind, d := range o.Kinds {
		t.count(kind, d)
	}
	t.Violations = append(t.Violations, o.Violations...)
}

func (t *tally) count(kind string, d did) {
	if t.Kinds == nil {
		t.Kinds = make(map[string]did)
	}
	sum := t.Kinds[kind]
	t.Kinds[kind] = did{sum.Granted + d.Granted, sum.Refused + d.Refused, sum.Unknown + d.Unknown, sum.Long + d.Long}
}

// unknown is the error of a call that gives something back and had no answer: both
// sides give up on requests where a machine is too busy. It may have been done.
type unknown struct{ error }

// soaker is one worker.
type soaker struct {
	tally

	rdb  *redis.Client
	kind string
	long bool // some visits are
}

func (t *soaker) violation(format string, args ...any) {
	t.Violations = append(t.Violations, t.kind+": "+fmt.Sprintf(format, args...))
}

// visit enters and leaves the register of a name. A hold that is renewed may take long.
func (t *soaker) visit(name string, r room, token int64, renewed bool) {
	t.count(t.kind, did{Granted: 1})
	key := "guard:" + name
	in, err := guard.Run(context.Background(), t.rdb, []string{key}, r.as, "enter", r.against, r.max, token).Int()
	if err != nil || in != 1 {
		t.violation("%s as %s, token %d: %d %v", name, r.as, token, in, err)
		return
	}
	if renewed && t.long && rand.N(oneIn) == 0 {
		t.count(t.kind, did{Long: 1})
		pause(soakLong)
	}
	pause(rand.N(3 * time.Millisecond))
	if err := guard.Run(context.Background(), t.rdb, []string{key}, r.as, "leave", r.against, r.max, 0).Err(); err != nil {
		t.violation("%v", err)
	}
}

// gate is a latch for each round, which opens when every process has counted down:
// nobody gets through before.
func (t *soaker) gate(round *int, until time.Time, set, countDown func(name string) error, await func(name string) (bool, error)) error {
	name := fmt.Sprint("latch-", *round)
	counted := "guard:" + name
	if err := set(name); err != nil {
		return err
	}
	if err := t.rdb.Incr(context.Background(), counted).Err(); err != nil {
		return err
	}
	if err := countDown(name); err != nil {
		return err
	}
	*round++
	for time.Now().Before(until) {
		open, err := await(name)
		if err != nil {
			return err
		}
		n, err := t.rdb.Get(context.Background(), counted).Int()
		if err != nil {
			return err
		}
		if open {
			t.count(t.kind, did{Granted: 1})
			if n != processes {
				t.violation("round %d is open after %d of %d", *round, n, processes)
			}
			return nil
		}
		t.count(t.kind, did{Refused: 1})
	}
	return nil
}

func pause(d time.Duration) { <-time.After(d) }

// workersOf is how many a process has. Java readers don't stand back for writers: with
// more of them, who pause less, no writer would ever get in.
func workersOf(kind string) int {
	if kind == "ReadLock" {
		return 1
	}
	return workers
}

// crew runs workers and adds up what they did.
type crew struct {
	rdb   *redis.Client
	until time.Time
	long  bool
	wg    sync.WaitGroup
	mu    sync.Mutex
	all   tally
}

// run has one worker go on until the time is over, or it sees what it should not.
func (c *crew) run(kind string, once func(t *soaker) error) {
	c.wg.Go(func() {
		t := soaker{rdb: c.rdb, kind: kind, long: c.long}
		for time.Now().Before(c.until) && len(t.Violations) == 0 {
			if kind == "ReadLock" {
				pause(rand.N(60 * time.Millisecond))
			}
			err := once(&t)
			var lost unknown
			var java *redisson.Exception
			switch {
			case err == nil:
			case errors.As(err, &lost):
				t.count(kind, did{Unknown: 1})
			case errors.Is(err, holdfast.ErrNotAcquired),
				// A wait that was too short for this machine.
				errors.Is(err, holdfast.ErrUnavailable),
				// It couldn't subscribe, or its request had no answer: it holds nothing,
				// or lets it expire.
				errors.As(err, &java) && java.Class == "RedisTimeoutException":
				t.count(kind, did{Refused: 1})
			default:
				t.violation("%v", err)
			}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.all.add(t.tally)
	})
}

func (c *crew) wait() tally {
	c.wg.Wait()
	return c.all
}

// given is the end of a call that gives something back.
func given(err error) error {
	if errors.Is(err, holdfast.ErrUnavailable) || errors.Is(err, holdfast.ErrUncertain) {
		return unknown{err}
	}
	return err
}

// goWork uses every primitive until the time is over.
func goWork(rdb *redis.Client, c *holdfast.Client, base string, until time.Time) tally {
	crew := crew{rdb: rdb, until: until}
	ctx := context.Background()
	run := func(kind string, once func(t *soaker) error) {
		for range workersOf(kind) {
			crew.run(kind, once)
		}
	}
	locked := func(kind string, l holdfast.Locker, name string, r room, again bool) {
		run(kind, func(t *soaker) error {
			h, err := l.TryLock(ctx, holdfast.Wait(rand.N(2*time.Second)))
			if err != nil {
				return err
			}
			if again && rand.N(4) == 0 { // it comes in again, and is in until the last unlock
				inner, err := l.TryLock(h.Context())
				if err != nil {
					return fmt.Errorf("re-entry: %s", err) //nolint:errorlint // a refusal is a fault here
				}
				if err := given(inner.Unlock(ctx)); err != nil {
					return err
				}
			}
			t.visit(name, r, h.Token(), false)
			return given(h.Unlock(ctx))
		})
	}
	locked("Lock", c.Lock(base+"lock"), "lock", alone1, true)
	locked("FairLock", c.FairLock(base+"fair"), "fair", alone1, true)
	locked("FencedLock", c.FencedLock(base+"fenced"), "fenced", alone1, false)
	locked("ReadLock", c.RWLock(base+"rw").Read(), "rw", reads, false)
	locked("WriteLock", c.RWLock(base+"rw").Write(), "rw", writes, true)
	locked("MultiLock", c.MultiLock(c.Lock(base+"m2"), c.Lock(base+"m1")), "multi", alone1, false)
	run("semaphore", func(t *soaker) error {
		s := c.Semaphore(base + "semaphore")
		if err := s.TryAcquire(ctx, 1, holdfast.Wait(time.Second)); err != nil {
			return err
		}
		t.visit("semaphore", threes, 0, false)
		return given(s.Release(ctx, 1))
	})
	run("permits", func(t *soaker) error {
		p, err := c.ExpirableSemaphore(base+"permits").TryAcquire(ctx, holdfast.Wait(time.Second))
		if err != nil {
			return err
		}
		t.visit("permits", threes, 0, false)
		return given(p.Release(ctx))
	})
	run("limiter", func(t *soaker) error {
		err := c.RateLimiter(base+"limiter").TryAcquire(ctx, 1, holdfast.Wait(time.Second))
		if err == nil {
			t.count(t.kind, did{Granted: 1})
			err = rdb.Incr(ctx, "guard:limiter").Err()
		}
		return err
	})
	round := 0
	crew.run("latch", func(t *soaker) error {
		return t.gate(&round, until,
			func(name string) error {
				_, err := c.Latch(base+name).TrySetCount(ctx, processes)
				return err
			},
			func(name string) error { return given(c.Latch(base + name).CountDown(ctx)) },
			func(name string) (bool, error) {
				err := c.Latch(base+name).TryAwait(ctx, holdfast.Wait(time.Second))
				if errors.Is(err, holdfast.ErrNotAcquired) || errors.Is(err, holdfast.ErrUnavailable) {
					return false, nil
				}
				return err == nil, err
			})
	})
	return crew.wait()
}

// ended waits for the end of a Java call, and answers what it returned.
func ended(f *redisson.Future) (string, error) {
	select {
	case <-f.Done():
		return string(f.Answer()), f.Err()
	case <-time.After(answers):
		return "", errors.New("a Java call hangs")
	}
}

// got says whether a call that answers a boolean or an id was granted.
func (t *soaker) got(f *redisson.Future) (string, bool, error) {
	text, err := ended(f)
	if err != nil {
		return "", false, err
	}
	granted := text != "false" && text != "null"
	if !granted {
		t.count(t.kind, did{Refused: 1})
	}
	return text, granted, nil
}

// gave is the end of a call that gives something back.
func gave(f *redisson.Future) error {
	_, err := ended(f)
	var e *redisson.Exception
	if errors.As(err, &e) && e.Class == "RedisTimeoutException" {
		return unknown{err}
	}
	return err
}

// javaWork is the same by one JVM.
func javaWork(t *testing.T, rdb *redis.Client, j *redisson.JVM, base string, until time.Time) tally {
	crew := crew{rdb: rdb, until: until, long: time.Until(until) > 4*soakLong}
	run := func(kind string, once func(o *redisson.Owner, t *soaker) error) {
		for i := range workersOf(kind) {
			o := j.Owner(t, kind+strconv.Itoa(i))
			crew.run(kind, func(t *soaker) error { return once(o, t) })
		}
	}
	locked := func(kind, name string, r room, again bool) {
		run(kind, func(o *redisson.Owner, t *soaker) error {
			l := o.Object(kind, base+name)
			if kind == "MultiLock" {
				l = o.MultiLock(base+"m1", base+"m2")
			}
			wait := rand.N(2000)
			renewed := rand.N(2) == 0 // without a lease of its own
			var token int64
			switch {
			case kind == "FencedLock":
				renewed = false
				text, granted, err := t.got(l.Call("tryLockAndGetToken", wait, 20000, redisson.Millis))
				if !granted {
					return err
				}
				if token, err = strconv.ParseInt(text, 10, 64); err != nil {
					return err
				}
			case renewed:
				if _, granted, err := t.got(l.Call("tryLock", wait, redisson.Millis)); !granted {
					return err
				}
			default:
				if _, granted, err := t.got(l.Call("tryLock", wait, 20000, redisson.Millis)); !granted {
					return err
				}
			}
			// A re-entry of a hold with a lease would leave the watchdog's lease without it.
			if again && renewed && rand.N(4) == 0 {
				text, err := ended(l.Call("tryLock"))
				if err == nil && text != "true" {
					err = errors.New("re-entry is refused")
				}
				if err == nil {
					err = gave(l.Call("unlock"))
				}
				if err != nil {
					return err
				}
			}
			t.visit(name, r, token, renewed)
			return gave(l.Call("unlock"))
		})
	}
	locked("Lock", "lock", alone1, true)
	locked("FairLock", "fair", alone1, true)
	locked("FencedLock", "fenced", alone1, false)
	locked("ReadLock", "rw", reads, false)
	locked("WriteLock", "rw", writes, true)
	locked("MultiLock", "multi", alone1, false)
	run("semaphore", func(o *redisson.Owner, t *soaker) error {
		s := o.Object("Semaphore", base+"semaphore")
		_, granted, err := t.got(s.Call("tryAcquire", 1, 1000, redisson.Millis))
		var e *redisson.Exception
		if errors.As(err, &e) && e.Class == "RedisTimeoutException" {
			return unknown{err} // a permit may be gone: nothing lets it expire
		}
		if !granted {
			return err
		}
		t.visit("semaphore", threes, 0, false)
		return gave(s.Call("release"))
	})
	run("permits", func(o *redisson.Owner, t *soaker) error {
		s := o.Object("PermitExpirableSemaphore", base+"permits")
		text, granted, err := t.got(s.Call("tryAcquire", 1000, 20000, redisson.Millis))
		if !granted {
			return err
		}
		var id string
		if err := json.Unmarshal([]byte(text), &id); err != nil {
			return err
		}
		t.visit("permits", threes, 0, false)
		return gave(s.Call("release", id))
	})
	run("limiter", func(o *redisson.Owner, t *soaker) error {
		_, granted, err := t.got(o.Object("RateLimiter", base+"limiter").Call("tryAcquire", redisson.D(time.Second)))
		if granted {
			t.count(t.kind, did{Granted: 1})
			err = rdb.Incr(context.Background(), "guard:limiter").Err()
		}
		return err
	})
	round := 0
	o := j.Owner(t, "latch")
	crew.run("latch", func(t *soaker) error {
		latch := func(name string) *redisson.Object { return o.Object("CountDownLatch", base+name) }
		return t.gate(&round, until,
			func(name string) error {
				_, err := ended(latch(name).Call("trySetCount", processes))
				return err
			},
			func(name string) error { return gave(latch(name).Call("countDown")) },
			func(name string) (bool, error) {
				text, err := ended(latch(name).Call("await", 1000, redisson.Millis))
				return text == "true", err
			})
	})
	return crew.wait()
}

// child is a Go process of the soak.
func child(spec string) error {
	if rest, ok := strings.CutPrefix(spec, "hold "); ok {
		addr, name, _ := strings.Cut(rest, " ")
		return hold(addr, name)
	}
	var addr, base, until string
	if _, err := fmt.Sscan(spec, &addr, &base, &until); err != nil {
		return err
	}
	end, err := time.Parse(time.RFC3339Nano, until)
	if err != nil {
		return err
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 64})
	defer rdb.Close()
	c, err := holdfast.New(rdb)
	if err != nil {
		return err
	}
	did := goWork(rdb, c, base, end)
	return errors.Join(json.NewEncoder(os.Stdout).Encode(did), c.Close())
}

// Two JVMs and two Go processes use all primitives on the same names. Whoever is
// in enters a register that only lets in whom the primitive may.
func TestSoak(t *testing.T) {
	lasts := 10 * time.Second
	if s := os.Getenv(soakEnv); s != "" {
		var err error
		lasts, err = time.ParseDuration(s)
		require.NoError(t, err)
	}
	own := redistest.Start(t)
	rdb := own.Client(t, func(o *redis.Options) { o.PoolSize = 64 })
	c, err := holdfast.New(rdb)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	const base = "soak-"
	_, err = c.Semaphore(base+"semaphore").TrySetPermits(t.Context(), permits)
	require.NoError(t, err)
	_, err = c.ExpirableSemaphore(base+"permits").TrySetPermits(t.Context(), permits)
	require.NoError(t, err)
	_, err = c.RateLimiter(base+"limiter").TrySetRate(t.Context(), 0, soakRate, time.Second)
	require.NoError(t, err)
	var jvms []*redisson.JVM
	for _, v := range []string{newest, older} {
		jvms = append(jvms, redisson.Start(t, home, redisson.Config{Version: v, Watchdog: soakLease, Addrs: []string{own.Addr()}}))
	}

	began := time.Now()
	until := began.Add(lasts)
	tallies := make([]tally, 2*len(jvms))
	var wg sync.WaitGroup
	for i, j := range jvms {
		wg.Go(func() { tallies[i] = javaWork(t, rdb, j, base, until) })
		wg.Go(func() {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), childEnv+"="+own.Addr()+" "+base+" "+until.Format(time.RFC3339Nano))
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err == nil {
				err = json.Unmarshal(out, &tallies[len(jvms)+i])
			}
			if err != nil {
				t.Errorf("a Go process: %v", err)
			}
		})
	}
	over := make(chan struct{})
	go func() {
		wg.Wait()
		close(over)
	}()
	select {
	case <-over:
	case <-time.After(lasts + 2*answers):
		require.Fail(t, "somebody goes on when the time is over")
	}
	sides := map[string]*tally{"Java": {}, "Go": {}}
	kinds := make(map[string]bool)
	for i, did := range tallies {
		who := []string{newest, older, "Go", "Go"}[i]
		sides[[]string{"Java", "Java", "Go", "Go"}[i]].add(did)
		for kind, n := range did.Kinds {
			t.Logf("%-7s %-10s granted %6d, refused %5d, unknown %d; %d lasted longer than a lease", who, kind, n.Granted, n.Refused, n.Unknown, n.Long)
			kinds[kind] = true
		}
		require.Empty(t, did.Violations)
	}
	require.Len(t, kinds, 10)
	for kind := range kinds {
		for side, did := range sides {
			require.Positive(t, did.Kinds[kind].Granted, "%s never got in: %s", side, kind)
		}
	}
	free, err := c.Semaphore(base + "semaphore").Available(t.Context())
	require.NoError(t, err)
	if lost := sides["Java"].Kinds["semaphore"].Unknown + sides["Go"].Kinds["semaphore"].Unknown; lost == 0 {
		require.EqualValues(t, permits, free)
	} else { // each of them was taken or given back, or it was not
		require.GreaterOrEqual(t, free, int64(permits-lost))
	}
	redistest.Eventually(t, 30*time.Second, func() bool { // the longest lease
		free, err := c.ExpirableSemaphore(base + "permits").Available(t.Context())
		return err == nil && free == permits
	}, "permits are missing")
	granted, err := rdb.Get(t.Context(), "guard:limiter").Int64()
	require.NoError(t, err)
	// So many windows began, and one was under way.
	require.LessOrEqual(t, granted, int64(soakRate)*int64(time.Since(began)/time.Second+2))
	redistest.Eventually(t, 30*time.Second, func() bool { // the longest lease
		n, err := rdb.Exists(t.Context(), base+"lock", base+"fair", base+"fenced", base+"rw", base+"m1", base+"m2").Result()
		return err == nil && n == 0
	}, "something is left locked")
}
