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
	// childEnv makes this binary a Go process of the soak: address and duration.
	childEnv = "HOLDFAST_REDISSON_CHILD"

	permits  = 3
	soakRate = 50
	workers  = 4 // per process and primitive
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

// tally is what a worker did.
type tally struct {
	Granted, Refused int
	Violations       []string
}

func (t *tally) add(o tally) {
	t.Granted += o.Granted
	t.Refused += o.Refused
	t.Violations = append(t.Violations, o.Violations...)
}

// visit enters and leaves the register of a name.
func (t *tally) visit(rdb *redis.Client, name string, r room, token int64) {
	t.Granted++
	key := "guard:" + name
	in, err := guard.Run(context.Background(), rdb, []string{key}, r.as, "enter", r.against, r.max, token).Int()
	if err != nil || in != 1 {
		t.Violations = append(t.Violations, fmt.Sprintf("%s as %s, token %d: %d %v", name, r.as, token, in, err))
		return
	}
	pause(rand.N(3 * time.Millisecond))
	if err := guard.Run(context.Background(), rdb, []string{key}, r.as, "leave", r.against, r.max, 0).Err(); err != nil {
		t.Violations = append(t.Violations, err.Error())
	}
}

func pause(d time.Duration) { <-time.After(d) }

// goWork uses every primitive until the time is over.
func goWork(rdb *redis.Client, c *holdfast.Client, base string, until time.Time) tally {
	var mu sync.Mutex
	var all tally
	var wg sync.WaitGroup
	ctx := context.Background()
	run := func(once func(t *tally) error) {
		for range workers {
			wg.Go(func() {
				var t tally
				for time.Now().Before(until) {
					switch err := once(&t); {
					case errors.Is(err, holdfast.ErrNotAcquired):
						t.Refused++
					case err != nil:
						t.Violations = append(t.Violations, err.Error())
					}
				}
				mu.Lock()
				defer mu.Unlock()
				all.add(t)
			})
		}
	}
	locked := func(l holdfast.Locker, name string, r room) func(t *tally) error {
		return func(t *tally) error {
			h, err := l.TryLock(ctx, holdfast.Wait(rand.N(2*time.Second)))
			if err != nil {
				return err
			}
			t.visit(rdb, name, r, h.Token())
			return h.Unlock(ctx)
		}
	}
	run(locked(c.Lock(base+"lock"), "lock", alone1))
	run(locked(c.FairLock(base+"fair"), "fair", alone1))
	run(locked(c.FencedLock(base+"fenced"), "fenced", alone1))
	run(locked(c.RWLock(base+"rw").Read(), "rw", reads))
	run(locked(c.RWLock(base+"rw").Write(), "rw", writes))
	run(locked(c.MultiLock(c.Lock(base+"m2"), c.Lock(base+"m1")), "multi", alone1))
	run(func(t *tally) error {
		s := c.Semaphore(base + "semaphore")
		if err := s.TryAcquire(ctx, 1, holdfast.Wait(time.Second)); err != nil {
			return err
		}
		t.visit(rdb, "semaphore", threes, 0)
		return s.Release(ctx, 1)
	})
	run(func(t *tally) error {
		p, err := c.ExpirableSemaphore(base+"permits").TryAcquire(ctx, holdfast.Wait(time.Second))
		if err != nil {
			return err
		}
		t.visit(rdb, "permits", threes, 0)
		return p.Release(ctx)
	})
	run(func(t *tally) error {
		err := c.RateLimiter(base+"limiter").TryAcquire(ctx, 1, holdfast.Wait(time.Second))
		if err == nil {
			t.Granted++
			err = rdb.Incr(ctx, "guard:limiter").Err()
		}
		return err
	})
	wg.Wait()
	return all
}

