package redistest

import (
	"context"
	"maps"
	"sync"

	"github.com/redis/go-redis/v9"
)

// setup are the commands that go-redis sends by itself on a new connection. How
// many there are depends on the pool, so they are left out of Total.
var setup = map[string]bool{"hello": true, "client": true, "auth": true, "select": true}

// CommandCounter is a go-redis hook that counts the commands a client is asked
// to send, by lower-case name, each command of a pipeline as one. What scripts
// call inside is not counted, in contrast to INFO commandstats.
//
// A hook stands above go-redis' own retries and redirections, so a command that
// is sent again counts once. MULTI and EXEC of a TxPipeline count like any other.
// PubSub (SUBSCRIBE and its kin) bypasses hooks: count those at the server.
//
// Install it with AddHook; one counter may serve several clients. The zero value
// is ready, and it must not be copied.
type CommandCounter struct {
	mu     sync.Mutex
	counts map[string]int64
}

var _ redis.Hook = (*CommandCounter)(nil)

// Count returns how often the named commands (lower case) were sent, in all.
func (c *CommandCounter) Count(names ...string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var n int64
	for _, name := range names {
		n += c.counts[name]
	}
	return n
}

// Total returns how many commands were sent, without those that set up a
// connection: HELLO, CLIENT, AUTH and SELECT.
func (c *CommandCounter) Total() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var n int64
	for name, count := range c.counts {
		if !setup[name] {
			n += count
		}
	}
	return n
}

// Snapshot returns a copy of all counts, set-up commands included.
func (c *CommandCounter) Snapshot() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]int64, len(c.counts))
	maps.Copy(out, c.counts)
	return out
}

// Reset sets every count to zero.
func (c *CommandCounter) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.counts)
}

func (c *CommandCounter) add(cmds ...redis.Cmder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = make(map[string]int64)
	}
	for _, cmd := range cmds {
		c.counts[cmd.Name()]++
	}
}

// DialHook is part of redis.Hook; it changes nothing.
func (c *CommandCounter) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook is part of redis.Hook; it counts one command.
func (c *CommandCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.add(cmd)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook is part of redis.Hook; it counts each command of a pipeline.
func (c *CommandCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.add(cmds...)
		return next(ctx, cmds)
	}
}
