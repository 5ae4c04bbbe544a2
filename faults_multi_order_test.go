package holdfast_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/rlock"
)

// What a crowd of multi locks does in each of two processes.
const (
	multiNames  = 6 // the last two are read-write locks
	multiCrowd  = 10
	multiRounds = 100
)

// multiMember is one member of a random multi lock.
type multiMember struct {
	rlock.Locker
	reads bool
}

// randomMembers are locks of some of the names, in any order, once or twice.
func randomMembers(c *holdfast.Client, name string) (ms []multiMember) {
	for _, i := range rand.Perm(multiNames)[:1+rand.IntN(multiNames)] {
		n := fmt.Sprint(name, i)
		m := multiMember{Locker: c.Lock(n)}
		switch {
		case i >= multiNames-2 && rand.IntN(2) == 0:
			m = multiMember{c.RWLock(n).Read(), true}
		case i >= multiNames-2:
			m.Locker = c.RWLock(n).Write()
		case rand.IntN(3) == 0:
			m.Locker = alone{m.Locker}
		}
		ms = append(ms, m)
	}
	if rand.IntN(4) == 0 {
		ms = append(ms, ms[0])
	}
	return ms
}

// A writer counts so much where a reader counts one.
const oneWriter = 1000

// inside counts in Redis who is inside, by weight, and answers who was there that
// should not have been.
func inside(ctx context.Context, rdb *redis.Client, ms []multiMember, sign int64) error {
	seen := map[string]bool{}
	counts := map[*redis.IntCmd]multiMember{}
	pipe := rdb.Pipeline()
	for _, m := range ms {
		if seen[m.Name()] {
			continue
		}
		seen[m.Name()] = true
		weight := int64(oneWriter)
		if m.reads {
			weight = 1
		}
		counts[pipe.IncrBy(ctx, "inside:"+m.Name(), sign*weight)] = m
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	for cmd, m := range counts {
		if n := cmd.Val(); sign > 0 && (m.reads && n >= oneWriter || !m.reads && n != oneWriter) {
			return fmt.Errorf("%s: %d inside", m.Name(), n)
		}
	}
	return nil
}

// multiRace has a crowd take random multi locks, round after round, and answers the
// longest time that one waited.
func multiRace(rdb *redis.Client, name string) (time.Duration, error) {
	c, err := holdfast.New(rdb, holdfast.WithLease(never), holdfast.WithPollFallback(never))
	if err != nil {
		return 0, err
	}
	var wait longest
	var mu sync.Mutex
	var failed error
	var wg sync.WaitGroup
	for range multiCrowd {
		wg.Go(func() {
			ctx := context.Background()
			for range multiRounds {
				ms := randomMembers(c, name)
				var ls []rlock.Locker
				for _, m := range ms {
					ls = append(ls, m.Locker)
				}
				start := time.Now()
				h, err := c.MultiLock(ls...).Lock(ctx)
				wait.note(time.Since(start))
				if err == nil {
					err = inside(ctx, rdb, ms, 1)
				}
				if err == nil {
					err = inside(ctx, rdb, ms, -1)
				}
				if err == nil {
					err = h.Unlock(ctx)
				}
				if err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	if failed != nil {
		return 0, failed
	}
	return wait.value(), c.Close()
}

func multiChild(rdb *redis.Client, name string) error {
	fmt.Println("ready")
	longest, err := multiRace(rdb, name)
	if err == nil {
		fmt.Println("longest", longest)
	}
	return err
}

// Multi locks over the same names in any order, in two processes, all get on, and
// keep each other out.
func TestA37OppositeOrder(t *testing.T) {
	other := startChild(t, "multi", server.Addr(), t.Name())
	require.Equal(t, "ready", other.line(t))
	start := time.Now()
	ours, err := multiRace(server.Client(t, func(o *redis.Options) { o.PoolSize = 2 * multiCrowd }), t.Name())
	require.NoError(t, err)
	text, ok := strings.CutPrefix(other.line(t), "longest ")
	require.True(t, ok, text)
	theirs, err := time.ParseDuration(text)
	require.NoError(t, err)
	t.Logf("%d rounds in %v; the longest waits: %v and %v", 2*multiCrowd*multiRounds, time.Since(start), ours, theirs)
	require.Less(t, max(ours, theirs), 20*time.Second)
	for i := range multiNames {
		require.False(t, exists(t, server.Client(t), fmt.Sprint(t.Name(), i)))
	}
}

// Two that take the same two names in opposite order, on two servers, get on.
func TestA37TwoServers(t *testing.T) {
	f := newThree(t, holdfast.WithLease(never), holdfast.WithPollFallback(never))
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			c := connect(t)
			for range 50 {
				a, b := f.locks[i%2], f.locks[1-i%2]
				if err := c.MultiLock(a, b).Do(t.Context(), func(ctx context.Context) error { return ctx.Err() }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
