package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rlock"
)

// scripts is how many scripts a server has run.
func scripts(t testing.TB, rdb *redis.Client) int {
	t.Helper()
	info, err := rdb.InfoMap(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	n := 0
	for name, stats := range info["Commandstats"] {
		var calls int
		if name == "cmdstat_evalsha" || name == "cmdstat_eval" {
			_, err := fmt.Sscanf(stats, "calls=%d", &calls)
			require.NoError(t, err)
			n += calls
		}
	}
	return n
}

// stage is what a late copy meets: a lock of one owner, and somebody else.
type stage struct {
	t      *testing.T
	ctx    context.Context // the owner's
	l      *rlock.Lock     // through the proxy
	other  *rlock.Lock     // another client's
	holds  []*holdfast.Hold
	theirs *holdfast.Hold
	handle string
	c      *holdfast.Client
}

func (s *stage) lock() {
	s.t.Helper()
	h, err := s.l.TryLock(s.ctx)
	require.NoError(s.t, err)
	s.holds = append(s.holds, h)
}

func (s *stage) unlock() {
	s.t.Helper()
	last := len(s.holds) - 1
	require.NoError(s.t, s.holds[last].Unlock(s.ctx))
	s.holds = s.holds[:last]
}

func (s *stage) force() {
	s.t.Helper()
	opened, err := s.l.ForceUnlock(s.ctx)
	require.NoError(s.t, err)
	require.True(s.t, opened)
	s.holds, s.theirs = nil, nil
}

func (s *stage) extend() {
	s.t.Helper()
	require.NoError(s.t, s.holds[0].Extend(s.ctx, time.Hour))
}

func (s *stage) detach() {
	s.t.Helper()
	var err error
	s.handle, err = s.holds[0].Detach()
	require.NoError(s.t, err)
	s.holds = nil
}

func (s *stage) resume() {
	s.t.Helper()
	h, err := s.c.Resume(s.ctx, s.handle)
	require.NoError(s.t, err)
	s.holds = append(s.holds, h)
}

func (s *stage) othersLock() {
	s.t.Helper()
	var err error
	s.theirs, err = s.other.TryLock(s.ctx)
	require.NoError(s.t, err)
}

func (s *stage) othersUnlock() {
	s.t.Helper()
	require.NoError(s.t, s.theirs.Unlock(s.ctx))
	s.theirs = nil
}

// A first copy that stuck on its way, was sent again, and arrives after any
// later step, changes nothing any more.
func TestLateCopies(t *testing.T) {
	type steps = []func(*stage)
	lock, unlock, force := (*stage).lock, (*stage).unlock, (*stage).force
	taken, freed := (*stage).othersLock, (*stage).othersUnlock
	later := map[string]steps{ // after a step that leaves it free
		"nothing": nil, "lock": {lock}, "lock twice": {lock, lock},
		"somebody else": {taken}, "somebody else, then lock": {taken, freed, lock},
		"lock, detach": {lock, (*stage).detach}, "lock, unlock": {lock, unlock},
	}
	for what, c := range map[string]struct {
		file   string
		before steps
		late   func(*stage)
		after  map[string]steps
	}{
		"acquire": {"acquire.lua", nil, lock, map[string]steps{
			"nothing": nil, "enter": {lock}, "unlock": {unlock}, "unlock, lock": {unlock, lock},
			"enter, leave": {lock, unlock}, "unlock, somebody else": {unlock, taken}, "force": {force},
			"force, somebody else": {force, taken}, "detach": {(*stage).detach}, "extend": {(*stage).extend},
			"detach, resume": {(*stage).detach, (*stage).resume},
		}},
		"extend": {"extend.lua", steps{lock}, (*stage).extend, map[string]steps{
			"nothing": nil, "unlock": {unlock}, "unlock, lock": {unlock, lock}, "enter": {lock},
			"unlock, somebody else": {unlock, taken}, "force, lock": {force, lock}, "detach": {(*stage).detach},
		}},
		"enter": {"acquire.lua", steps{lock}, lock, map[string]steps{
			"nothing": nil, "leave": {unlock}, "unlock": {unlock, unlock}, "unlock, lock": {unlock, unlock, lock},
			"enter": {lock}, "force, somebody else": {force, taken}, "force, lock": {force, lock},
			"unlock, somebody else": {unlock, unlock, taken}, "leave, detach": {unlock, (*stage).detach},
		}},
		"release": {"release.lua", steps{lock}, unlock, later},
		"leave": {"release.lua", steps{lock, lock}, unlock, map[string]steps{
			"nothing": nil, "enter": {lock}, "unlock": {unlock}, "unlock, lock": {unlock, lock},
			"unlock, lock twice": {unlock, lock, lock}, "enter twice": {lock, lock}, "force, lock": {force, lock},
			"force, lock twice": {force, lock, lock}, "unlock, somebody else": {unlock, taken},
		}},
		"force":           {"force.lua", steps{lock}, force, later},
		"force of theirs": {"force.lua", steps{taken}, force, later},
		"detach":          {"transfer.lua", steps{lock}, (*stage).detach, map[string]steps{"nothing": nil, "resume": {(*stage).resume}, "resume, unlock": {(*stage).resume, unlock}, "resume, unlock, lock": {(*stage).resume, unlock, lock}, "resume, detach": {(*stage).resume, (*stage).detach}}},
		"resume":          {"transfer.lua", steps{lock, (*stage).detach}, (*stage).resume, map[string]steps{"nothing": nil, "unlock": {unlock}, "unlock, lock": {unlock, lock}, "enter": {lock}, "detach": {(*stage).detach}, "force, lock": {force, lock}, "unlock, somebody else": {unlock, taken}}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			rdb := srv.Client(t)
			p, client := connectVia(t, srv, readTimeout(60*time.Millisecond), holdfast.WithLease(never))
			other := newClient(t, srv.Client(t), holdfast.WithLease(never))
			for after, steps := range c.after {
				t.Run(after, func(t *testing.T) {
					s := &stage{t: t, ctx: holdfast.WithOwner(t.Context()), c: client, l: client.Lock(t.Name()), other: other.Lock(t.Name())}
					for _, step := range c.before {
						step(s)
					}
					arrives := make(chan struct{})
					copied := p.Add(faultproxy.Rule{Match: sending(t, c.file), Times: 1, Do: faultproxy.HoldRequest(arrives)})
					c.late(s)
					<-copied.Done()
					for _, step := range steps {
						step(s)
					}
					state, ends := rdb.HGetAll(t.Context(), t.Name()).Val(), rdb.PExpireTime(t.Context(), t.Name()).Val()
					ran := scripts(t, rdb)
					close(arrives)
					eventually(t, "the late copy runs", func() bool { return scripts(t, rdb) > ran })
					require.Equal(t, state, rdb.HGetAll(t.Context(), t.Name()).Val())
					require.Equal(t, ends, rdb.PExpireTime(t.Context(), t.Name()).Val())
					for range s.holds {
						require.NoError(t, s.holds[len(s.holds)-1].Context().Err())
						s.unlock()
					}
					if s.theirs != nil {
						s.othersUnlock()
					}
				})
			}
		})
	}
}

