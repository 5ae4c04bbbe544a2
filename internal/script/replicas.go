package script

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/errs"
)

// Replicas says how many replicas have to have what was acquired or renewed
// before it counts. The zero value asks for none.
type Replicas struct {
	N int
	// Timeout is how long the server waits for them, in whole milliseconds.
	Timeout time.Duration
}

// probeTTL is how long the key lives that is written where a script may have
// written nothing.
const probeTTL = time.Second

// Replicated is the request as it is sent by a client that wants replicas to
// confirm: with WAIT behind it, on its connection. If too few of them do, and
// granted says of the answer that it granted something, the reply has a
// *NotReplicatedError, its Val beside it, and MaybeRan: who undoes a request
// without an answer undoes this one too. For a client that doesn't ask for
// replicas it changes nothing.
func (c Call) Replicated(granted func(val any) bool) Call {
	c.granted = granted
	return c
}

// key is the first of the call's keys.
func (c *Call) key() string {
	k, _ := c.args[argKeys].(string)
	return k
}

// confirms reports whether c goes out with WAIT behind it.
func (r *Runner) confirms(c *Call) bool { return c.granted != nil && r.Replicas.N > 0 }

// judge puts the acknowledgements into the reply of a call that was answered.
func (r *Runner) judge(c *Call, reply *Reply, acks int64) {
	if r.confirms(c) && acks < int64(r.Replicas.N) && c.granted(reply.Val) {
		reply.Err = &errs.NotReplicatedError{Acks: int(acks), Want: r.Replicas.N, Timeout: r.Replicas.Timeout}
		reply.MaybeRan = true
	}
}

// place is a server that commands are sent to, one connection for all of them.
type place struct {
	node   interface{ Pipeline() redis.Pipeliner }
	asking bool // the slot is moving there: each command has to say that it knows
}

// placeOf is where a key's commands go. A cluster client would send WAIT, which
// has no key, to any of the nodes.
func (r *Runner) placeOf(ctx context.Context, key string) (place, error) {
	if r.cluster == nil {
		return place{node: r.rdb}, nil
	}
	node, err := r.cluster.MasterForKey(ctx, key)
	return place{node: node}, err
}

// placeTold is where a redirection points, if that node is known. go-redis
// follows redirections for us everywhere but here.
func (r *Runner) placeTold(ctx context.Context, err error) (place, bool) {
	var reply redis.Error
	if r.cluster == nil || !errors.As(err, &reply) {
		return place{}, false
	}
	words := strings.Fields(reply.Error())
	if len(words) != 3 || words[0] != "MOVED" && words[0] != "ASK" {
		return place{}, false
	}
	var mu sync.Mutex
	p := place{asking: words[0] == "ASK"}
	_ = r.cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error { // without a topology there is no place
		mu.Lock()
		defer mu.Unlock()
		if node.Options().Addr == words[2] {
			p.node = node
		}
		return nil
	})
	return p, p.node != nil
}

// confirm sends commands to one place and WAIT behind them, and answers how many
// replicas have all of it; err is why that isn't known, the fate of each command
// its own. WAIT counts those that have what this connection wrote, and a further
// copy or a renewal may have nothing to write: for them probe names a key that is
// written in between.
func (r *Runner) confirm(ctx context.Context, until time.Time, p place, cmds []command, probe string) (acks int64, err error) {
	pipe := p.node.Pipeline()
	queue := func(cmd redis.Cmder) { _ = pipe.Process(ctx, cmd) } // the error is the command's
	for _, cmd := range cmds {
		if p.asking {
			queue(redis.NewCmd(ctx, "asking"))
		}
		queue(cmd)
	}
	var written *redis.Cmd
	if probe != "" {
		if p.asking {
			queue(redis.NewCmd(ctx, "asking"))
		}
		written = redis.NewCmd(ctx, "set", probe, 1, "px", probeTTL.Milliseconds())
		queue(written)
	}
	wait := redis.NewIntCmd(ctx, "wait", r.Replicas.N, r.patience(ctx, until).Milliseconds())
	queue(wait)
	_, _ = pipe.Exec(ctx) // likewise
	if written != nil && written.Err() != nil {
		return 0, written.Err()
	}
	return wait.Val(), wait.Err()
}

