package holdfast_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rlock"
)

// Faults A01 to A08: a waiter that nobody wakes.

// deaf is a poll so slow that it can't hide a lost wake-up.
const deaf = time.Hour

// party is one toolkit client on a go-redis client of its own.
type party struct {
	*holdfast.Client
	sent     *redistest.CommandCounter
	answered *answers
	log      *diary
}

func newParty(t *testing.T, rdb redis.UniversalClient, opts ...holdfast.Option) *party {
	t.Helper()
	p := &party{sent: &redistest.CommandCounter{}, answered: &answers{}, log: &diary{}}
	rdb.AddHook(p.sent)
	rdb.AddHook(p.answered)
	opts = append(opts, holdfast.WithLogger(slog.New(slog.NewTextHandler(p.log, nil))))
	p.Client = newClient(t, rdb, opts...)
	return p
}

// through makes go-redis connect to a proxy.
func through(p *faultproxy.Proxy) func(*redis.Options) {
	return func(o *redis.Options) { o.Addr = p.Addr() }
}

// scripts is how many scripts the party has sent.
func (p *party) scripts() int { return int(p.sent.Count("evalsha", "eval")) }

// diary keeps what a client logs.
type diary struct{ redistest.Diary }

func (d *diary) count(text string) int { return strings.Count(d.String(), text) }

// verdict is how an acquisition ended.
type verdict struct {
	hold *rlock.Hold
	err  error
	took time.Duration
}

// begin starts an acquisition.
func begin(lock func() (*rlock.Hold, error)) <-chan verdict {
	c := make(chan verdict, 1)
	start := time.Now()
	go func() {
		h, err := lock()
		c <- verdict{h, err, time.Since(start)}
	}()
	return c
}

// granted waits for an acquisition that must succeed within d.
func granted(t *testing.T, c <-chan verdict, d time.Duration) verdict {
	t.Helper()
	v := ended(t, c, d)
	require.NoError(t, v.err)
	return v
}

func ended(t *testing.T, c <-chan verdict, d time.Duration) verdict {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case v := <-c:
		return v
	case <-timer.C:
		t.Fatalf("still waiting after %v", d)
		return verdict{}
	}
}

func waits(t *testing.T, c <-chan verdict) {
	t.Helper()
	select {
	case v := <-c:
		t.Fatalf("no longer waiting: %v", v.err)
	default:
	}
}

// happens waits for the end of a channel.
func happens(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	timer := time.NewTimer(prompt)
	defer timer.Stop()
	select {
	case <-c:
	case <-timer.C:
		t.Fatal("did not happen: " + what)
	}
}

func channelOf(name string) string { return "redisson_lock__channel:{" + name + "}" }

// listeners is how many connections are subscribed to a lock's channel.
func listeners(t *testing.T, rdb *redis.Client, name string) int {
	t.Helper()
	n, err := rdb.PubSubNumSub(context.Background(), channelOf(name)).Result()
	require.NoError(t, err)
	return int(n[channelOf(name)])
}

// answers is a hook that sees the answers of scripts before their callers do.
type answers struct {
	mu sync.Mutex
	n  int
	in int // do runs at the in-th answer from now
	do func()
}

// count is how many there were.
func (a *answers) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.n
}

// at runs do between the in-th answer from now and its caller.
func (a *answers) at(in int, do func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.in, a.do = in, do
}

func (a *answers) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a *answers) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (a *answers) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if name := cmd.Name(); err != nil || name != "evalsha" && name != "eval" {
			return err // NOSCRIPT is no answer
		}
		a.mu.Lock()
		a.n++
		a.in--
		do := a.do
		if a.in != 0 {
			do = nil
		}
		a.mu.Unlock()
		if do != nil {
			do()
		}
		return err
	}
}