// javaWork is the same by one JVM.
func javaWork(t *testing.T, rdb *redis.Client, j *redisson.JVM, base string, until time.Time) tally {
	var mu sync.Mutex
	var all tally
	var wg sync.WaitGroup
	run := func(what string, once func(o *redisson.Owner, t *tally) error) {
		for i := range workers {
			o := j.Owner(t, what+strconv.Itoa(i))
			wg.Go(func() {
				var did tally
				for time.Now().Before(until) {
					err := once(o, &did)
					var e *redisson.Exception
					if errors.As(err, &e) && e.Class == "RedisTimeoutException" {
						// Redisson gives up on its own subscriptions where a machine is
						// busy. It holds nothing then, or lets it expire.
						did.Refused++
						continue
					}
					if err != nil {
						did.Violations = append(did.Violations, what+": "+err.Error())
						break
					}
				}
				mu.Lock()
				defer mu.Unlock()
				all.add(did)
			})
		}
	}
	// did reads whether a call that answers a boolean or an id was granted.
	did := func(f *redisson.Future, t *tally) (string, bool, error) {
		<-f.Done()
		text := string(f.Answer())
		if err := f.Err(); err != nil {
			return "", false, err
		}
		granted := text != "false" && text != "null"
		if !granted {
			t.Refused++
		}
		return text, granted, nil
	}
	locked := func(kind, name string, r room) {
		run(kind, func(o *redisson.Owner, t *tally) error {
			l := o.Object(kind, base+name)
			if kind == "MultiLock" {
				l = o.MultiLock(base+"m1", base+"m2")
			}
			wait := rand.N(2000)
			var token int64
			if kind == "FencedLock" {
				text, granted, err := did(l.Call("tryLockAndGetToken", wait, 20000, redisson.Millis), t)
				if !granted {
					return err
				}
				if token, err = strconv.ParseInt(text, 10, 64); err != nil {
					return err
				}
			} else if _, granted, err := did(l.Call("tryLock", wait, 20000, redisson.Millis), t); !granted {
				return err
			}
			t.visit(rdb, name, r, token)
			return l.Call("unlock").Err()
		})
	}
	locked("Lock", "lock", alone1)
	locked("FairLock", "fair", alone1)
	locked("FencedLock", "fenced", alone1)
	locked("ReadLock", "rw", reads)
	locked("WriteLock", "rw", writes)
	locked("MultiLock", "multi", alone1)
	run("semaphore", func(o *redisson.Owner, t *tally) error {
		s := o.Object("Semaphore", base+"semaphore")
		if _, granted, err := did(s.Call("tryAcquire", 1, 1000, redisson.Millis), t); !granted {
			return err
		}
		t.visit(rdb, "semaphore", threes, 0)
		return s.Call("release").Err()
	})
	run("permits", func(o *redisson.Owner, t *tally) error {
		s := o.Object("PermitExpirableSemaphore", base+"permits")
		text, granted, err := did(s.Call("tryAcquire", 1000, 20000, redisson.Millis), t)
		if !granted {
			return err
		}
		var id string
		if err := json.Unmarshal([]byte(text), &id); err != nil {
			return err
		}
		t.visit(rdb, "permits", threes, 0)
		return s.Call("release", id).Err()
	})
	run("limiter", func(o *redisson.Owner, t *tally) error {
		_, granted, err := did(o.Object("RateLimiter", base+"limiter").Call("tryAcquire", redisson.D(time.Second)), t)
		if granted {
			t.Granted++
			err = rdb.Incr(context.Background(), "guard:limiter").Err()
		}
		return err
	})
	wg.Wait()
	return all
}

// child is a Go process of the soak.
func child(spec string) error {
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
		jvms = append(jvms, redisson.Start(t, home, redisson.Config{Version: v, Addrs: []string{own.Addr()}}))
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
	wg.Wait()
	for i, did := range tallies {
		t.Logf("%-7s granted %d, refused %d", []string{newest, older, "Go", "Go"}[i], did.Granted, did.Refused)
		require.Positive(t, did.Granted)
		require.Empty(t, did.Violations)
	}
	free, err := c.Semaphore(base + "semaphore").Available(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, permits, free)
	free, err = c.ExpirableSemaphore(base + "permits").Available(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, permits, free)
	granted, err := rdb.Get(t.Context(), "guard:limiter").Int64()
	require.NoError(t, err)
	// So many windows began, and one was under way.
	require.LessOrEqual(t, granted, int64(soakRate)*int64(time.Since(began)/time.Second+2))
	redistest.Eventually(t, 30*time.Second, func() bool { // the longest lease
		n, err := rdb.Exists(t.Context(), base+"lock", base+"fair", base+"fenced", base+"rw", base+"m1", base+"m2").Result()
		return err == nil && n == 0
	}, "something is left locked")
}