// A copy that is sent again after the first one has let somebody else in leaves
// that one alone.
func TestResendLeavesTheNextHolderAlone(t *testing.T) {
	rdb := server.Client(t)
	for what, c := range map[string]struct {
		file string
		call func(l *rlock.Lock, h *holdfast.Hold) error
	}{
		"release": {"release.lua", func(_ *rlock.Lock, h *holdfast.Hold) error { return h.Unlock(t.Context()) }},
		"force": {"force.lua", func(l *rlock.Lock, _ *holdfast.Hold) error {
			opened, err := l.ForceUnlock(t.Context())
			require.True(t, opened)
			return err
		}},
	} {
		t.Run(what, func(t *testing.T) {
			p, client := connectVia(t, server, readTimeout(300*time.Millisecond), holdfast.WithLease(never))
			l := client.Lock(t.Name())
			h, err := l.Lock(t.Context())
			require.NoError(t, err)
			next := async(func() (*holdfast.Hold, error) { return connect(t).Lock(t.Name()).Lock(t.Context()) })
			awaitWaiter(t, rdb, t.Name())
			p.Add(faultproxy.Rule{Match: sending(t, c.file), Times: 1, Do: faultproxy.DropReply})
			again := p.Add(faultproxy.Rule{Match: sending(t, c.file)})
			require.NoError(t, c.call(l, h))
			require.Positive(t, again.Hits())
			r := await(t, next, prompt, "somebody else is let in")
			require.NoError(t, r.err)
			require.Equal(t, map[string]string{r.hold.Owner(): "1"}, rdb.HGetAll(t.Context(), t.Name()).Val())
			require.NoError(t, r.hold.Unlock(t.Context()))
		})
	}
}

