package script

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/keys"
)

// Pauses between copies of a request, each counted from when the last copy was sent:
// the time that a lost reply took is pause enough. The first further copy goes out at
// once.
const (
	firstPause = 20 * time.Millisecond
	maxPause   = 500 * time.Millisecond
)

// Runner sends scripts for one client.
type Runner struct {
	// Replicas is set before the first request, if at all.
	Replicas Replicas
	// Recovered, likewise, is told that commands work again after some had no answer;
	// moved: in a way that may mean that they go to another server now.
	Recovered func(moved bool)

	rdb     redis.UniversalClient
	cluster *redis.ClusterClient // nil on a single server
	id      string
	log     *slog.Logger
	closed  <-chan struct{}
	ids     atomic.Uint64

	sharding sharding
	trouble  trouble
	bounded  atomic.Pointer[bounded] // see bound
}

// NewRunner makes a runner. Once closed is closed it sends nothing a second time.
func NewRunner(rdb redis.UniversalClient, log *slog.Logger, closed <-chan struct{}) *Runner {
	var id [9]byte          // 72 random bits: request ids of two clients differ
	_, _ = rand.Read(id[:]) // crypto/rand never fails: it aborts the program instead
	r := &Runner{rdb: rdb, id: base64.RawURLEncoding.EncodeToString(id[:]), log: log, closed: closed}
	r.cluster, _ = rdb.(*redis.ClusterClient)
	return r
}

// Redis is the client that commands without a script go through.
func (r *Runner) Redis() redis.UniversalClient { return r.rdb }

// Cluster reports whether keys are spread over slots.
func (r *Runner) Cluster() bool { return r.cluster != nil }

// markerBase is what the number at the end of a marker is written in.
const markerBase = 32

// NewMarker makes the name of a new request's marker; prefix is what
// MarkerPrefix answers for the key.
func (r *Runner) NewMarker(prefix string) string {
	b := make([]byte, 0, 128)
	b = append(b, prefix...)
	return string(strconv.AppendUint(b, r.ids.Add(1), markerBase))
}

// MarkerPrefix is what the markers of this client's requests on key start with.
func (r *Runner) MarkerPrefix(key string) string {
	return keys.Suffixed(key, "holdfast:req:"+r.id+":")
}

// Reply is what became of a request.
type Reply struct {
	// Val is the answer of the script, if Err is nil.
	Val any
	// Asked is the moment before the first copy that may have run was sent:
	// a lease counts from here.
	Asked time.Time
	// Resent says that an earlier copy may have run before the one that was
	// answered.
	Resent bool
	// MaybeRan says, beside an error, that a copy may have run or may run yet.
	MaybeRan bool
	// HalfRan says, beside an error, that the script was stopped on its way by a right
	// that its user lacks. What it did before stands: who acquired has to undo it.
	HalfRan bool
	// Err is a *NotReplicatedError, with Val beside it, if the script granted
	// what too few replicas have; see Call.Replicated.
	Err error
}

// Int is the answer as a number. Scripts of this module answer numbers.
func (r Reply) Int() int64 {
	n, _ := r.Val.(int64)
	return n
}

