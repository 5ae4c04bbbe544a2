package hold

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/keys"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/script"
	"github.com/holdfast-go/holdfast/internal/task"
	"github.com/holdfast-go/holdfast/internal/wait"
)

// Watchdog keeps leases; see package watchdog.
type Watchdog interface {
	Keep(*lease.Lease)
	Stop(*lease.Lease)
	Reschedule(*lease.Lease)
}

// Services are what all locks of one client share.
type Services struct {
	ClientID string
	Runner   *script.Runner
	Tasks    *task.Group
	Loop     *wait.Loop
	Watchdog Watchdog
	// Lease is what a hold that is renewed asks for.
	Lease time.Duration
	// FairTimeout is how long the place of a waiter is kept for which no time to
	// wait was given.
	FairTimeout time.Duration
	// Patience is how long a call goes on without an answer.
	Patience time.Duration
	// MapName makes the key of a name.
	MapName func(string) string
	Log     *slog.Logger
	// Observe is told events; nil if nobody wants to know. See Tell.
	Observe func(event.Event)

	ledger     ledger
	keepers    keepers
	mutePubSub sync.Once // logs once that PUBLISH is refused
}

// Key makes the key of a name, and refuses a name that can have none.
func (s *Services) Key(name string) (string, error) {
	if err := keys.Check(name); err != nil {
		return "", err
	}
	key := s.MapName(name)
	return key, keys.Check(key)
}

// names is what a lock object knows of its name, made once. The values of type
// any are what go-redis takes: boxed once instead of at every call.
type names struct {
	*Services
	kind       Kind
	name, key  string
	channel    string
	keyArg     any
	channelArg any
	marker     string // what the markers of this client's requests start with
	ledgerKey  string // the key, with the mode of a Mode
	mode       Mode   // kind, if it is one
	leaver     Leaver // likewise
	queueKind  Queue  // likewise
	queues     bool   // what the kind's Queues answers
	usual      usual
	leased     lease.Subject
	more       []any // keys of a Keyed kind
	tokenKey   any   // of a Fenced kind
	// delay is a Spinner's.
	delay func(attempt int) time.Duration
}

func (s *Services) newNames(kind Kind, name, key string) *names {
	n := &names{Services: s, kind: kind, name: name, key: key, channel: kind.Channel(key)}
	n.keyArg, n.channelArg, n.marker = key, n.channel, s.Runner.MarkerPrefix(key)
	n.ledgerKey = ledgerKey(kind, key)
	n.leased = lease.Subject{Name: name, Key: key, Kind: kind.ID()}
	n.mode, _ = kind.(Mode)
	n.leaver, _ = kind.(Leaver)
	n.queueKind, _ = kind.(Queue)
	n.queues = kind.Queues()
	if keyed, ok := kind.(Keyed); ok {
		n.more = keyed.Keys(key)
	}
	if f, ok := kind.(Fenced); ok {
		n.tokenKey = f.TokenKey(key)
	}
	if spins, ok := kind.(Spinner); ok {
		n.delay = spins.Delay
	}
	n.usual.none = n.mode != nil || n.leaver != nil || n.queueKind != nil || n.tokenKey != nil || n.more != nil
	return n
}

// args are the arguments that all requests on a name have.
func (n *names) args() Args { return n.argsWith(n.Runner.NewMarker(n.marker)) }

func (n *names) argsWith(marker any) Args {
	return Args{Keys: script.Keys{Key: n.keyArg, Marker: marker, More: n.more}, Channel: n.channelArg}
}

// usual are the requests of a name that nearly all are: to be in once, for the lease
// that is renewed, and to give that back. They differ in marker and owner alone, so the
// first of each is made as all others are, and then copied.
//
// Their scripts write no marker for a first copy. So the name of one that was answered
// at its first copy, and won't be undone, stands for nothing, and serves the next
// request of the same object: a name that Redis hasn't seen costs it, and us, more than
// one that it has.
type usual struct {
	none             bool // this kind's requests differ in more
	acquire, release atomic.Pointer[script.Call]
	marker           atomic.Pointer[marker] // to be used next; may be nil
}

