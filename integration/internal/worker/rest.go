package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/integration/internal/history"
)

// locks are the kinds whose keys name who holds them.
var locks = []history.Kind{history.Lock, history.Fair, history.Fenced, history.RW}

// rest waits until nothing in the servers is this process' any more, although its
// client is still there: Shutdown would give back what was forgotten, and be none
// the wiser. What is undone behind a caller, or was lost and told, may take its lease
// (an extended one is up to two), a subscription its linger.
func (p *process) rest() error {
	bound := 2*p.Lease + lingers
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	var last error // that says something: not of a look that ctx has ended
	for {
		left, err := p.left(ctx)
		switch {
		case err == nil && len(left) == 0:
			return nil
		case err == nil:
			last = fmt.Errorf("worker: left %v after the last call, before Shutdown: %s", bound, strings.Join(left, "; "))
		case ctx.Err() == nil || last == nil:
			last = fmt.Errorf("worker: look at what is left before Shutdown: %w", err)
		}
		select {
		case <-ctx.Done():
			return last
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// left answers the holds and subscriptions of this process, in words. It looks at the
// keys, not through the library.
func (p *process) left(ctx context.Context) (left []string, err error) {
	pipe := p.rdb.Pipeline()
	held := make(map[string]*redis.StringSliceCmd)
	for g := range (history.Now()-p.Epoch)/int64(p.Generation) + 1 {
		for _, k := range locks {
			for i := range p.Names {
				name := NameOf(p.Prefix, k, i, g)
				held[name] = pipe.HKeys(ctx, name)
			}
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	for name, fields := range held {
		for _, holder := range fields.Val() {
			if strings.HasPrefix(holder, p.client.ID()+":") {
				left = append(left, name+" is held by "+holder)
			}
		}
	}
	slices.Sort(left)
	subs, err := p.subscriptions(ctx)
	return append(left, subs...), err
}

// subscriptions are the connections of this process that have some.
func (p *process) subscriptions(ctx context.Context) (subs []string, err error) {
	var mu sync.Mutex
	look := func(ctx context.Context, c *redis.Client) error {
		text, err := c.ClientList(ctx).Result()
		mu.Lock()
		defer mu.Unlock()
		for line := range strings.Lines(text) {
			if subscribed(line, ClientName(p.Process)) {
				subs = append(subs, "subscribed: "+strings.TrimSpace(line))
			}
		}
		return err
	}
	switch c := p.rdb.(type) {
	case *redis.ClusterClient:
		err = c.ForEachShard(ctx, look)
	case *redis.Client:
		err = look(ctx, c)
	default:
		err = errors.ErrUnsupported
	}
	return subs, err
}

// subscribed reports whether a line of CLIENT LIST is of a connection with this name
// that is subscribed to something.
func subscribed(line, name string) bool {
	fields := strings.Fields(line)
	return slices.Contains(fields, "name="+name) && slices.ContainsFunc(fields, func(f string) bool {
		what, n, _ := strings.Cut(f, "=")
		return slices.Contains([]string{"sub", "psub", "ssub"}, what) && n != "0"
	})
}
