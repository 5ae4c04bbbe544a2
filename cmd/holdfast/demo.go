package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
)

type demoCmd struct {
	JSON bool `name:"json" help:"One JSON object per event, the last of which is the verdict."`
}

// Help is what kong shows below the summary.
func (demoCmd) Help() string {
	return `Three pods, which are processes of their own, (1) want the same nightly job: one runs it, the others step aside; (2) sell the last items in stock, under a lock; (3) do the same without, and sell more than there is; (4) want to lead: the leader is killed, and the next one takes over when its lease runs out.

Without --redis and $HOLDFAST_REDIS_URL the demo starts a Redis in memory. In a Redis that is given, keys begin with holdfast-demo: and are removed.

With --json every line has at (seconds since the start), act, pod (0: the demo itself), event and text; the last one, with event verdict, has ok, checks and the figures that they are about. Where the demo could not begin, the error stands on stderr and there is no verdict.

Exit code: 0 if all checks hold, 1 if one doesn't, 69 if Redis gave no answer, 77 if it refused, 64 for wrong usage.`
}

const (
	demoPods  = 3
	demoStock = 2
	demoLease = 2 * time.Second
	// demoSlack is how much later than the lease a takeover may be, on a machine
	// that is busy.
	demoSlack = 2 * time.Second
	// demoCounter is the key that says how many are left.
	demoCounter = "left"
	// demoTimeout bounds the whole demo, which takes some 6 s.
	demoTimeout = time.Minute
)

var errDemoTimeout = fmt.Errorf("the demo didn't end within %v", demoTimeout)

// Run implements the command.
func (d *demoCmd) Run(p *program) error {
	signals, stop := catchSignals()
	defer stop()
	ctx, settle := interruptible(signals)
	timed, cancel := context.WithTimeoutCause(ctx, demoTimeout, errDemoTimeout)
	defer cancel()
	err := d.play(timed, p)
	if sig := settle(); sig != nil {
		return sig
	}
	return err
}

// play runs the story from the first process to the verdict.
func (d *demoCmd) play(ctx context.Context, p *program) error {
	show := newReporter(p, d.JSON)
	show.act("start", "holdfast demo: three pods, one Redis")
	url, stop, err := d.redis(ctx, p, show)
	if err != nil {
		return err
	}
	defer stop()
	rdb, err := connect(ctx, url)
	if err != nil {
		return err
	}
	defer rdb.Close()

	prefix := "holdfast-demo:" + rand.Text()[:8] + ":"
	fleet, err := launch(ctx, p, url, prefix)
	if err != nil {
		return err
	}
	defer fleet.stop()
	s := &story{ctx: ctx, show: show, fleet: fleet, rdb: rdb, prefix: prefix}
	defer s.cleanUp()
	if err := s.tell(); err != nil {
		s.check("finished", false, "%v", err)
	}
	if sig := new(interrupted); errors.As(context.Cause(ctx), sig) {
		return *sig
	}
	if !show.verdict(s.result) {
		return exitError{code: exitFailed}
	}
	return nil
}

// redis answers the URL of the Redis to use, and starts one if none was given.
func (d *demoCmd) redis(ctx context.Context, p *program, show *reporter) (url string, stop func(), err error) {
	if url := p.redisURL(); url != "" {
		show.event(event{Event: "redis", Text: "using the Redis that was given"})
		return url, func() {}, nil
	}
	addr, stop, err := startEmbedded()
	if err != nil {
		return "", nil, err
	}
	show.event(event{Event: "redis", Text: fmt.Sprintf("no --redis, no $%s: started a Redis in memory, %s", urlVariable, addr)})
	return "redis://" + addr + "/0", stop, nil
}

// connect makes a go-redis client and asks it for a sign of life. Errors don't
// show the URL, which may have a password in it.
func connect(ctx context.Context, url string) (redis.UniversalClient, error) {
	rdb, err := holdfast.Dial(url)
	if err != nil {
		return nil, usage("%v", err)
	}
	if err := rdb.Ping(ctx).Err(); err != nil {
		code := exitUnavailable
		var answer redis.Error
		if errors.As(err, &answer) {
			code = exitDenied
		}
		return nil, errors.Join(exitError{code, fmt.Errorf("ask Redis: %w", err)}, rdb.Close())
	}
	return rdb, nil
}