// patience is how long to wait for replicas: within the caller's time, so that
// the answer says who was missing, not that there was none.
func (r *Runner) patience(ctx context.Context, until time.Time) time.Duration {
	d := r.Replicas.Timeout
	if t, ok := ctx.Deadline(); ok {
		d = min(d, time.Until(t)*3/4)
	}
	if !until.IsZero() {
		d = min(d, time.Until(until)*3/4)
	}
	return max(d, time.Millisecond) // 0 would be forever
}

// probe is the key that is written to see whether replicas follow. Of the markers
// beside it, which end in a number, none has a hyphen.
func (r *Runner) probe(key string) string { return r.MarkerPrefix(key) + "-ack" }

// sendConfirmed sends one copy of a request, to the place given or to its key's.
// ran says that the script was answered, whatever became of WAIT.
func (r *Runner) sendConfirmed(ctx context.Context, until time.Time, c *Call, cmd command, to place, resent bool) (acks int64, ran bool, err error) {
	if to.node == nil {
		if to, err = r.placeOf(ctx, c.key()); err != nil {
			return 0, false, err
		}
	}
	probe := ""
	if resent {
		probe = r.probe(c.key())
	}
	acks, err = r.confirm(ctx, until, to, []command{cmd}, probe)
	if cmd.Err() != nil && !errors.Is(cmd.Err(), redis.Nil) {
		return 0, false, cmd.Err()
	}
	return acks, true, err
}

// batchConfirmed is batch with WAIT behind: one pipeline per node, all at once.
func (r *Runner) batchConfirmed(ctx context.Context, calls []Call, todo []int, replies []Reply, load bool) (unloaded []int) {
	groups := make(map[place][]int)
	for _, n := range todo {
		p, err := r.placeOf(ctx, calls[n].key())
		if err != nil {
			replies[n] = Reply{Asked: time.Now(), MaybeRan: fateOf(err) == maybeRan, Err: Explain(err)}
			r.reloadTopology(ctx)
			continue
		}
		groups[p] = append(groups[p], n)
	}
	errors := r.sendGroups(ctx, calls, groups, replies, load)
	told := make(map[place][]int)
	for n, err := range errors {
		if p, ok := r.placeTold(ctx, err); ok {
			told[p] = append(told[p], n)
			delete(errors, n)
		}
	}
	if len(told) > 0 {
		maps.Copy(errors, r.sendGroups(ctx, calls, told, replies, load))
	}
	for n, err := range errors {
		f := fateOf(err)
		if f == noScript && !load {
			unloaded = append(unloaded, n)
			continue
		}
		if f == maybeRan || f == notYet {
			r.failed(err)
			r.reloadTopology(ctx)
		}
		replies[n].MaybeRan, replies[n].Err = f == maybeRan, calls[n].explain(err)
	}
	return unloaded
}

// sendGroups fills in the replies of calls that were answered, and answers the
// errors of the others.
func (r *Runner) sendGroups(ctx context.Context, calls []Call, groups map[place][]int, replies []Reply, load bool) map[int]error {
	var mu sync.Mutex
	failed := make(map[int]error)
	var wg sync.WaitGroup
	answered := false
	for p, group := range groups {
		wg.Go(func() {
			asked := time.Now()
			cmds := make([]command, len(group))
			for i, n := range group {
				sharded, _ := r.shards(ctx, &calls[n]) // undecided, as in batch
				cmds[i] = calls[n].command(ctx, sharded, load)
			}
			acks, err := r.confirm(ctx, time.Time{}, p, cmds, r.probe(calls[group[0]].key()))
			mu.Lock()
			defer mu.Unlock()
			for i, n := range group {
				replies[n] = Reply{Asked: asked}
				cerr := cmds[i].Err()
				if cerr == nil || isNil(cerr) {
					cerr = err
				}
				if cerr != nil {
					failed[n] = cerr
					continue
				}
				answered = true
				replies[n].Val = cmds[i].Val()
				r.judge(&calls[n], &replies[n], acks)
			}
		})
	}
	wg.Wait()
	if answered { // not before: it may ask Redis, and mu is held there
		r.recovered()
	}
	return failed
}

func isNil(err error) bool { return errors.Is(err, redis.Nil) }