func TestA01ReleaseBetweenTryAndSubscription(t *testing.T) {
	for what, c := range map[string]struct {
		fault   func(gate <-chan struct{}) faultproxy.Action
		scripts int // that B sends to get it
	}{
		// The server has subscribed B when A unlocks: the message is on its way.
		"confirmation late": {faultproxy.HoldReply, 3},
		// It hasn't: nobody hears the message.
		"request late": {faultproxy.HoldRequest, 2},
	} {
		t.Run(what, func(t *testing.T) {
			p := faultproxy.New(t, server.Addr())
			p1 := newParty(t, server.Client(t))
			p2 := newParty(t, server.Client(t, through(p)), holdfast.WithPollFallback(deaf))
			name := t.Name()
			a, err := p1.Lock(name).Lock(t.Context())
			require.NoError(t, err)
			gate := make(chan struct{})
			fault := p.Add(faultproxy.Rule{Match: faultproxy.Cmd("subscribe"), Do: c.fault(gate)})
			b := begin(func() (*rlock.Hold, error) { return p2.Lock(name).Lock(t.Context()) })
			happens(t, fault.Done(), "SUBSCRIBE")
			before := p2.scripts()
			require.NoError(t, a.Unlock(t.Context()))
			waits(t, b)
			require.Equal(t, before, p2.scripts(), "it tries although nothing was confirmed")

			close(gate)
			v := granted(t, b, prompt)
			require.LessOrEqual(t, p2.scripts()-before, c.scripts-1)
			require.NoError(t, v.hold.Unlock(t.Context()))
		})
	}

	t.Run("delayed by half a second", func(t *testing.T) {
		p := faultproxy.New(t, server.Addr())
		p1 := newParty(t, server.Client(t))
		p2 := newParty(t, server.Client(t, through(p)), holdfast.WithPollFallback(deaf))
		a, err := p1.Lock(t.Name()).Lock(t.Context())
		require.NoError(t, err)
		fault := p.Add(faultproxy.Rule{Match: faultproxy.Cmd("subscribe"), Do: faultproxy.Delay(500 * time.Millisecond)})
		b := begin(func() (*rlock.Hold, error) { return p2.Lock(t.Name()).Lock(t.Context()) })
		happens(t, fault.Done(), "SUBSCRIBE")
		require.NoError(t, a.Unlock(t.Context()))
		v := granted(t, b, prompt)
		require.GreaterOrEqual(t, v.took, 500*time.Millisecond)
		require.NoError(t, v.hold.Unlock(t.Context()))
	})

	t.Run("a thousand times", func(t *testing.T) {
		p := faultproxy.New(t, server.Addr())
		p1 := newParty(t, server.Client(t), holdfast.WithLease(never))
		p2 := newParty(t, server.Client(t, through(p)), holdfast.WithPollFallback(deaf))
		var longest time.Duration
		for i := range 1000 {
			name := fmt.Sprintf("%s-%d", t.Name(), i)
			a, err := p1.Lock(name).Lock(t.Context())
			require.NoError(t, err)
			freed := make(chan error, 1)
			free := func() { freed <- a.Unlock(context.Background()) }
			switch i % 5 {
			case 0: // the first try was refused, and B doesn't know yet
				p2.answered.at(1, free)
			case 1: // the same with the try after the confirmation
				p2.answered.at(2, free)
			case 2: // the request to subscribe has reached the server
				fault := p.Add(faultproxy.Rule{Match: faultproxy.Cmd("subscribe"), Times: 1})
				go func() {
					<-fault.Done()
					fault.Remove()
					free()
				}()
			case 3: // just before
				gate := make(chan struct{})
				fault := p.Add(faultproxy.Rule{Match: faultproxy.Cmd("subscribe"), Times: 1, Do: faultproxy.HoldRequest(gate)})
				go func() {
					<-fault.Done()
					fault.Remove()
					free()
					close(gate)
				}()
			default: // whenever
				go free()
			}
			ctx, cancel := context.WithTimeout(t.Context(), prompt)
			b := ended(t, begin(func() (*rlock.Hold, error) { return p2.Lock(name).Lock(ctx) }), 2*prompt)
			require.NoError(t, b.err, "wait %d, kind %d: the wake-up was lost", i, i%5)
			require.NoError(t, <-freed)
			require.NoError(t, b.hold.Unlock(t.Context()))
			longest = max(longest, b.took)
			p2.answered.at(0, nil)
			cancel()
		}
		require.Less(t, longest, 2*time.Second) // a second, and the machine's share
	})
}

func TestA02MessagesLostDuringReconnect(t *testing.T) {
	const waiters = 3
	srv := redistest.Start(t)
	p := faultproxy.New(t, srv.Addr())
	p1 := newParty(t, srv.Client(t), holdfast.WithLease(time.Minute))
	p2 := newParty(t, srv.Client(t, through(p)), holdfast.WithPollFallback(deaf))
	admin := srv.Client(t)

	var as []*rlock.Hold
	var bs []<-chan verdict
	for i := range waiters {
		name := fmt.Sprintf("n%d", i)
		a, err := p1.Lock(name).Lock(t.Context())
		require.NoError(t, err)
		as = append(as, a)
		bs = append(bs, begin(func() (*rlock.Hold, error) { return p2.Lock(name).Lock(t.Context()) }))
	}
	eventually(t, "the waiters sleep", func() bool { return p2.answered.count() >= 2*waiters })
	before := p2.scripts()

	p.Refuse(true)
	require.NoError(t, admin.ClientKillByFilter(t.Context(), "type", "pubsub").Err())
	eventually(t, "the connection is tried again", func() bool { return p2.log.count("pub/sub connection lost") >= 4 })
	for _, a := range as {
		require.NoError(t, a.Unlock(t.Context()))
	}
	for _, b := range bs {
		waits(t, b)
	}
	require.Equal(t, before, p2.scripts(), "attempts to connect wake nobody")

	p.Refuse(false)
	for _, b := range bs {
		v := granted(t, b, prompt)
		require.NoError(t, v.hold.Unlock(t.Context()))
	}
	require.Equal(t, before+2*waiters, p2.scripts(), "one try and one unlock each")
}

