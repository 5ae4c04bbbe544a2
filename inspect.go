package holdfast

import (
	"context"
	"iter"

	"github.com/holdfast-go/holdfast/internal/inspect"
)

// What inspection answers.
type (
	// Info is what stood at a name at one moment, read from the keys alone: it
	// tells of Java processes as well. As JSON it has times in RFC 3339 and durations
	// in milliseconds. Fields:
	//
	//	Name, Key string         as asked for, and as it stands in Redis
	//	Kind Kind                which primitive
	//	Type string              Redis' word for the key's type: none, string, hash, …
	//	At time.Time             the moment, by the server's clock, as are all times here
	//	TTL time.Duration        until it ends unless renewed; 0: not there; negative: no expiry
	//	Mode string              of a read-write lock: read or write
	//	Holders []Holder         who is in, up to 1000
	//	HolderCount int          how many are
	//	Token int64              the last fencing token; 0: none
	//	Queue []Waiter           in line for a fair lock, the next first, up to 1000
	//	QueueLen int             how many are
	//	Writers, Readers []Waiter  who waits for a read-write lock, of Go processes
	//	Value int64              of a semaphore (permits free), latch or counter
	//	Permits []HeldPermit     that are out and expire, up to 1000
	//	PermitCount int          how many are
	//	Rate *Rate               of a rate limiter; nil of all else
	//	Listeners int64          connections that listen for news: about one per process that waits
	//
	// Methods:
	//
	//	Held() bool              somebody is in: a holder, or a permit that is out
	//	IsLock() bool            a lock stands there, of whichever kind
	//	String() string          one line for people
	//	Details() []string       its parts behind the kind
	Info = inspect.Info
	// Kind says which primitive stands at a name, as far as its keys show: a string,
	// such as "lock". See KindFree and its like.
	Kind = inspect.Kind
	// Holder is an owner that is in; String is one phrase. Fields:
	//
	//	Owner string        <client id>:<owner id>; see Client.ID
	//	Count int64         its number of holds
	//	Mode string         of a read-write lock: read or write
	//	TTL time.Duration   how long it lasts unless renewed; negative: no expiry; 0: a reader
	//	                    whose time is over, named until the next one looks
	Holder = inspect.Holder
	// Waiter is an owner that waits. Fields:
	//
	//	Owner string      <client id>:<owner id>
	//	Until time.Time   up to which its place is kept; zero if none is noted
	//	Alive bool        it counts: a Go process by its own word, a Java process, which
	//	                  gives none, as long as its place is kept
	Waiter = inspect.Waiter
	// HeldPermit is a permit that is out and expires. Fields:
	//
	//	ID string           as callers know it: 32 hex digits
	//	Expires time.Time   zero: never
	HeldPermit = inspect.Permit
	// Rate is the setting of a rate limiter; String is one phrase. Fields:
	//
	//	Permits int64             at most so many …
	//	Interval time.Duration    … in any span of this length
	//	PerClient bool            each client has a window of its own, and Available isn't known
	//	KeepAlive time.Duration   how long it stays without use; 0: for ever
	//	Available int64           how many permits the window has; negative: not known
	Rate = inspect.Rate
)

// Kinds of what stands at a name. What looks the same in Redis has one name here:
// a lock is plain, non-reentrant, spin, or fair without anybody waiting for it.
const (
	KindFree        = inspect.Free
	KindLock        = inspect.Lock
	KindFairLock    = inspect.FairLock
	KindFencedLock  = inspect.FencedLock
	KindRWLock      = inspect.RWLock
	KindSemaphore   = inspect.Semaphore
	KindExpirable   = inspect.ExpirableSemaphore
	KindLatch       = inspect.Latch
	KindCounter     = inspect.Counter // a semaphore, a latch, or a number of somebody's own
	KindRateLimiter = inspect.RateLimiter
	KindUnknown     = inspect.Unknown
)

// Inspect answers what stands at a name: which primitive, who holds it, who
// waits, until when. One round trip; all of it is of one moment. It changes
// nothing. A name without anything is an Info of KindFree, something that is no
// primitive one of KindUnknown; neither is an error. Errors: ErrInvalid for a bad
// name; ErrUnavailable if no answer came within the command timeout; ErrDenied;
// ErrClosed; the context's.
func (c *Client) Inspect(ctx context.Context, name string) (Info, error) {
	return inspect.One(ctx, c.services, name)
}

// Locks goes through all names that match a pattern of Redis (h*llo, h?llo,
// h[ae]llo) and have a primitive: locks of all kinds, semaphores, latches, rate
// limiters, each once. Numbers of other programs look like semaphores, and are
// shown as KindCounter; what is no primitive is left out. Locks that are free
// don't exist in Redis, but for the tokens of fenced ones.
//
//	for info, err := range client.Locks(ctx, "order:*") { … }
//
// Names are those given to this client: a prefix (WithPrefix) or a NameMapper that
// puts something around them is put around the pattern, and taken off again. With
// any other mapper the pattern is one for keys, and Name is the key.
//
// The server is asked with SCAN, a thousand keys at a time, on a cluster one
// master after the other, and names are read with pipelines. Each Info is of one
// moment, all together are not; what is there from the beginning to the end is
// found. It remembers the names that it has seen.
//
// An error without a name ends the sequence: ErrInvalid for an empty pattern,
// ErrUnavailable, ErrDenied, ErrClosed, the context's. One with a name (a key that
// this user may not read) doesn't.
func (c *Client) Locks(ctx context.Context, pattern string) iter.Seq2[Info, error] {
	return inspect.All(ctx, c.services, pattern)
}

// Watch answers what stands at a name now, and again whenever that changes: an
// owner comes or goes, somebody waits, a number moves. That leases run down or are
// renewed is no change. It looks when news of the name is published, and at least
// once a second; what comes and goes in between isn't seen.
//
// It ends with an error: ErrInvalid for a bad name, ErrDenied, ErrClosed, the
// context's. While Redis doesn't answer it says so once, with ErrUnavailable and
// the name, and goes on.
func (c *Client) Watch(ctx context.Context, name string) iter.Seq2[Info, error] {
	return inspect.Watch(ctx, c.services, name)
}