// keep notes a request to make others after. It isn't sent itself: somebody's hook may
// change what is.
func keep(at *atomic.Pointer[script.Call], c script.Call) *script.Call {
	at.Store(&c)
	return &c
}

// marker is the name of one, boxed.
type marker struct{ arg any }

// spareMarker answers a marker for a usual request, which nobody else has then.
func (n *names) spareMarker() *marker {
	if m := n.usual.marker.Swap(nil); m != nil {
		return m
	}
	return &marker{n.Runner.NewMarker(n.marker)}
}

// answered takes back the marker of a usual request that is over. m may be nil.
func (n *names) answered(m *marker, reply script.Reply) {
	if m != nil && reply.Err == nil && !reply.Resent {
		n.usual.marker.Store(m)
	}
}

// Args are the arguments of one request of a lock's script.
type Args struct {
	script.Keys
	Channel any // where a release is published
	Field   any // of the owner
	Count   int
	Lease   time.Duration
	// To is the field that a transfer gives the hold to, which then has Count.
	To string
	// Leases are what each hold that stays is to have from now on: for a Mode.
	Leases []time.Duration
	// Waits: a refusal isn't the end. For a Leaver.
	Waits bool

	// TokenKey is where a fenced lock's last token stands, Token what the owner's
	// holds have, or 0. MaybeIn: the owner's field may be left from a hold that is
	// over here.
	TokenKey any
	Token    int64
	MaybeIn  bool

	// Place is where the owner of a Queue stands.
	Place Place
}

// Kind is what one kind of lock adds: its scripts.
type Kind interface {
	// ID names the kind in handles.
	ID() string
	// Channel is where a release of key is published.
	Channel(key string) string
	// Queues reports whether waiters stand in line in Redis, or nowhere, but not
	// here.
	Queues() bool

	// Acquire answers as acquire.lua does, Release as release.lua, Extend as
	// extend.lua, Force as force.lua, Transfer as transfer.lua.
	Acquire(Args) script.Call
	Release(Args) script.Call
	Extend(Args) script.Call
	Force(Args) script.Call
	Transfer(Args) script.Call

	// Renewal is the kind's way of renewing; kinds that share a script share it.
	Renewal() *lease.Renewal
}

// Spinner is a Kind whose releases are told to nobody: who waits asks again
// after a time of its own, which grows with the number of refusals, or doesn't.
type Spinner interface {
	Kind
	Delay(attempt int) time.Duration
}

// Answers of a lock's scripts.
const (
	grantedFirst = 1  // acquire: it was free
	grantedAgain = 2  // acquire, transfer: the owner was in it
	refusedEver  = 3  // acquire: taken, without expiry
	foreignHash  = 4  // acquire, force: another primitive's hash
	badToken     = 5  // acquire: the token key holds none, or the last there is
	upgrade      = 6  // acquire, transfer: the owner holds it in the other mode, too
	refusedFor   = 10 // acquire: taken for so many ms less this
	notThere     = 0  // release, extend, force, transfer: the owner doesn't hold it
	unheard      = 2  // release, force: done, but PUBLISH was refused
	untold       = 3  // release, force: done, and nobody was to be told
)

// Send sends a request for as long as within.
func (s *Services) Send(ctx context.Context, within time.Duration, c script.Call) script.Reply {
	now := time.Now()
	return s.Runner.Do(ctx, now, now.Add(within), c)
}

// Drain takes no new holds, and answers when all present ones are given back and
// what was being acquired is undone, or when ctx ends.
func (s *Services) Drain(ctx context.Context) error {
	s.ledger.mu.Lock()
	s.ledger.draining = true
	s.ledger.mu.Unlock()

	// Not WithContext: one failure must not keep the others from being freed.
	var g errgroup.Group
	g.SetLimit(16)
	var mu sync.Mutex
	var failed []error
	for _, e := range s.holders() {
		g.Go(func() error {
			for r := s.latest(e.ledgerKey, e.field); r != nil; r = s.latest(e.ledgerKey, e.field) {
				if ctx.Err() != nil {
					mu.Lock()
					defer mu.Unlock()
					failed = append(failed, fmt.Errorf("%w: %s is left to its lease: %w", errs.ErrUncertain, errs.Quote(e.name), script.ContextError(ctx)))
					return nil
				}
				err := s.release(ctx, r)
				if err != nil && !errors.Is(err, errs.ErrNotHeld) {
					mu.Lock()
					failed = append(failed, err)
					mu.Unlock()
				}
			}
			return nil
		})
	}
	_ = g.Wait() // no goroutine of it fails
	failed = append(failed, s.keepers.drain(ctx, s.Patience)...)
	s.ledger.awaitEmpty(ctx, s.Patience)
	return errors.Join(failed...)
}

