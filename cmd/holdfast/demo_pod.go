package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
)

// podCmd is one pod of the demo. It takes orders on stdin, one JSON object a
// line, reports events on stdout likewise, and ends when stdin does.
type podCmd struct {
	Prefix string `arg:""`
	Number int    `arg:""`
}

// Orders. In the middle of one a pod may wait for doGo.
const (
	doNightly      = "nightly"
	doSell         = "sell"
	doSellUnlocked = "sell without lock"
	doLead         = "lead"
	doGo           = "go"
)

// Events of pods.
const (
	podUp       = "up"
	podAcquired = "acquired"
	podAside    = "stepped_aside"
	podWaiting  = "waiting"
	podLeads    = "leads"
	podStill    = "still_holding"
	podRead     = "read"
	podSold     = "sold"
	podSoldOut  = "sold_out"
	podReleased = "released"
	podDone     = "done"
)

// How long the pods' work takes.
const (
	demoReport  = 300 * time.Millisecond
	demoPayment = 200 * time.Millisecond
	// demoReign is how long a leader shows that its lease is renewed.
	demoReign = demoLease + demoLease/4
)

// demoPodRun is the inside of a pod.
type demoPodRun struct {
	*podCmd
	rdb    redis.UniversalClient
	client *holdfast.Client
	orders chan string
	report *json.Encoder
}

// Run implements the command.
func (c *podCmd) Run(p *program) error {
	rdb, err := holdfast.Dial(p.redisURL())
	if err != nil {
		return usage("a pod is started by holdfast demo")
	}
	defer rdb.Close()
	client, err := holdfast.New(rdb, holdfast.WithLease(demoLease), holdfast.WithPrefix(c.Prefix), holdfast.WithLogger(p.logger()))
	if err != nil {
		return err
	}
	defer client.Close()

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	pod := &demoPodRun{podCmd: c, rdb: rdb, client: client, orders: make(chan string), report: json.NewEncoder(p.stdout)}
	go func() { // ends with stdin, or with the process
		defer cancel()
		for lines := bufio.NewScanner(p.stdin); lines.Scan(); {
			var o order
			if json.Unmarshal(lines.Bytes(), &o) == nil {
				pod.orders <- o.Do
			}
		}
	}()
	pod.say(podUp, "up, process %d", os.Getpid())
	if err := pod.serve(ctx); ctx.Err() == nil {
		pod.say(podFailed, "%v", err)
		return exitError{code: exitFailed}
	}
	return nil
}

// serve follows orders until there are no more, which ends ctx, or one fails.
func (d *demoPodRun) serve(ctx context.Context) error {
	for {
		do, err := d.next(ctx)
		if err != nil {
			return err
		}
		switch do {
		case doNightly:
			err = d.nightly(ctx)
		case doSell:
			err = d.sell(ctx, d.underLock)
		case doSellUnlocked:
			err = d.sell(ctx, d.unlocked)
		case doLead:
			err = d.lead(ctx)
		default:
			err = fmt.Errorf("got the order %q", do)
		}
		if err != nil {
			return err
		}
		d.say(podDone, "")
	}
}

// next waits for an order.
func (d *demoPodRun) next(ctx context.Context) (string, error) {
	select {
	case do := <-d.orders:
		return do, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// nightly runs the nightly report, unless somebody else does.
func (d *demoPodRun) nightly(ctx context.Context) error {
	hold, err := d.client.Lock("nightly-report").TryLock(ctx)
	var taken *holdfast.NotAcquiredError
	if errors.As(err, &taken) {
		d.say(podAside, "steps aside: it is taken")
		return nil
	}
	if err != nil {
		return err
	}
	d.say(podAcquired, "has the lock, runs the report")
	if err := sleep(hold.Context(), demoReport); err != nil {
		return err
	}
	// Three processes don't start in the same instant: the report lasts until
	// the others have looked.
	if _, err := d.next(ctx); err != nil {
		return err
	}
	if err := hold.Unlock(ctx); err != nil {
		return err
	}
	d.say(podReleased, "report done, lock given back")
	return nil
}

// sell sells until nothing is left.
func (d *demoPodRun) sell(ctx context.Context, one func(context.Context) (bool, error)) error {
	for {
		if sold, err := one(ctx); err != nil || !sold {
			return err
		}
	}
}

// underLock lets one pod sell at a time.
func (d *demoPodRun) underLock(ctx context.Context) (sold bool, err error) {
	err = d.client.Lock("stock").Do(ctx, func(ctx context.Context) error {
		sold, err = d.sellOne(ctx, func(ctx context.Context) error { return sleep(ctx, demoPayment) })
		return err
	})
	return sold, err
}

// unlocked leaves it to chance, or rather makes it certain: the money is there
// when all pods have read.
func (d *demoPodRun) unlocked(ctx context.Context) (sold bool, err error) {
	return d.sellOne(ctx, func(ctx context.Context) error {
		_, err := d.next(ctx)
		return err
	})
}

// sellOne is what many a shop does: read, check, take the money, write. Between
// reading and writing somebody else can do the same.
func (d *demoPodRun) sellOne(ctx context.Context, takeMoney func(context.Context) error) (sold bool, err error) {
	key := d.Prefix + demoCounter
	left, err := d.rdb.Get(ctx, key).Int()
	if err != nil {
		return false, err
	}
	if left == 0 {
		d.say(podSoldOut, "reads 0: sold out")
		return false, nil
	}
	d.say(podRead, "reads %d", left)
	if err := takeMoney(ctx); err != nil {
		return false, err
	}
	if err := d.rdb.Set(ctx, key, left-1, redis.KeepTTL).Err(); err != nil {
		return false, err
	}
	d.say(podSold, "sells one, writes %d", left-1)
	return true, nil
}

// lead waits for the lock, holds it for longer than a lease, and goes on to
// hold it until it is told to go.
func (d *demoPodRun) lead(ctx context.Context) error {
	d.say(podWaiting, "wants to lead")
	hold, err := d.client.Lock("leader").Lock(ctx)
	if err != nil {
		return err
	}
	d.say(podLeads, "leads")
	outlived := time.NewTimer(demoReign)
	defer outlived.Stop()
	for {
		select {
		case <-outlived.C:
			d.say(podStill, "still leads after %v: its lease of %v is renewed", demoReign, demoLease)
		case <-hold.Context().Done():
			return context.Cause(hold.Context())
		case <-d.orders:
			d.say(podReleased, "gives the lead back")
			return hold.Unlock(ctx)
		}
	}
}

// say reports an event. A parent that doesn't read any more ends us soon.
func (d *demoPodRun) say(name, format string, args ...any) {
	_ = d.report.Encode(event{Event: name, Text: fmt.Sprintf(format, args...)})
}

// sleep stands for work that heeds its context.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
