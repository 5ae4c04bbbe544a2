package trials

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
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

// lossLease is the lease of the holds that are lost, a renewal every third of it.
const lossLease = 1500 * time.Millisecond

// loss is a way to lose a hold.
type loss struct {
	how string
	// clock: the holder's own clock shows it, so that it is told before anybody
	// else can get in. Otherwise it is told at the next renewal, or, where the
	// lease is fixed, at its end.
	clock bool
	fixed bool
	lags  bool // the replica gets nothing of it
	// lose makes n trials at once.
	lose func(tb testing.TB, how loss, n int) []trial
}

// trial is one hold that was lost.
type trial struct {
	struck time.Time // the moment of the loss
	told   time.Time // Hold.Context().Done() was seen closed
	taken  time.Time // somebody else was granted the name
	// blind: Hold.Context().Err() was nil when somebody else had the name.
	blind bool
}

// bound is what a loss promises.
func (l loss) bound() string {
	switch {
	case l.clock:
		return "before"
	case l.fixed:
		return fmt.Sprintf("end of the lease: %s", millis(-lossLease))
	default:
		return fmt.Sprintf("next renewal: %s", millis(-lossLease/3))
	}
}

var losses = []loss{
	{how: "connection cut", clock: true, lose: viaProxy(func(p *faultproxy.Proxy) { p.Refuse(true); p.Cut() })},
	{how: "connection silent: packets vanish", clock: true, lose: viaProxy(func(p *faultproxy.Proxy) { p.Blackhole(true) })},
	{how: "client stopped (SIGSTOP)", clock: true, lose: stopClients},
	{how: "server hangs (SIGSTOP) for longer than the lease", clock: true, lose: onServer(hangs)},
	{how: "server gone, an empty one takes its place after the lease", clock: true, lose: onServer(comesBackLate)},
	{how: "renewal refused: rights taken away (ACL)", clock: true, lose: onServer(loseRights)},
	{how: "renewal refused: the server has become a replica (READONLY)", clock: true, lose: onPair(demote)},
	{how: "server restarted empty at once", lose: onServer(func(s *scene) { s.server.Restart() })},
	{how: "failover to a replica that hasn't got the key", lose: onPair(failOver), lags: true},
	{how: "key deleted", lose: onServer(deleteKeys)},
	{how: "key evicted (volatile-lru)", lose: onServer(evictKeys)},
	{how: "forced open by another", lose: onServer(forceOpen)},
	{how: "key deleted, fixed lease", fixed: true, lose: onServer(deleteKeys)},
}

// scene is where holds are lost.
type scene struct {
	tb     testing.TB
	server *redistest.Server
	names  []string
	admin  *redis.Client
	// theirs is the client of those who want the names next.
	theirs *party
	// to is where the connections of both go; a failover moves it.
	to atomicAddr
	// replica follows the server over the relay, if there is one.
	replica *redistest.Server
	relay   *relay
}

// asHolder is the user that holders are, so that its rights can be taken away.
const asHolder = "holder"

func newScene(tb testing.TB, n int) *scene {
	s := &scene{tb: tb, server: redistest.Start(tb, "--user", asHolder, "on", "nopass", "~*", "&*", "+@all")}
	s.admin = s.server.Client(tb)
	s.to.set(s.server.Addr())
	for i := range n {
		s.names = append(s.names, fmt.Sprint("lost-", i))
	}
	// Who waits asks often: some of the losses tell nobody.
	s.theirs = newParty(tb, redis.NewClient(s.options("default")), holdfast.WithPollFallback(10*time.Millisecond))
	return s
}

func (s *scene) options(user string) *redis.Options {
	return &redis.Options{Addr: s.server.Addr(), Username: user, Password: "any", Dialer: s.to.dial, ReadTimeout: lossLease / 2}
}

func (s *scene) end() {
	s.theirs.leave()
	if s.relay != nil {
		s.relay.close()
		s.replica.Kill()
	}
	s.server.Kill()
}