// lastPlaces is how long Abandon waits for those who leave a queue.
const lastPlaces = time.Second

// Abandon ends all holds here; in Redis they are left to expire.
func (s *Services) Abandon() {
	s.ledger.mu.Lock()
	s.ledger.draining = true
	queues := s.ledger.queuesLocked()
	s.ledger.mu.Unlock()
	for _, e := range s.holders() {
		e.loseIf(errs.ErrClosed, closed, func(*record) bool { return true })
	}
	s.keepers.abandon()
	if queues { // those who wait are told; their places should go with them
		s.ledger.awaitEmpty(context.Background(), lastPlaces)
	}
}

// otherHash is what InvalidKey says of a hash that isn't laid out as this kind of
// lock: it may well be a lock of another kind that is held, so nobody should
// remove it for the sake of this call.
const otherHash = "a hash of another kind: another kind of lock, which may be held, or data"

// invalidKey explains a key that isn't a lock of ours.
func (s *Services) invalidKey(ctx context.Context, name, key string, err error) error {
	what := otherHash
	if err != nil {
		what = ""
	}
	return s.InvalidKey(ctx, name, key, what)
}

// InvalidKey is the error of a name whose key holds something else than it
// should: what, or if that is empty a value of the type that Redis says.
func (s *Services) InvalidKey(ctx context.Context, name, key, what string) error {
	if what == "" {
		what = "a value of another type"
		t, err := Query(ctx, s, func(ctx context.Context) (string, error) { return s.Runner.Redis().Type(ctx, key).Result() })
		if err == nil {
			what = "a " + t
		}
	}
	return errs.Invalid("name %s: the key %s holds %s; it was left untouched. Use one kind per name: holdfast inspect %[2]s shows what it is and who is in",
		errs.Quote(name), errs.Quote(key), what)
}

// Query runs a reading command and leaves it at the end of ctx.
func Query[T any](ctx context.Context, s *Services, run func(context.Context) (T, error)) (T, error) {
	type result struct {
		val T
		err error
	}
	var zero T
	if s.Tasks.Context().Err() != nil {
		return zero, errs.ErrClosed
	}
	res, ok := task.Leave(s.Tasks, ctx.Done(), func() result {
		val, err := run(ctx)
		return result{val, err}
	}, nil)
	switch {
	case !ok && ctx.Err() == nil:
		return zero, errs.ErrClosed
	case !ok:
		return zero, script.ContextError(ctx)
	case res.err != nil:
		return zero, script.Explain(res.err)
	}
	return res.val, nil
}

// Gone is the error of a call whose caller had to leave before an answer. It
// carries the last failure along, if there was one.
func (s *Services) Gone(ctx context.Context, what, name string, f *script.Failure) error {
	last := f.Err()
	switch {
	case ctx.Err() == nil:
		return fmt.Errorf("%w: %s %s", errs.ErrClosed, what, errs.Quote(name))
	case errors.Is(context.Cause(ctx), script.ErrPatience): // not the caller's end
		if last == nil {
			last = fmt.Errorf("%w: %w", errs.ErrUnavailable, script.ErrPatience)
		}
		return fmt.Errorf("holdfast: %s %s: %w", what, errs.Quote(name), last)
	case last != nil:
		return fmt.Errorf("holdfast: %s %s: %w (%w)", what, errs.Quote(name), script.ContextError(ctx), last)
	}
	return fmt.Errorf("holdfast: %s %s: %w", what, errs.Quote(name), script.ContextError(ctx))
}