func TestA06aLeaseRunsOut(t *testing.T) {
	const lease = time.Second
	p1 := newParty(t, server.Client(t))
	p2 := newParty(t, server.Client(t), holdfast.WithPollFallback(deaf))
	p3 := newParty(t, server.Client(t), holdfast.WithPollFallback(deaf))
	start := time.Now()
	_, err := p1.Lock(t.Name()).Lock(t.Context(), rlock.Lease(lease))
	require.NoError(t, err)
	b := begin(func() (*rlock.Hold, error) {
		return p2.Lock(t.Name()).TryLock(t.Context(), rlock.Wait(20*time.Second), rlock.Lease(lease))
	})
	v := granted(t, b, lease+prompt)
	require.GreaterOrEqual(t, time.Since(start), lease, "two held it")
	require.LessOrEqual(t, p2.scripts(), 5)

	// And on: B doesn't unlock either, C stands in line for it here, D there.
	c := begin(func() (*rlock.Hold, error) {
		return p2.Lock(t.Name()).TryLock(t.Context(), rlock.Wait(20*time.Second), rlock.Lease(lease))
	})
	granted(t, c, lease+prompt)
	d := begin(func() (*rlock.Hold, error) { return p3.Lock(t.Name()).TryLock(t.Context(), rlock.Wait(20*time.Second)) })
	w := granted(t, d, lease+prompt)
	require.GreaterOrEqual(t, time.Since(start), 3*lease, "two held it")
	require.ErrorIs(t, v.hold.Unlock(t.Context()), holdfast.ErrLost)
	require.NoError(t, w.hold.Unlock(t.Context()))
}

func TestA06cKeyDeletedFromOutside(t *testing.T) {
	const poll = 300 * time.Millisecond
	p1 := newParty(t, server.Client(t))
	p2 := newParty(t, server.Client(t), holdfast.WithPollFallback(poll))
	p3 := newParty(t, server.Client(t), holdfast.WithPollFallback(poll))
	admin := server.Client(t)
	_, err := p1.Lock(t.Name()).Lock(t.Context(), rlock.Lease(time.Minute))
	require.NoError(t, err)
	waiters := []<-chan verdict{}
	for _, p := range []*party{p2, p2, p3} {
		waiters = append(waiters, begin(func() (*rlock.Hold, error) {
			h, err := p.Lock(t.Name()).Lock(t.Context())
			if err == nil {
				err = h.Unlock(t.Context())
			}
			return h, err
		}))
	}
	eventually(t, "both clients listen", func() bool { return listeners(t, admin, t.Name()) == 2 })
	eventually(t, "both clients poll", func() bool { return p2.answered.count() >= 4 && p3.answered.count() >= 4 })
	require.NoError(t, admin.Del(t.Context(), t.Name()).Err())
	for _, w := range waiters {
		granted(t, w, poll+prompt)
	}
	require.False(t, exists(t, admin, t.Name()))
}

// A poll every five seconds is what bounds such a wait by default.
func TestA06cDefaultPoll(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p2 := newParty(t, srv.Client(t))
	admin := srv.Client(t)
	require.NoError(t, admin.HSet(t.Context(), "n", "ghost", 1).Err())
	require.NoError(t, admin.PExpire(t.Context(), "n", time.Minute).Err())
	b := begin(func() (*rlock.Hold, error) { return p2.Lock("n").Lock(t.Context()) })
	eventually(t, "the waiter sleeps", func() bool { return p2.answered.count() >= 2 })
	require.NoError(t, admin.Del(t.Context(), "n").Err())
	v := granted(t, b, 2*prompt)
	require.NoError(t, v.hold.Unlock(t.Context()))
}

