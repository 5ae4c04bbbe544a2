package holdfast

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/script"
	"github.com/holdfast-go/holdfast/internal/task"
	"github.com/holdfast-go/holdfast/internal/wait"
	"github.com/holdfast-go/holdfast/pubsub"
	"github.com/holdfast-go/holdfast/rlatch"
	"github.com/holdfast-go/holdfast/rlimiter"
	"github.com/holdfast-go/holdfast/rlock"
	"github.com/holdfast-go/holdfast/rrwlock"
	"github.com/holdfast-go/holdfast/rsemaphore"
	"github.com/holdfast-go/holdfast/watchdog"
)

// Names of the packages below, for callers that import only this one.
type (
	// Locker is what every kind of lock can do. It is rlock.Locker.
	//
	//	Name() string
	//	Lock(ctx, opts ...Option) (*Hold, error)      waits until ctx ends. Errors: the context's,
	//	                                              ErrDenied, ErrInvalid, ErrReentry, ErrClosed,
	//	                                              ErrNotReplicated (WithReplicas)
	//	TryLock(ctx, opts ...Option) (*Hold, error)   at once, or within Wait(d). Errors: those, and
	//	                                              ErrNotAcquired, ErrUnavailable
	//	Unlock(ctx) error                             the latest hold of ctx's owner. Errors: ErrNoOwner,
	//	                                              ErrNotHeld (ErrLost), ErrUncertain, ErrDenied, ErrClosed
	//	ForceUnlock(ctx) (bool, error)                whoever holds it; whether it was held. Errors:
	//	                                              ErrInvalid, ErrUncertain, ErrDenied, ErrClosed, the context's
	//	IsLocked(ctx) (bool, error)                   Errors, of the next three as well: ErrUnavailable,
	//	                                              ErrDenied, ErrInvalid, ErrClosed, the context's
	//	IsHeld(ctx) (bool, error)                     by ctx's owner; ErrNoOwner
	//	HoldCount(ctx) (int, error)                   of ctx's owner; ErrNoOwner
	//	TTL(ctx) (time.Duration, error)               0: free; negative: without expiry
	//	Do(ctx, fn func(ctx) error, opts ...Option) error   runs fn while holding it. Errors: those of
	//	                                              Lock, fn's, and of the release: ErrLost
	Locker = rlock.Locker
	// Hold is one acquisition; a re-entry is a Hold of its own. It is rlock.Hold.
	//
	//	Name() string
	//	Context() context.Context          the caller's, with the owner; ends with cause ErrLost
	//	                                   before the key can pass on, ErrReleased at the unlock,
	//	                                   ErrClosed at Client.Close
	//	Unlock(ctx) error                  exactly this hold, once, also if ctx has ended. Errors:
	//	                                   ErrNotHeld at a second call, with ErrLost if it was lost;
	//	                                   ErrUncertain; ErrDenied; ErrClosed
	//	Extend(ctx, d time.Duration) error a lease of at least d from now. Errors: ErrInvalid,
	//	                                   ErrNotHeld (ErrLost), ErrUncertain, ErrDenied, ErrClosed,
	//	                                   ErrUnavailable, ErrNotReplicated, the context's
	//	Detach() (handle string, error)    ends it here; Client.Resume takes it up, once. Errors:
	//	                                   ErrInvalid, ErrNotHeld, ErrDenied, ErrUnavailable,
	//	                                   ErrUncertain, ErrClosed
	//	Token() int64                      fencing token; 0 if the lock is not fenced
	//	Owner() string                     the holder's field in Redis: <client id>:<owner id>
	//	ExpiresAt() time.Time              until when it is certainly ours; zero once it is over
	//
	// Keep it, or a context that carries its owner, as long as the work goes on: a
	// hold that nobody could give back any more, since no reference to it nor to its
	// owner's context is left, is renewed no more. It is then free when its lease
	// ends, and the log says so. (An owner of WithOwnerID can always be named again:
	// its holds are not dropped.)
	Hold = rlock.Hold
)

// Wait bounds how long an acquisition may wait: d, or not at all if d is zero or
// negative. It is rlock.Wait.
func Wait(d time.Duration) rlock.Option { return rlock.Wait(d) }

// Lease gives a hold a fixed lease of d, in whole milliseconds, rounded up,
// instead of one that is renewed. Zero and less is ErrInvalid. It is rlock.Lease.
func Lease(d time.Duration) rlock.Option { return rlock.Lease(d) }

