package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// result is what a run found.
type result struct {
	cfg    config
	series []*series
	tally  *tally
	faults int
	left   []error // what is there after the end, and shouldn't
}

// ourselves is the name of the connections that look at the server.
const ourselves = "soak"

// patience is how long a call may go without an answer: growth is looked for here,
// not delay.
const patience = 30 * time.Second

// settles is how long what goes on behind the calls, and leases, may take in the end.
const settles = time.Minute

func soak(ctx context.Context, cfg config, srv *redistest.Server, out io.Writer) (*result, error) {
	opts := srv.Options()
	opts.ClientName = ourselves
	admin := redis.NewClient(opts)
	defer admin.Close()
	if err := admin.Ping(ctx).Err(); err != nil {
		return nil, err
	}
	before := runtime.NumGoroutine()

	r := &result{cfg: cfg, tally: newTally(), series: newSeries(cfg)}
	var clients []*holdfast.Client
	for range cfg.clients {
		c, err := holdfast.Open(fmt.Sprintf("%s?pool_size=%d&pool_timeout=1m", srv.URL(), poolSize), holdfast.WithLease(cfg.lease), holdfast.WithCommandTimeout(patience))
		if err != nil {
			return nil, err
		}
		clients = append(clients, c)
	}
	things, err := prepare(ctx, clients[0])
	if err != nil {
		return nil, err
	}

	working, stop := context.WithTimeout(ctx, cfg.duration)
	defer stop()
	var wg sync.WaitGroup
	for i, c := range clients {
		for j := range cfg.workers {
			seed := uint64(i*cfg.workers + j)
			w := &worker{
				Rand: rand.New(rand.NewPCG(cfg.seed, seed)), cfg: &cfg, client: c, other: clients[(i+1)%len(clients)],
				id: seed, tally: r.tally, things: things,
			}
			wg.Go(func() { w.work(working) })
		}
	}
	wg.Go(func() { comeAndGo(working, srv, cfg.lease, r.tally) })
	wg.Go(func() { r.faults = faults(working, admin, rand.New(rand.NewPCG(cfg.seed, 1<<32))) })
	err = r.sample(working, admin, out)
	wg.Wait()
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, errors.New("interrupted")
	}

	after := context.WithoutCancel(ctx)
	if err := things.remove(after, clients[0]); err != nil {
		r.left = append(r.left, err)
	}
	for _, c := range clients {
		if err := c.Close(); err != nil {
			r.left = append(r.left, fmt.Errorf("close: %w", err))
		}
	}
	r.left = append(r.left, leftovers(after, admin, before)...)
	return r, nil
}

// faults takes things away that have to come back, and answers how often.
func faults(ctx context.Context, admin *redis.Client, rnd *rand.Rand) (n int) {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return n
		}
		var err error
		switch rnd.IntN(4) {
		case 0:
			err = admin.ScriptFlush(ctx).Err()
		case 1:
			err = admin.ClientKillByFilter(ctx, "type", "normal", "skipme", "yes").Err()
		default:
			err = admin.ClientKillByFilter(ctx, "type", "pubsub").Err()
		}
		if err == nil {
			n++
		}
	}
}

// leftovers waits until nothing is there but what expires, and answers what stays.
func leftovers(ctx context.Context, admin *redis.Client, goroutines int) (left []error) {
	var found []error
	look := func() bool {
		found = nil
		// go-redis leaves a connection that it was making when its client was closed
		// to the collector.
		runtime.GC()
		if n := runtime.NumGoroutine(); n > goroutines {
			found = append(found, fmt.Errorf("%d goroutines, %d before", n, goroutines))
		}
		for _, class := range []string{"normal", "pubsub"} {
			list, err := admin.Do(ctx, "client", "list", "type", class).Text()
			others := slices.DeleteFunc(strings.Split(strings.TrimSpace(list), "\n"), func(line string) bool {
				return line == "" || strings.Contains(line, " name="+ourselves+" ")
			})
			if len(others) > 0 {
				err = errors.Join(err, fmt.Errorf("%d connections, such as %q", len(others), others[0]))
			}
			if err != nil {
				found = append(found, err)
			}
		}
		keys, err := strays(ctx, admin)
		if len(keys) > 0 {
			err = errors.Join(err, fmt.Errorf("%d keys, such as %q", len(keys), keys[0]))
		}
		if err != nil {
			found = append(found, err)
		}
		return len(found) == 0
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(settles); !look() && time.Now().Before(end); {
		<-tick.C
	}
	return found
}

// strays are the keys that no marker is: markers are left to expire, and do so
// within 70 s.
func strays(ctx context.Context, admin *redis.Client) (keys []string, err error) {
	all := admin.Scan(ctx, 0, "*", 1000).Iterator()
	for all.Next(ctx) {
		key := all.Val()
		if isMarker(key) {
			switch ttl, err := admin.PTTL(ctx, key).Result(); {
			case err != nil:
				return keys, err
			case ttl >= -1 && ttl < 0, ttl > 70*time.Second:
			default:
				continue
			}
		}
		keys = append(keys, key)
	}
	return keys, all.Err()
}

// isMarker reports whether a key is one of those that outlive a request for a while.
func isMarker(key string) bool {
	return strings.Contains(key, ":holdfast:req:") || strings.HasSuffix(key, ":holdfast:opened")
}

// comeAndGo makes clients, and closes them with holds and waiters.
func comeAndGo(ctx context.Context, srv *redistest.Server, lease time.Duration, t *tally) {
	for i := 0; ctx.Err() == nil; i++ {
		t.count("client", func() error {
			c, err := holdfast.Open(srv.URL()+"?pool_size=2&pool_timeout=1m", holdfast.WithLease(lease), holdfast.WithCommandTimeout(patience))
			if err != nil {
				return err
			}
			h, err := c.Lock(fmt.Sprintf("guest-%d", i)).TryLock(ctx, holdfast.Wait(10*time.Second))
			if err == nil {
				waits := make(chan error, 1)
				go func() {
					_, err := c.Lock(h.Name()).Lock(holdfast.WithOwner(ctx))
					waits <- err
				}()
				rest(ctx, 500*time.Millisecond)
				if i%2 == 0 {
					err = c.Shutdown(context.WithoutCancel(ctx))
				} else {
					err = c.Close()
				}
				if werr := <-waits; !errors.Is(werr, holdfast.ErrClosed) && !errors.Is(werr, ctx.Err()) {
					err = errors.Join(err, fmt.Errorf("waiter of a closed client: %w", werr))
				}
			}
			return errors.Join(err, c.Close())
		}, holdfast.ErrNotAcquired, context.DeadlineExceeded, context.Canceled)
		rest(ctx, 500*time.Millisecond)
	}
}

// rest waits for d or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func joined(all []error) error {
	texts := make([]string, len(all))
	for i, err := range all {
		texts[i] = err.Error()
	}
	return errors.New(strings.Join(texts, "; "))
}