// lose has each of the names held, each by a client of its own, strikes between
// two renewals, and waits until all holders are told and all names taken.
func (s *scene) lose(how loss, holder func() redis.UniversalClient, strike func()) []trial {
	tb, ctx := s.tb, context.Background()
	var parties []*party
	var holds []*holdfast.Hold
	var opts []rlock.Option
	if how.fixed {
		opts = append(opts, holdfast.Lease(lossLease))
	}
	for _, name := range s.names {
		p := newParty(tb, holder(), holdfast.WithLease(lossLease))
		h, err := p.Lock(name).Lock(ctx, opts...)
		require.NoError(tb, err)
		parties, holds = append(parties, p), append(holds, h)
		pause(lossLease / 3 / time.Duration(len(s.names))) // so that their renewals fall apart
	}
	defer leaveAll(parties...)

	trials := make([]trial, len(s.names))
	var wg sync.WaitGroup
	for i, h := range holds {
		t := &trials[i]
		wg.Go(func() {
			<-h.Context().Done()
			t.told = time.Now()
		})
		wg.Go(func() {
			limit, cancel := context.WithTimeout(ctx, hang)
			defer cancel()
			next, err := s.theirs.Lock(s.names[i]).Lock(limit)
			for err != nil && strings.Contains(err.Error(), "OOM command not allowed") {
				next, err = s.theirs.Lock(s.names[i]).Lock(limit) // while keys are being evicted
			}
			t.taken, t.blind = time.Now(), h.Context().Err() == nil
			if err != nil {
				tb.Errorf("%s: nobody else gets the lock: %v", how.how, err)
				return
			}
			if err := next.Unlock(ctx); err != nil {
				tb.Errorf("%s: the next hold isn't its holder's: %v", how.how, err)
			}
		})
	}
	if how.fixed {
		pause(rand.N(lossLease / 3))
	} else {
		pause(rand.N(lossLease)) // some renewals later
	}
	at := time.Now()
	strike()
	wg.Wait()
	runtime.KeepAlive(holds) // those that are dropped are renewed no more
	for i := range trials {
		trials[i].struck = at
	}
	return trials
}

// viaProxy makes losses on the way between the holders and the server.
func viaProxy(strike func(*faultproxy.Proxy)) func(testing.TB, loss, int) []trial {
	return func(tb testing.TB, how loss, n int) []trial {
		s := newScene(tb, n)
		defer s.end()
		p, err := faultproxy.NewFor(s.server.Addr())
		require.NoError(tb, err)
		defer p.Close()
		return s.lose(how, func() redis.UniversalClient {
			o := s.options(asHolder)
			o.Addr, o.Dialer = p.Addr(), nil
			return redis.NewClient(o)
		}, func() { strike(p) })
	}
}

// onServer makes losses that happen at a server.
func onServer(strike func(*scene)) func(testing.TB, loss, int) []trial {
	return func(tb testing.TB, how loss, n int) []trial {
		s := newScene(tb, n)
		defer s.end()
		return s.lose(how, func() redis.UniversalClient { return redis.NewClient(s.options(asHolder)) }, func() { strike(s) })
	}
}

func hangs(s *scene) {
	s.server.Pause()
	pause(lossLease + lossLease/2)
	s.server.Resume()
}

func comesBackLate(s *scene) {
	s.server.Kill()
	pause(lossLease)
	s.server.Restart()
}

// loseRights leaves the holders without any.
func loseRights(s *scene) {
	require.NoError(s.tb, s.admin.Do(context.Background(), "acl", "setuser", asHolder, "resetkeys").Err())
}

func deleteKeys(s *scene) {
	require.NoError(s.tb, s.admin.Del(context.Background(), s.names...).Err())
}

// evictKeys has the server throw out what has an expiry, and then lets it take in
// new keys again.
func evictKeys(s *scene) {
	ctx := context.Background()
	require.NoError(s.tb, s.admin.ConfigSet(ctx, "maxmemory-policy", "volatile-lru").Err())
	require.NoError(s.tb, s.admin.ConfigSet(ctx, "maxmemory", "1").Err())
	eventually(s.tb, prompt, "all keys are evicted", func() bool {
		n, err := s.admin.Exists(ctx, s.names...).Result()
		return err == nil && n == 0
	})
	require.NoError(s.tb, s.admin.ConfigSet(ctx, "maxmemory", "0").Err())
}

func forceOpen(s *scene) {
	for _, name := range s.names {
		if _, err := s.theirs.Lock(name).ForceUnlock(context.Background()); err != nil {
			s.tb.Error(err)
		}
	}
}

// onPair makes losses that need a replica, which follows over a relay.
func onPair(strike func(*scene)) func(testing.TB, loss, int) []trial {
	return func(tb testing.TB, how loss, n int) []trial {
		s := newScene(tb, n)
		defer s.end()
		s.follow()
		if how.lags {
			s.relay.stop()
		}
		return s.lose(how, func() redis.UniversalClient {
			o := s.options("default")
			if how.clock { // they don't hear of the new master
				o.Dialer = nil
			}
			return redis.NewClient(o)
		}, func() { strike(s) })
	}
}