// Client hands out locks, and owns what they share: one subscription
// connection, one watchdog, and the ledger of what is held. Make one per
// process, with New or Open. All methods may be called from any goroutine.
type Client struct {
	services *hold.Services
	watchdog *watchdog.Watchdog
	hub      *pubsub.Hub
	tasks    *task.Group
	owned    redis.UniversalClient // closed with the client; nil if the caller's

	stop      sync.Once
	stopped   chan struct{} // closed first: waiters are told, nothing new begins
	closeOnce sync.Once
	closeErr  error
}

// New makes a client on a go-redis client, which stays the caller's to close,
// after this one. *redis.Client, failover clients and *redis.ClusterClient
// work. *redis.Ring is refused: it moves names to another shard when one drops,
// where nobody holds them. Errors: ErrInvalid. Nothing is sent. A failover client that
// only waits, and hears nothing, asks twice a second where commands go (CLIENT INFO):
// go-redis leaves its subscriptions at a master that was replaced.
func New(rdb redis.UniversalClient, opts ...Option) (*Client, error) {
	if v := reflect.ValueOf(rdb); rdb == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errs.Invalid("New was given a nil go-redis client: pass the result of redis.NewClient")
	}
	if _, ring := rdb.(*redis.Ring); ring {
		return nil, errs.Invalid("New was given a *redis.Ring, which moves names to another shard when one drops, so that two can hold one lock: use a cluster, a failover client or a single server")
	}
	set, err := collect(opts)
	if err == nil {
		err = set.checkReplicas(rdb)
	}
	if err != nil {
		return nil, err
	}
	return newClient(rdb, nil, set), nil
}

func newClient(rdb, owned redis.UniversalClient, set settings) *Client {
	c := &Client{tasks: task.NewGroup(), owned: owned, stopped: make(chan struct{})}
	id := uuid.NewString()
	runner := script.NewRunner(rdb, set.log, c.tasks.Done())
	runner.Shard(set.sharding)
	runner.Replicas = set.replicas
	sharded := runner.Sharded
	if !runner.MayShard() {
		sharded = nil
	}
	c.hub = pubsub.New(rdb, sharded, c.tasks, set.log)
	runner.Recovered = c.hub.Doubt
	c.services = &hold.Services{
		ClientID: id,
		Runner:   runner,
		Tasks:    c.tasks,
		Loop: &wait.Loop{
			Subscribe: func(channel string) wait.Subscription { return c.hub.Subscribe(channel) },
			Poll:      set.poll,
			Patience:  set.patience,
			Closed:    c.stopped,
		},
		Lease:       set.lease,
		FairTimeout: set.fair,
		Patience:    set.patience,
		MapName:     set.mapName,
		Log:         set.log,
		Observe:     set.observe,
	}
	cfg := watchdog.Config{
		Lease: set.lease, Batch: set.batch, Renew: c.services.Renew, Tasks: c.tasks, Log: set.log,
	}
	if set.observe != nil {
		cfg.Observe = c.services.TellRenewal
	}
	c.watchdog = watchdog.New(cfg)
	c.services.Watchdog = c.watchdog
	return c
}

// ID is the UUID that every owner of this client starts with in Redis.
func (c *Client) ID() string { return c.services.ClientID }

// Lock answers the re-entrant lock of a name: Redisson's RLock. It sends
// nothing; a bad name is ErrInvalid from the first call.
func (c *Client) Lock(name string, opts ...rlock.LockOption) *rlock.Lock {
	return rlock.NewLock(c.services, name, opts...)
}

// FencedLock answers the lock of a name whose holds have a fencing token:
// Redisson's RFencedLock. It sends nothing; a bad name is ErrInvalid from the
// first call.
func (c *Client) FencedLock(name string, opts ...rlock.LockOption) *rlock.FencedLock {
	return rlock.NewFencedLock(c.services, name, opts...)
}

// SpinLock answers the lock of a name that works without pub/sub: Redisson's
// getSpinLock. A waiter asks again after each pause of b; nil: the zero
// rlock.ExponentialBackoff, from 1 ms, doubling, to 128 ms. It sends nothing; a
// bad name or backoff is ErrInvalid from the first call.
func (c *Client) SpinLock(name string, b rlock.Backoff, opts ...rlock.LockOption) *rlock.SpinLock {
	return rlock.NewSpinLock(c.services, name, b, opts...)
}

// Latch answers the count-down latch of a name: Redisson's RCountDownLatch. It
// sends nothing; a bad name is ErrInvalid from the first call.
func (c *Client) Latch(name string) *rlatch.Latch { return rlatch.NewLatch(c.services, name) }

// Semaphore answers the semaphore of a name: Redisson's RSemaphore. It sends
// nothing; a bad name is ErrInvalid from the first call.
func (c *Client) Semaphore(name string) *rsemaphore.Semaphore {
	return rsemaphore.NewSemaphore(c.services, name)
}