func TestA07HashWithoutExpiry(t *testing.T) {
	const poll = 700 * time.Millisecond
	for what, end := range map[string]func(ctx context.Context, rdb *redis.Client, name string) error{
		"expires": func(ctx context.Context, rdb *redis.Client, name string) error {
			return rdb.PExpire(ctx, name, time.Second).Err()
		},
		"deleted": func(ctx context.Context, rdb *redis.Client, name string) error {
			return rdb.Del(ctx, name).Err()
		},
	} {
		t.Run(what, func(t *testing.T) {
			p1 := newParty(t, server.Client(t))
			p2 := newParty(t, server.Client(t), holdfast.WithPollFallback(poll))
			admin := server.Client(t)
			require.NoError(t, admin.HSet(t.Context(), t.Name(), "ghost", 1).Err())

			c := begin(func() (*rlock.Hold, error) { return p2.Lock(t.Name()).Lock(t.Context()) })
			b := ended(t, begin(func() (*rlock.Hold, error) {
				return p1.Lock(t.Name()).TryLock(t.Context(), rlock.Wait(time.Second))
			}), prompt)
			require.ErrorIs(t, b.err, holdfast.ErrNotAcquired)
			var taken *holdfast.NotAcquiredError
			require.ErrorAs(t, b.err, &taken)
			require.Negative(t, taken.Remaining, "there is no remaining time")
			require.GreaterOrEqual(t, b.took, time.Second)
			require.LessOrEqual(t, p1.scripts(), 4)
			waits(t, c)
			most := 2 + int(b.took/poll) + 2
			require.LessOrEqual(t, p2.scripts(), most, "it spins")

			require.NoError(t, end(t.Context(), admin, t.Name()))
			v := granted(t, c, time.Second+poll+prompt)
			require.LessOrEqual(t, p2.scripts(), most+8)
			require.NoError(t, v.hold.Unlock(t.Context()))
		})
	}

	// The key ends while it is asked about, at whatever point.
	t.Run("vanishes", func(t *testing.T) {
		p1 := newParty(t, server.Client(t), holdfast.WithPollFallback(deaf))
		admin := server.Client(t)
		const rounds = 100
		for i := range rounds {
			name := fmt.Sprintf("%s-%d", t.Name(), i)
			require.NoError(t, admin.HSet(t.Context(), name, "ghost", 1).Err())
			require.NoError(t, admin.PExpire(t.Context(), name, time.Duration(1+i%4)*time.Millisecond).Err())
			v := granted(t, begin(func() (*rlock.Hold, error) { return p1.Lock(name).Lock(t.Context()) }), prompt)
			require.NoError(t, v.hold.Unlock(t.Context()))
		}
		require.LessOrEqual(t, p1.scripts(), 8*rounds)
	})
}

// stopper is a hook that stops whoever sends a script for one key.
type stopper struct {
	key     string
	armed   chan struct{} // closed: stop
	stopped chan struct{} // closed: somebody is
	gate    chan struct{} // closed: go on
	once    sync.Once
}

func (s *stopper) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *stopper) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *stopper) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		select {
		case <-s.armed:
			if args := cmd.Args(); len(args) > 3 && args[3] == s.key {
				s.once.Do(func() { close(s.stopped) })
				<-s.gate
			}
		default:
		}
		return next(ctx, cmd)
	}
}

func TestA08SlowReceiverHoldsUpNobody(t *testing.T) {
	const names, messages = 300, 5000
	key := func(i int) string { return fmt.Sprintf("%s-%d", t.Name(), i) }
	rdb := server.Client(t)
	stop := &stopper{key: key(0), armed: make(chan struct{}), stopped: make(chan struct{}), gate: make(chan struct{})}
	rdb.AddHook(stop)
	p1 := newParty(t, server.Client(t), holdfast.WithLease(never))
	p2 := newParty(t, rdb, holdfast.WithPollFallback(deaf))
	admin := server.Client(t)

	var holds []*rlock.Hold
	var waiters []<-chan verdict
	for i := range names {
		h, err := p1.Lock(key(i)).Lock(t.Context())
		require.NoError(t, err)
		holds = append(holds, h)
		waiters = append(waiters, begin(func() (*rlock.Hold, error) { return p2.Lock(key(i)).Lock(context.Background()) }))
	}
	eventually(t, "everybody sleeps", func() bool { return p2.answered.count() >= 2*names })

	close(stop.armed)
	require.NoError(t, admin.Publish(t.Context(), channelOf(key(0)), "0").Err())
	happens(t, stop.stopped, "the busy name's waiter wakes")
	pipe := admin.Pipeline()
	for range messages {
		pipe.Publish(t.Context(), channelOf(key(0)), "0")
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)

	for _, h := range holds[1:] {
		require.NoError(t, h.Unlock(t.Context()))
	}
	for _, w := range waiters[1:] {
		v := granted(t, w, prompt)
		require.NoError(t, v.hold.Unlock(context.Background()))
	}
	waits(t, waiters[0])

	// The burst is one signal for the one that was stopped.
	before, seen := p2.scripts(), p2.answered.count()
	close(stop.gate)
	eventually(t, "the stopped one looks again", func() bool { return p2.answered.count() > seen })
	require.NoError(t, holds[0].Unlock(t.Context()))
	v := granted(t, waiters[0], prompt)
	require.LessOrEqual(t, p2.scripts(), before+4)
	require.NoError(t, v.hold.Unlock(context.Background()))
	require.Zero(t, p2.log.count("connection lost"), p2.log)
}