// Do sends a request until it is answered, until ctx ends, or until the time
// given (zero: no limit) has passed. Copies after the first are marked, so
// that running several changes no more than running one. Each sending keeps
// the timeouts of the go-redis client. Errors: ErrUnavailable and a cause if
// nothing answered, with the context's error if that ended it; ErrDenied if the
// server refused.
//
// now is the moment of the call, which the caller has read for its own ends:
// reading a clock costs as much as a script on some machines.
func (r *Runner) Do(ctx context.Context, now, until time.Time, c Call) Reply {
	var (
		reply = Reply{Asked: now}
		pause time.Duration
		load  bool
		// warned: once a request is enough.
		warned bool
		told   place // where a redirection pointed
		since  = now // when the present copy was sent
	)
	callers, bound := ctx, ctx.Done() == nil && !until.IsZero()
	if bound {
		ctx = r.bound(ctx, now, until)
	}
	for {
		var cmd command
		var acks int64
		var ran bool
		sharded, err := r.shards(ctx, &c)
		sent, fate := err == nil, notYet
		if sent {
			cmd = c.command(ctx, sharded, load)
			if r.confirms(&c) {
				acks, ran, err = r.sendConfirmed(ctx, until, &c, cmd, told, reply.Resent)
			} else {
				err = r.rdb.Process(ctx, cmd)
			}
		}
		if err == nil || errors.Is(err, redis.Nil) {
			r.recovered()
			reply.Val, reply.Err = cmd.Val(), nil
			r.judge(&c, &reply, acks)
			return reply
		}
		if sent {
			fate = fateOf(err)
		}
		if ran { // but nobody knows who else has it
			reply.Resent = true
			c = c.Resent()
		}
		last := err
		switch fate {
		case noScript:
			if !load {
				load = true
				continue
			}
		case refused:
			if distrusted(err) { // somebody else may be at the address of a node that is gone
				r.reloadTopology(ctx)
			}
			reply.Err, reply.MaybeRan, reply.HalfRan = c.explain(err), reply.Resent, halfRan(err)
			return reply
		case maybeRan:
			reply.Resent = true
			c = c.Resent()
		case notYet:
		}
		r.failed(err)
		if bound {
			ctx = &bounded{callers, until} // its own, to the last moment
		}
		if r.reloadTopology(ctx) && pause == 0 {
			pause = firstPause // or the next copy would go to the same node
		}
		if r.confirms(&c) {
			told, _ = r.placeTold(ctx, err)
		}
		c.failure.note(err)
		load = false
		if !reply.Resent {
			reply.Asked = time.Now() // nothing has run so far
		}
		if err := r.pause(ctx, until, since, &pause); err != nil || ctx.Err() != nil {
			reply.Err = r.gaveUp(ctx, last)
			if errors.Is(err, errs.ErrClosed) {
				reply.Err = fmt.Errorf("%w: %w", errs.ErrClosed, reply.Err)
			}
			reply.MaybeRan = reply.Resent
			return reply
		}
		since = time.Now()
		level := slog.LevelDebug
		if pause == maxPause && !warned { // a second or more without an answer
			level, warned = slog.LevelWarn, true
		}
		r.log.Log(ctx, level, "holdfast: no answer, sending again", "script", c.script.name, "key", c.key(), "cause", last)
	}
}

// bounded is a context with a deadline and no timer. go-redis dials no longer
// than that: an unanswered SYN would otherwise take five times its DialTimeout.
type bounded struct {
	context.Context //nolint:containedctx // it is a context
	until           time.Time
}

// Deadline implements context.Context.
func (b *bounded) Deadline() (time.Time, bool) { return b.until, true }

// bound answers ctx with a deadline at until. Callers without a context of their own
// share one for a while, whose deadline is a little earlier.
func (r *Runner) bound(ctx context.Context, now, until time.Time) context.Context {
	if ctx != context.Background() {
		return &bounded{ctx, until}
	}
	if b := r.bounded.Load(); b != nil {
		if early := until.Sub(b.until); early >= 0 && early <= until.Sub(now)/8 {
			return b
		}
	}
	b := &bounded{ctx, until}
	r.bounded.Store(b)
	return b
}

// Failure is why a request that is under way has no answer yet: for a caller who
// leaves before it has. The zero value is ready.
type Failure struct{ last atomic.Pointer[error] }

func (f *Failure) note(err error) {
	if f != nil {
		f.last.Store(&err)
	}
}

// Err is the last failure, explained, or nil.
func (f *Failure) Err() error {
	if f == nil {
		return nil
	}
	if err := f.last.Load(); err != nil {
		return Explain(*err)
	}
	return nil
}