// RWLock answers the read-write lock of a name: Redisson's RReadWriteLock. It sends
// nothing; a bad name is ErrInvalid from the first call.
func (c *Client) RWLock(name string) *rrwlock.RWLock {
	return rrwlock.New(c.services, name)
}

// RateLimiter answers the rate limiter of a name: Redisson's RRateLimiter. It sends
// nothing; a bad name is ErrInvalid from the first call.
func (c *Client) RateLimiter(name string) *rlimiter.Limiter {
	return rlimiter.NewLimiter(c.services, name)
}

// FairLock answers the lock of a name that is first come, first served over all
// clients: Redisson's RFairLock. It sends nothing; a bad name is ErrInvalid from
// the first call.
func (c *Client) FairLock(name string, opts ...rlock.LockOption) *rlock.FairLock {
	return rlock.NewFairLock(c.services, name, opts...)
}

// ExpirableSemaphore answers the semaphore with expiring permits of a name:
// Redisson's RPermitExpirableSemaphore. It sends nothing; a bad name is ErrInvalid
// from the first call.
func (c *Client) ExpirableSemaphore(name string) *rsemaphore.Expirable {
	return rsemaphore.NewExpirable(c.services, name)
}

// Resume takes up a hold that Hold.Detach let go of, in this process or
// another: it is renewed here from now on, with this client's lease, or has the fixed
// lease of Lease(d). A handle works once. The hold belongs to ctx's owner, or to a
// fresh one; a fencing token stays. The client must be one of the same server, prefix
// and name mapper: any other looks at another key, and says ErrNotHeld. It asks once,
// for as long as WithCommandTimeout without an answer. Errors: ErrInvalid if this is no
// handle; ErrNotHeld, with ErrLost, if the hold ran out or somebody has taken it up
// before; else as TryLock. When ctx ends meanwhile the handle stays good; a call that
// comes before that is settled waits for it. The handle of a multi lock is taken up
// member by member; if one of them is lost, the others are given back.
func (c *Client) Resume(ctx context.Context, handle string, opts ...rlock.Option) (*rlock.Hold, error) {
	if err := checkContext(ctx, "Resume"); err != nil {
		return nil, err
	}
	kind, name, err := hold.ParseHandle(handle)
	if err != nil {
		return nil, err
	}
	switch {
	case kind == hold.GroupKind:
		return hold.ResumeGroup(ctx, c.services, handle, func(ctx context.Context, member string) (*rlock.Hold, error) {
			return c.Resume(ctx, member, opts...)
		})
	case rlock.Resumes(kind):
		return rlock.Resume(ctx, c.services, kind, name, handle, opts...)
	case rrwlock.Resumes(kind):
		return rrwlock.Resume(ctx, c.services, kind, name, handle, opts...)
	case kind == rsemaphore.HandleKind:
		return nil, errs.Invalid("this is the handle of a permit: take it up with ExpirableSemaphore(%q).Resume", name)
	default:
		return nil, errs.Invalid("handle is of kind %q, which this version doesn't know: update holdfast", kind)
	}
}

// Shutdown gives all holds back, tells waiters ErrClosed, and closes the
// client: what a rolling deploy calls, after the work under its locks has ended.
// Work that goes on loses its protection: its context ends with ErrReleased, and
// its own Unlock is ErrNotHeld. When ctx ends, what is still held is left to
// expire, and named in the error. Errors: those of the releases, joined.
func (c *Client) Shutdown(ctx context.Context) error {
	if err := checkContext(ctx, "Shutdown"); err != nil {
		return errors.Join(err, c.Close())
	}
	c.stopAcquiring()
	err := c.services.Drain(ctx)
	return errors.Join(err, c.Close())
}

// Close ends everything of the client's: waiters get ErrClosed, the contexts of
// holds end with that cause, renewal stops, so that held locks expire. It
// returns when the last goroutine is gone: at the latest after the timeouts of
// the go-redis client. Further calls do nothing. A client made by Open closes
// its go-redis client too.
func (c *Client) Close() error {
	c.closeOnce.Do(func() {
		c.stopAcquiring()
		c.services.Abandon()
		c.tasks.Stop()
		if c.owned != nil {
			// What is under way may still undo itself. Then closing go-redis
			// ends the reads that are stuck.
			c.tasks.WaitFor(lastWords)
			c.closeErr = c.owned.Close()
		}
		c.tasks.Wait()
	})
	return c.closeErr
}

// lastWords is how long Close waits for commands under way before it closes the
// connections under them.
const lastWords = time.Second

func (c *Client) stopAcquiring() {
	c.stop.Do(func() { close(c.stopped) })
}