// A call that gave up leaves nothing behind that could do harm when it arrives
// at last: neither a hold that nobody has, nor the end of a later one.
func TestLateCopyOfACallThatGaveUp(t *testing.T) {
	for what, c := range map[string]struct {
		file string
		call func(s *stage) error
	}{
		"acquire": {"acquire.lua", func(s *stage) error {
			_, err := s.l.TryLock(s.ctx)
			return err
		}},
		"release": {"release.lua", func(s *stage) error {
			s.lock()
			return s.holds[0].Unlock(s.ctx)
		}},
		"detach": {"transfer.lua", func(s *stage) error {
			s.lock()
			_, err := s.holds[0].Detach()
			return err
		}},
		"resume": {"transfer.lua", func(s *stage) error {
			h, err := s.other.TryLock(s.ctx)
			require.NoError(s.t, err)
			s.handle, err = h.Detach()
			require.NoError(s.t, err)
			_, err = s.c.Resume(s.ctx, s.handle)
			return err
		}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel() // a server of its own, and mostly waiting
			srv := redistest.Start(t)
			rdb := srv.Client(t)
			p, client := connectVia(t, srv, readTimeout(60*time.Millisecond), holdfast.WithLease(never), holdfast.WithCommandTimeout(2*time.Second))
			other := newClient(t, srv.Client(t), holdfast.WithLease(never))
			s := &stage{t: t, ctx: holdfast.WithOwner(t.Context()), c: client, l: client.Lock(what), other: other.Lock(what)}
			arrives := make(chan struct{})
			p.Add(faultproxy.Rule{Match: sending(t, c.file), Times: 1, Do: faultproxy.HoldRequest(arrives)})
			rest := p.Add(faultproxy.Rule{Match: anyScript, Do: faultproxy.DropRequest})
			if what == "release" || what == "detach" { // its own lock comes through
				rest.Remove()
				rest = p.Add(faultproxy.Rule{Match: sending(t, c.file), Do: faultproxy.DropRequest})
			}
			err := c.call(s)
			require.Error(t, err)
			rest.Remove()

			if what == "resume" {
				h, err := client.Resume(s.ctx, s.handle, holdfast.Lease(time.Hour))
				require.NoError(t, err, "the handle stays good")
				require.NoError(t, h.Unlock(t.Context()))
			}
			h, err := s.l.TryLock(s.ctx, holdfast.Wait(prompt))
			require.NoError(t, err)
			state, ran := rdb.HGetAll(t.Context(), what).Val(), scripts(t, rdb)
			require.Equal(t, map[string]string{h.Owner(): "1"}, state)
			close(arrives)
			eventually(t, "the late copy runs", func() bool { return scripts(t, rdb) > ran })
			require.Equal(t, state, rdb.HGetAll(t.Context(), what).Val())
			require.NoError(t, h.Unlock(t.Context()))
			require.False(t, exists(t, rdb, what))
		})
	}
}