// follow starts a replica and waits until it has what there is.
func (s *scene) follow() {
	ctx := context.Background()
	require.NoError(s.tb, s.admin.ConfigSet(ctx, "repl-diskless-sync-delay", "0").Err())
	s.relay = newRelay(s.tb, s.server.Addr())
	s.replica = startReplica(s.tb, s.relay)
}

// startReplica starts a server that follows another one over r.
func startReplica(tb testing.TB, r *relay) *redistest.Server {
	host, port := r.hostPort()
	replica := redistest.Start(tb, "--replicaof", host, port)
	rdb := redis.NewClient(replica.Options())
	defer rdb.Close()
	eventually(tb, prompt, "the replica follows", func() bool {
		info, err := rdb.Info(context.Background(), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
	return replica
}

// promote makes a replica a master.
func promote(tb testing.TB, s *redistest.Server) {
	rdb := redis.NewClient(s.Options())
	defer rdb.Close()
	require.NoError(tb, rdb.Do(context.Background(), "replicaof", "no", "one").Err())
}

// failOver has the replica take over, which was cut off before the names were held.
func failOver(s *scene) {
	s.server.Kill()
	promote(s.tb, s.replica)
	s.to.set(s.replica.Addr())
}

// demote has the replica take over in an orderly way, with all keys; clients that
// don't hear of it go on with the old master. (Promoting one server before the
// other is demoted would be another loss: renewals in between are on one only.)
func demote(s *scene) {
	ctx := context.Background()
	require.NoError(s.tb, s.admin.Do(ctx, "failover").Err())
	eventually(s.tb, prompt, "the roles have changed", func() bool {
		info, err := s.admin.Info(ctx, "replication").Result()
		return err == nil && strings.Contains(info, "role:slave")
	})
	s.to.set(s.replica.Addr())
}

// told are the times from the end of the holder's context to the next holder: what
// is positive was told in time.
func told(trials []trial) (s spread) {
	for _, t := range trials {
		s = append(s, t.taken.Sub(t.told))
	}
	return s
}

func blind(trials []trial) (n int) {
	for _, t := range trials {
		if t.blind {
			n++
		}
	}
	return n
}

// What a clock shows is told before anybody else gets in, whatever the machine
// does: Err was looked at when the next one had the lock. What no clock shows is
// told before the lease would have ended.
func TestLossIsTold(t *testing.T) {
	var wg sync.WaitGroup
	for _, l := range losses {
		wg.Go(func() { // all at once: they wait most of the time
			trials := l.lose(t, l, 2)
			t.Logf("%s: told before the next holder: %v", l.how, told(trials))
			if l.clock && blind(trials) > 0 {
				t.Errorf("%s: somebody else had the lock before the holder was told", l.how)
			}
		})
	}
	wg.Wait()
}

// Bar: what a clock shows is told before somebody else gets in, every time; what
// no clock shows at the next renewal, a third of the lease later at most. Prints
// the table of docs/reliability.md.
func BenchmarkLoss(b *testing.B) {
	const rounds, atOnce = 5, 20
	for b.Loop() {
		rows := [][]string{{"how the hold is lost", "trials", "both believed to hold", "told before the next holder: least", "median", "bound"}}
		for _, l := range losses {
			var trials []trial
			for range rounds {
				trials = append(trials, l.lose(b, l, atOnce)...)
			}
			s := told(trials)
			rows = append(rows, []string{l.how, fmt.Sprint(len(trials)), fmt.Sprint(blind(trials)), millis(s.min()), millis(s.median()), l.bound()})
			switch {
			case l.clock && blind(trials) > 0:
				b.Errorf("%s: %d of %d holders were not told, or wrongly treated, when somebody else had the lock", l.how, blind(trials), len(trials))
			case !l.clock && !l.fixed && -s.min() > lossLease/3+slack:
				b.Errorf("%s: told %v after the next holder; a renewal comes every %v", l.how, -s.min(), lossLease/3)
			}
		}
		printTable(rows)
	}
	b.ReportMetric(0, "ns/op")
}

// slack is what a busy machine may add to a time that a bar bounds.
const slack = 100 * time.Millisecond
