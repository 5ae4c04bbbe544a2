// Package inspect reads what stands at a name in Redis: which primitive, who
// holds it, who waits, until when. It reads the keys alone, so that it tells of
// Java processes as well.
package inspect

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/errs"
)

// Kind says which primitive stands at a name, as far as its keys show.
type Kind string

// Kinds. What looks the same in Redis has one name here.
const (
	// Free: nothing stands there, and nobody waits.
	Free Kind = "free"
	// Lock: a re-entrant, non-reentrant or spin lock; or a fair one for which
	// nobody waits.
	Lock Kind = "lock"
	// FairLock: a lock for which somebody waits in line.
	FairLock Kind = "fair lock"
	// FencedLock: a lock with a fencing token. It may be free: tokens stay.
	FencedLock Kind = "fenced lock"
	// RWLock: a read-write lock.
	RWLock Kind = "read-write lock"
	// Semaphore: a number below 1, or one on whose channel somebody waits.
	Semaphore Kind = "semaphore"
	// ExpirableSemaphore: a number with permits that expire.
	ExpirableSemaphore Kind = "expirable semaphore"
	// Latch: a number on whose channel somebody waits, or a latch that was open
	// a moment ago.
	Latch Kind = "latch"
	// Counter: a number: a semaphore, a latch, or one of somebody's own.
	Counter Kind = "counter"
	// RateLimiter: a rate limiter.
	RateLimiter Kind = "rate limiter"
	// Unknown: something that is none of these.
	Unknown Kind = "unknown"
)

// Info is what stood at a name at one moment.
type Info struct {
	// Name is the name that was asked for; Key is it as it stands in Redis.
	Name, Key string
	Kind      Kind
	// Type is Redis' word for the key's type: none, string, hash, ….
	Type string
	// At is the moment, by the server's clock, as are all times here.
	At time.Time
	// TTL is how long the key lives unless it is renewed: 0 if it isn't there,
	// negative if it has no expiry.
	TTL time.Duration
	// Mode of a read-write lock: read or write.
	Mode string
	// Holders are who is in, up to Limit of them; HolderCount is how many.
	Holders     []Holder
	HolderCount int
	// Token is the last fencing token; 0 without one.
	Token int64
	// Queue is who waits in line for a fair lock, the next first, up to Limit;
	// QueueLen is how many do.
	Queue    []Waiter
	QueueLen int
	// Writers and Readers are who waits for a read-write lock, as far as Go
	// processes say so.
	Writers, Readers []Waiter
	// Value is the number of a semaphore, a latch or a counter. Of the permits
	// that expire those that have are free, and counted.
	Value int64
	// Permits are those that are out and expire, up to Limit; PermitCount is how
	// many are.
	Permits     []Permit
	PermitCount int
	// Rate of a rate limiter.
	Rate *Rate
	// Listeners is how many connections listen for news, on the server that was
	// asked: about one per process that waits. Those of a fair lock listen apart.
	Listeners int64
}

// Limit is the length of the longest list in an Info.
const Limit = 1000

// Holder is an owner that is in.
type Holder struct {
	// Owner is <client id>:<owner id>.
	Owner string
	// Count is its number of holds.
	Count int64
	// Mode, of a read-write lock: read or write.
	Mode string
	// TTL is how long it lasts unless it is renewed; negative if it has no expiry.
	// A reader whose time is over is still named until the next one looks: 0.
	TTL time.Duration
}

// Waiter is an owner that waits.
type Waiter struct {
	Owner string
	// Until is the time up to which its place is kept, zero if none is noted.
	Until time.Time
	// Alive says that it counts: a Go process by its own word, a Java process,
	// which gives none, as long as its place is kept.
	Alive bool
}

// Permit is one that is out and expires.
type Permit struct {
	// ID as callers know it: 32 hex digits.
	ID string
	// Expires is when; zero: never.
	Expires time.Time
}

// Rate is the setting of a rate limiter.
type Rate struct {
	Permits  int64
	Interval time.Duration
	// PerClient: each client has a window of its own, and Available isn't known.
	PerClient bool
	// KeepAlive is how long it stays without use; 0: forever.
	KeepAlive time.Duration
	// Available is how many permits the window has; negative if that isn't known.
	Available int64
}

// Held reports whether somebody is in: a holder, or a permit that is out.
func (i Info) Held() bool { return i.HolderCount > 0 || i.PermitCount > 0 }

// IsLock reports whether a lock stands there, of whichever kind.
func (i Info) IsLock() bool {
	switch i.Kind {
	case Lock, FairLock, FencedLock, RWLock:
		return true
	}
	return false
}

// String is one line for people.
func (i Info) String() string {
	return fmt.Sprintf("%s: %s", errs.Quote(i.Name), strings.Join(append([]string{string(i.Kind)}, i.Details()...), ", "))
}

// Details are what String says behind the kind, part by part.
func (i Info) Details() []string {
	var d []string
	add := func(format string, args ...any) { d = append(d, fmt.Sprintf(format, args...)) }
	switch i.Kind {
	case Free:
		return nil
	case Unknown:
		add("a Redis %s", i.Type)
		return d
	case Semaphore, ExpirableSemaphore:
		add("%d free", i.Value)
	case Latch, Counter:
		add("%d", i.Value)
	case RateLimiter:
		d = append(d, i.Rate.String())
	default:
		switch {
		case i.HolderCount == 0:
			add("free")
		case i.HolderCount == 1 && len(i.Holders) == 1:
			d = append(d, i.Holders[0].String())
		case i.HolderCount == 2 && len(i.Holders) == 2 && i.Holders[0].Owner == i.Holders[1].Owner:
			d = append(d, i.Holders[0].String(), "who reads too")
		default:
			add("%d %sers", i.HolderCount, strings.TrimSuffix(i.Mode, "e"))
		}
	}
	if i.PermitCount > 0 {
		add("%d permits out", i.PermitCount)
	}
	if i.Token > 0 {
		add("token %d", i.Token)
	}
	if n := i.QueueLen + len(i.Writers) + len(i.Readers); n > 0 {
		add("%d waiting", n)
	}
	switch {
	case i.TTL > 0:
		add("for %v", i.TTL.Round(100*time.Millisecond))
	case i.TTL < 0 && i.IsLock():
		add("without expiry")
	}
	return d
}

// String is one phrase for people.
func (h Holder) String() string {
	s := "held by " + Text(h.Owner)
	switch h.Mode {
	case "read":
		s = "read by " + Text(h.Owner)
	case "write":
		s = "written by " + Text(h.Owner)
	}
	if h.Count > 1 {
		s += fmt.Sprintf(" (%d times)", h.Count)
	}
	return s
}

// String is one phrase for people.
func (r *Rate) String() string {
	s := fmt.Sprintf("%d per %v", r.Permits, r.Interval)
	if r.PerClient {
		return s + " and client"
	}
	if r.Available >= 0 {
		s += fmt.Sprintf(", %d left", r.Available)
	}
	return s
}