// The marker of a request serves the next one if no copy of it can be under way. A
// name that stands for a copy, in Redis or on its way there, never comes again.
func TestMarkerServesAgain(t *testing.T) {
	p, c := connectVia(t, server, readTimeout(300*time.Millisecond), holdfast.WithLease(never))
	var mu sync.Mutex
	var sent []string // markers, in order
	p.Add(faultproxy.Rule{Match: func(cmd []string) bool {
		if anyScript(cmd) {
			mu.Lock()
			defer mu.Unlock()
			sent = append(sent, cmd[4])
		}
		return false
	}})
	markers := func() []string {
		mu.Lock()
		defer mu.Unlock()
		defer func() { sent = nil }()
		return sent
	}
	l := c.Lock(t.Name())
	pair := func() {
		t.Helper()
		h, err := l.TryLock(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Unlock(t.Context()))
	}
	pair()
	pair()
	first := markers()
	require.Len(t, first, 4)
	used := map[string]bool{}
	require.Equal(t, []string{first[0], first[0], first[0], first[0]}, first)

	for copied, file := range []string{"acquire.lua", "release.lua"} {
		p.Add(faultproxy.Rule{Match: sending(t, file), Times: 1, Do: faultproxy.DropReply})
		pair()
		all := markers()
		require.Len(t, all, 3)
		require.Equal(t, all[copied], all[copied+1], "a copy bears its request's marker")
		used[all[copied]] = true
		pair()
		next := markers()
		require.NotContains(t, used, next[0], "after %s", file)
		require.Equal(t, next[0], next[1])
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	arrives := make(chan struct{})
	late := p.Add(faultproxy.Rule{Match: sending(t, "acquire.lua"), Times: 1, Do: faultproxy.HoldRequest(arrives)})
	left := async(func() (*holdfast.Hold, error) { return l.Lock(ctx) })
	<-late.Done()
	cancel()
	require.ErrorIs(t, await(t, left, prompt, "the caller leaves").err, context.Canceled)
	pair()
	all := markers()
	require.NotContains(t, all[1:], all[0], "its caller has left")
	rdb := server.Client(t)
	eventually(t, "what was asked for is undone", func() bool { return exists(t, rdb, all[0]) })
	pair()
	require.NotContains(t, markers(), all[0])
	close(arrives)
}

// prefixing is a hook that puts every script's first key under a prefix, in place.
type prefixing struct{}

func (prefixing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (prefixing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (prefixing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 3 && anyScript([]string{cmd.Name()}) {
			args[3] = "prefixed:" + args[3].(string)
		}
		return next(ctx, cmd)
	}
}

// What a hook does to one request does nothing to the next.
func TestHookThatChangesArguments(t *testing.T) {
	rdb := server.Client(t)
	loadScripts(t, rdb)
	hooked := server.Client(t)
	hooked.AddHook(prefixing{})
	l := newClient(t, hooked, holdfast.WithLease(never)).Lock(t.Name())
	for range 3 {
		h, err := l.TryLock(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[string]string{h.Owner(): "1"}, rdb.HGetAll(t.Context(), "prefixed:"+t.Name()).Val())
		require.NoError(t, h.Unlock(t.Context()))
		require.False(t, exists(t, rdb, "prefixed:"+t.Name()))
	}
}

// With one answer in twenty lost, thousands of lock-unlock pairs come out right.
func TestPairsOverALossyLink(t *testing.T) {
	const workers, pairs, names = 20, 100, 10
	rdb := server.Client(t, func(o *redis.Options) { o.PoolSize = workers })
	var clients []*holdfast.Client
	var drops []*faultproxy.Fault
	for i := range 2 {
		p, c := connectVia(t, server, func(o *redis.Options) { o.ReadTimeout, o.PoolSize = 100*time.Millisecond, 2*workers })
		drops = append(drops, p.Add(faultproxy.Rule{
			Match: faultproxy.All(anyScript, faultproxy.Prob(0.05, uint64(i))), Do: faultproxy.DropReply,
		}))
		clients = append(clients, c)
	}
	var inside [names]atomic.Int32
	var uncertain atomic.Int32
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range pairs {
				n := (w + i) % names
				name := t.Name() + strconv.Itoa(n)
				h, err := clients[w%2].Lock(name).Lock(t.Context())
				if err != nil {
					t.Error(err)
					continue
				}
				if inside[n].Add(1) != 1 {
					t.Error("two hold ", name)
				}
				if state := rdb.HGetAll(t.Context(), name).Val(); len(state) != 1 || state[h.Owner()] != "1" {
					t.Errorf("%s holds it, Redis says %v", h.Owner(), state)
				}
				inside[n].Add(-1)
				err = h.Unlock(t.Context())
				switch {
				case errors.Is(err, holdfast.ErrUncertain):
					uncertain.Add(1)
				case err != nil:
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d pairs, %d answers lost, %d unlocks uncertain", workers*pairs, drops[0].Hits()+drops[1].Hits(), uncertain.Load())
	require.Positive(t, drops[0].Hits())
	requireNoKeys(t, rdb, t.Name())
}
