package inspect

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/keys"
	"github.com/holdfast-go/holdfast/internal/script"
)

const (
	// scanCount is how many keys a server looks at for one SCAN. It does nothing
	// else meanwhile: some tenths of a millisecond.
	scanCount = 1000
	// pageSize is how many names are read with one pipeline.
	pageSize = 200
)

// All answers what stands at the names that match pattern.
func All(ctx context.Context, s *hold.Services, pattern string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		w := &walk{Services: s, ctx: ctx, mapper: newMapper(s.MapName), seen: make(map[string]bool), yield: yield}
		if err := w.run(pattern); err != nil {
			yield(Info{}, fmt.Errorf("holdfast: list %s: %w", errs.Quote(pattern), err))
		}
	}
}

// walk is one run through the keys.
type walk struct {
	*hold.Services
	ctx    context.Context //nolint:containedctx // lives as long as the call
	mapper mapper
	seen   map[string]bool // SCAN may answer a key more than once
	yield  func(Info, error) bool
}

// errEnough says that the caller has seen enough.
var errEnough = errors.New("enough")

func (w *walk) run(pattern string) error {
	switch {
	case w.ctx == nil:
		return errs.Invalid("the context is nil: pass context.Background()")
	case pattern == "":
		return errs.Invalid("the pattern is empty: use * for all names")
	}
	nodes, err := hold.Query(w.ctx, w.Services, w.nodes)
	if err != nil {
		return err
	}
	p := w.mapper.pattern(pattern)
	for _, node := range nodes {
		// Where a name has nothing of its own, as that of a fenced lock that is
		// free, its helpers tell of it.
		for _, look := range []struct {
			pattern string
			thing   func(key string) string
		}{{p, thing}, {helpers + "{" + p + "}", wrapped}, {helpers + p, unwrapped}} {
			if err := w.scan(node, look.pattern, look.thing); err != nil {
				if errors.Is(err, errEnough) {
					return nil
				}
				return err
			}
		}
	}
	return nil
}

// nodes are the servers that hold keys.
func (w *walk) nodes(ctx context.Context) ([]redis.Cmdable, error) {
	rdb := w.Runner.Redis()
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return []redis.Cmdable{rdb}, nil
	}
	var mu sync.Mutex
	var nodes []redis.Cmdable
	err := cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, node)
		return nil
	})
	return nodes, err
}

// scan walks through the keys of one server that match p, and what they are of.
func (w *walk) scan(node redis.Cmdable, p string, thing func(string) string) error {
	type page struct {
		keys []string
		next uint64
	}
	var cursor uint64
	for {
		got, err := hold.Query(w.ctx, w.Services, func(ctx context.Context) (page, error) {
			found, next, err := node.Scan(ctx, cursor, p, scanCount).Result()
			return page{found, next}, err
		})
		if err != nil {
			return err
		}
		for i, key := range got.keys {
			got.keys[i] = thing(key)
		}
		if err := w.read(got.keys); err != nil {
			return err
		}
		if cursor = got.next; cursor == 0 {
			return nil
		}
	}
}

// read reads what stands at names, as they are in Redis, and yields it.
func (w *walk) read(found []string) error {
	var names []string
	for _, key := range found {
		if key != "" && !w.seen[key] && keys.Check(key) == nil {
			w.seen[key] = true
			names = append(names, key)
		}
	}
	for page := range slices.Chunk(names, pageSize) {
		calls := make([]script.Call, len(page))
		for i, key := range page {
			calls[i] = call(key)
		}
		replies, err := hold.Query(w.ctx, w.Services, func(ctx context.Context) ([]script.Reply, error) {
			return w.Runner.Batch(ctx, calls), nil
		})
		if err != nil {
			return err
		}
		for i, reply := range replies {
			if err := w.show(page[i], reply); err != nil {
				return err
			}
		}
	}
	return nil
}

// show yields one thing, unless there is none. What one name is refused for says
// nothing of the others; without an answer there is no point in going on.
func (w *walk) show(key string, reply script.Reply) error {
	name := w.mapper.name(key)
	if script.Temporary(reply.Err) { // a slot that moves, perhaps, or a connection that broke
		again, err := hold.Query(w.ctx, w.Services, func(ctx context.Context) (script.Reply, error) {
			return w.Send(ctx, w.Patience, call(key)), nil
		})
		if err != nil {
			return err
		}
		reply = again
	}
	if reply.Err != nil {
		if !script.Company(reply.Err) {
			return reply.Err
		}
		err := fmt.Errorf("holdfast: inspect %s: %w", errs.Quote(name), reply.Err)
		return enough(w.yield(Info{Name: name, Key: key, Kind: Unknown}, err))
	}
	info := readInfo(name, key, reply.Val)
	if info.Kind == Free || info.Kind == Unknown {
		return nil
	}
	if info.Kind == Counter || info.Kind == Semaphore {
		own, err := w.isWindow(key)
		if own || err != nil {
			return err
		}
	}
	return enough(w.yield(info, nil))
}

func enough(goOn bool) error {
	if goOn {
		return nil
	}
	return errEnough
}

// isWindow reports whether a number belongs to a rate limiter: it looks like a
// semaphore by itself.
func (w *walk) isWindow(key string) (bool, error) {
	limiter := ""
	if base, ok := strings.CutSuffix(key, ":value"); ok {
		limiter = base
	} else if i := strings.LastIndex(key, ":value:"); i >= 0 {
		limiter = key[:i]
	}
	limiter = unwrap(limiter)
	if limiter == "" || keys.Check(limiter) != nil {
		return false, nil
	}
	reply, err := hold.Query(w.ctx, w.Services, func(ctx context.Context) (script.Reply, error) {
		return w.Send(ctx, w.Patience, call(limiter)), nil
	})
	if err == nil {
		err = reply.Err
	}
	if err != nil {
		return false, err
	}
	return readInfo(limiter, limiter, reply.Val).Kind == RateLimiter, nil
}

// unwrap takes the braces off that a helper key has around a name without any.
func unwrap(s string) string {
	if inner, ok := strings.CutPrefix(s, "{"); ok {
		if inner, ok := strings.CutSuffix(inner, "}"); ok && !strings.ContainsAny(inner, "{}") {
			return inner
		}
	}
	if !strings.Contains(s, "{") {
		return ""
	}
	return s
}

// helpers is a pattern for the keys of tokens and queues, up to the name: five
// letters, so that nothing of the name is taken for a label.
const helpers = "redisson_lock_[tq][ou][ke][eu][ne]:"

// helped is what follows the label of a token or a queue.
func helped(key string) string {
	for _, label := range []string{"redisson_lock_token:", "redisson_lock_queue:"} {
		if rest, ok := strings.CutPrefix(key, label); ok {
			return rest
		}
	}
	return ""
}

// wrapped is the name without braces that a helper belongs to, or "".
func wrapped(key string) string {
	rest := helped(key)
	if name := unwrap(rest); name != rest {
		return name
	}
	return ""
}

// unwrapped is the name with braces of its own that a helper belongs to, or "".
func unwrapped(key string) string {
	rest := helped(key)
	if name := unwrap(rest); name == rest {
		return name
	}
	return ""
}

// thing is the name that a key is, or "" if it is a helper.
func thing(key string) string {
	for _, label := range []string{"redisson_lock_token:", "redisson_lock_queue:", "redisson_lock_timeout:", "redisson_unlock_latch:"} {
		if strings.HasPrefix(key, label) {
			return ""
		}
	}
	if strings.Contains(key, ":holdfast:") || strings.Contains(key, ":rwlock_timeout:") {
		return ""
	}
	return key
}
