package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/integration/internal/topology"
)

// name is the form of the names that clients use (worker.NameOf).
const name = prefix + `[a-z]+-\d+-\d+`

// lasting are the keys that may be there when nobody is: numbers of permits and
// counts, rates and their windows, fencing tokens. All others end with who made them,
// at the latest after their time to live.
var lasting = regexp.MustCompile(`^(?:` +
	prefix + `(?:semaphore|expirable|latch|limiter)-\d+-\d+|` +
	`\{` + prefix + `limiter-\d+-\d+\}:(?:value|permits)|` +
	`redisson_lock_token:\{` + prefix + `fenced-\d+-\d+\})$`)

// permits are those that are out and expire. What has expired stays until somebody
// comes by, and counts as back.
var permits = regexp.MustCompile(`^\{` + prefix + `expirable-\d+-\d+\}:timeout$`)

// marks are the markers of requests, and of latches that were opened. They outlive who
// made them, by markers at most, and nobody waits for that: each is judged by its time
// to live.
var marks = regexp.MustCompile(`^\{` + name + `\}:holdfast:(?:req:|opened$)`)

const markers = 75 * time.Second

// queues are places of waiters. Those of a killed process stay until somebody comes
// by, or until they expire, and so do those that a server brought back.
var queues = regexp.MustCompile(`^(?:redisson_lock_(?:queue|timeout):\{(` + name + `)\}|\{(` + name + `)\}:holdfast:(?:alive|writers|readers))$`)

// queueOf answers whose queue a key is, "" if it is none.
func queueOf(key string) string {
	if m := queues.FindStringSubmatch(key); m != nil {
		return m[1] + m[2]
	}
	return ""
}

// excuse is what may have left places in queues.
type excuse struct {
	killed []int                  // processes
	lost   func(name string) bool // whether data of it were lost, so that who had left may be back
}

// place reports whether a place in the queue of a name may be left. It is called
// <id of the client>:<process>-<worker>-<number>.
func (x excuse) place(queue, place string) bool {
	if x.lost(queue) || place == "" && len(x.killed) > 0 { // the end of the readers' turn
		return true
	}
	_, owner, _ := strings.Cut(place, ":")
	first, _, _ := strings.Cut(owner, "-")
	process, err := strconv.Atoi(first)
	return err == nil && slices.Contains(x.killed, process)
}

// leftovers answers what the clients, all of which have ended, left in the servers.
// The holds of those that were killed have a lease to run out.
func leftovers(ctx context.Context, top *topology.Topology, x excuse) (left []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*lease+patience/2)
	defer cancel()
	err = retry(ctx, func() error {
		var all []string
		for _, n := range top.Nodes() {
			found, err := leftAt(ctx, n, x)
			if err != nil {
				return fmt.Errorf("look at %s: %w", n.Name(), err) // what the look before has found stands
			}
			all = append(all, found...)
		}
		if left = all; len(left) > 0 {
			return errors.New("something is left")
		}
		return nil
	})
	if len(left) > 0 {
		return left, nil
	}
	return nil, err
}

// leftAt looks at one server.
func leftAt(ctx context.Context, n *topology.Node, x excuse) (left []string, err error) {
	say := func(format string, args ...any) {
		left = append(left, "left at "+n.Name()+": "+fmt.Sprintf(format, args...))
	}
	rdb := n.Admin()
	conns, err := rdb.ClientList(ctx).Result()
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(conns) {
		if strings.Contains(line, " user="+appUser+" ") {
			say("connection %s", strings.TrimSpace(line))
		}
	}
	channels, err := rdb.PubSubChannels(ctx, "*").Result()
	if err != nil {
		return nil, err
	}
	if shards, err := rdb.PubSubShardChannels(ctx, "*").Result(); err == nil { // Redis 6.2 has none
		channels = append(channels, shards...)
	}
	for _, c := range channels {
		if !strings.HasPrefix(c, "__sentinel__") {
			say("subscription to %s", c)
		}
	}
	found, err := keysLeft(ctx, rdb, x)
	for _, k := range found {
		say("%s", k)
	}
	return left, err
}

// keysLeft are the keys of a server that should have gone, and those that never
// will, in words. A replica waits for its master to remove what has expired.
func keysLeft(ctx context.Context, rdb *redis.Client, x excuse) (left []string, err error) {
	keys := rdb.Scan(ctx, 0, "*", 1000).Iterator()
	var names []string
	for keys.Next(ctx) {
		if !lasting.MatchString(keys.Val()) {
			names = append(names, keys.Val())
		}
	}
	if err := keys.Err(); err != nil {
		return nil, err
	}
	slices.Sort(names)
	ttls, err := timesToLive(ctx, rdb, names)
	if err != nil {
		return nil, err
	}
	for i, key := range names {
		ttl, err := ttls[i].Result()
		var members []string
		if err == nil {
			members, err = membersLeft(ctx, rdb, key, ttl, x)
		}
		switch {
		case err != nil:
			if !strings.HasPrefix(err.Error(), "MOVED ") { // a replica of a cluster: its master is asked, too
				return nil, err
			}
		case ttl == -2: // it has gone
		case ttl > 0 && ttl <= markers && marks.MatchString(key):
		case permits.MatchString(key) && len(members) == 0:
		case ttl > 0 && queueOf(key) != "" && len(members) == 0:
		default:
			left = append(left, fmt.Sprintf("key %s, time to live %v %q", key, ttl, members))
		}
	}
	return left, nil
}

// timesToLive asks for many at a time: markers are thousands. Each answer may be an
// error of its own.
func timesToLive(ctx context.Context, rdb *redis.Client, keys []string) (ttls []*redis.DurationCmd, err error) {
	for some := range slices.Chunk(keys, 500) {
		_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, key := range some {
				ttls = append(ttls, p.PTTL(ctx, key))
			}
			return nil
		})
		var said redis.Error
		if err != nil && !errors.As(err, &said) {
			return nil, err
		}
	}
	return ttls, nil
}

// membersLeft are the members of a key that have no excuse: places in queues, and
// permits that haven't expired.
func membersLeft(ctx context.Context, rdb *redis.Client, key string, ttl time.Duration, x excuse) (members []string, err error) {
	queue := queueOf(key)
	switch {
	case permits.MatchString(key):
		var now time.Time
		if now, err = rdb.Time(ctx).Result(); err != nil {
			return nil, err
		}
		return rdb.ZRangeArgs(ctx, redis.ZRangeArgs{Key: key, ByScore: true, Start: now.UnixMilli(), Stop: "+inf"}).Result()
	case queue == "" || ttl == -2:
		return nil, nil
	case strings.HasPrefix(key, "redisson_lock_queue:"):
		members, err = rdb.LRange(ctx, key, 0, -1).Result()
	default:
		members, err = rdb.ZRange(ctx, key, 0, -1).Result()
	}
	return slices.DeleteFunc(members, func(m string) bool { return x.place(queue, m) }), err
}