// ErrPatience is the cause of a deadline that is ours, not the caller's: errors
// don't mention it.
var ErrPatience = errors.New("the time for an answer is over")

// pause waits before the next copy, a little longer each time.
func (r *Runner) pause(ctx context.Context, until, since time.Time, pause *time.Duration) error {
	d := *pause
	*pause = min(max(2*d, firstPause), maxPause)
	d = d/2 + mathrand.N(d/2+1)
	d = max(d-time.Since(since), min(d, firstPause))
	if !until.IsZero() && time.Until(until) <= d {
		return ErrPatience
	}
	if d == 0 {
		select {
		case <-r.closed:
			return errs.ErrClosed
		default:
			return ctx.Err()
		}
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-r.closed:
		return errs.ErrClosed
	}
}

// gaveUp names both the end of the context, if that was it, and the last
// answer of the server or the lack of one.
func (r *Runner) gaveUp(ctx context.Context, last error) error {
	err := Explain(last)
	if ctx.Err() != nil && !errors.Is(err, ctx.Err()) && !errors.Is(context.Cause(ctx), ErrPatience) {
		err = fmt.Errorf("%w (%w)", err, ContextError(ctx))
	}
	return err
}

// ContextError is the context's error together with its cause, where the cause
// says more.
func ContextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(cause, err) {
		return errors.Join(cause)
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// reloadTopology makes a cluster client look for the slots again: it would
// otherwise go on asking a dead node for up to a minute, also where it can't even
// connect to it. go-redis does so behind our back, some times a second at most; it
// reports whether it does at all.
func (r *Runner) reloadTopology(ctx context.Context) bool {
	if r.cluster != nil {
		r.cluster.ReloadState(ctx)
	}
	return r.cluster != nil
}

// Batch sends requests once each, in one pipeline (one per node on a cluster),
// and answers them in order. What failed may be sent again by the caller.
func (r *Runner) Batch(ctx context.Context, calls []Call) []Reply {
	replies := make([]Reply, len(calls))
	todo := make([]int, len(calls))
	for i := range calls {
		todo[i] = i
	}
	todo = r.batch(ctx, calls, todo, replies, false)
	if len(todo) > 0 { // a pipeline has no fallback for NOSCRIPT of its own
		r.batch(ctx, calls, todo, replies, true)
	}
	return replies
}

// batch sends the calls numbered in todo and answers those that met NOSCRIPT.
func (r *Runner) batch(ctx context.Context, calls []Call, todo []int, replies []Reply, load bool) (unloaded []int) {
	if len(todo) > 0 && r.confirms(&calls[todo[0]]) { // a batch is of one kind
		return r.batchConfirmed(ctx, calls, todo, replies, load)
	}
	pipe := r.rdb.Pipeline()
	cmds := make([]command, len(todo))
	asked := time.Now()
	for i, n := range todo {
		// Undecided, it goes out as it is: what waits will then poll.
		sharded, _ := r.shards(ctx, &calls[n])
		cmds[i] = calls[n].command(ctx, sharded, load)
		_ = pipe.Process(ctx, cmds[i]) // queues only: the error is the command's
	}
	_, _ = pipe.Exec(ctx) // likewise
	for i, n := range todo {
		err := cmds[i].Err()
		switch {
		case err == nil || errors.Is(err, redis.Nil):
			r.recovered()
			replies[n] = Reply{Val: cmds[i].Val(), Asked: asked}
		case fateOf(err) == noScript && !load:
			unloaded = append(unloaded, n)
		default:
			f := fateOf(err)
			if f == maybeRan || f == notYet {
				r.failed(err)
			}
			if f == maybeRan || f == notYet || distrusted(err) {
				r.reloadTopology(ctx)
			}
			replies[n] = Reply{Asked: asked, MaybeRan: f == maybeRan, Err: calls[n].explain(err)}
		}
	}
	return unloaded
}
