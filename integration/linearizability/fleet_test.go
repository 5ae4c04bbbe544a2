package linearizability

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/internal/history"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

const (
	clients = 3   // processes, as far as the server knows
	workers = 4   // goroutines of each
	length  = 900 // of a history, in calls

	// names are in use at a time. After so many calls come new ones: the longer
	// the history of a name, the more orders of its open calls there are to search.
	names    = 3
	perNames = 60
)

// fleet makes clients whose links lose some of the replies.
func fleet(t *testing.T, seed uint64) (all []*holdfast.Client) {
	t.Helper()
	for i := range uint64(clients) {
		proxy := faultproxy.New(t, server.Addr())
		scripts := faultproxy.Cmd("evalsha", "eval")
		proxy.Add(faultproxy.Rule{Match: faultproxy.All(scripts, faultproxy.Prob(0.01, seed+2*i)), Do: faultproxy.DropReply})
		proxy.Add(faultproxy.Rule{Match: faultproxy.All(scripts, faultproxy.Prob(0.02, seed+2*i+1)), Do: faultproxy.CloseAfterForward})
		rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: 200 * time.Millisecond})
		// The patience is below the read timeout, so that a lost reply is an open
		// call for those who don't wait.
		c, err := holdfast.New(rdb, holdfast.WithCommandTimeout(100*time.Millisecond))
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, c.Close())
			require.NoError(t, rdb.Close())
		})
		all = append(all, c)
	}
	return all
}

// worker makes calls, one after the other, and records them.
type worker struct {
	*testing.T
	*record
	*rand.Rand
	client *holdfast.Client
}

// run lets all workers do as they like until the history is long enough.
func run(t *testing.T, k history.Kind, does func(*worker)) *record {
	t.Helper()
	h, seed := &record{kind: k}, rand.Uint64()
	t.Logf("seed %d", seed)
	var wg sync.WaitGroup
	for i, c := range fleet(t, seed) {
		for j := range workers {
			w := &worker{T: t, record: h, Rand: rand.New(rand.NewPCG(seed, uint64(i*workers+j))), client: c}
			wg.Go(func() {
				for h.size() < length && !t.Failed() {
					does(w)
				}
			})
		}
	}
	wg.Wait()
	return h
}

// connect makes a client with a link that loses nothing, and empties the server
// of what another run of the test has left.
func connect(t *testing.T) *holdfast.Client {
	t.Helper()
	require.NoError(t, server.Client(t).FlushAll(t.Context()).Err())
	c, err := holdfast.Open(server.URL())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// settles is how long what goes on behind the calls may take: less than a lease,
// which would end a hold that was left.
const settles = 15 * time.Second

// eventually waits for what goes on behind the calls.
func eventually(t *testing.T, what string, cond func(*redis.Client) (bool, error)) {
	t.Helper()
	look := server.Client(t)
	redistest.Eventually(t, settles, func() bool {
		ok, err := cond(look)
		return err == nil && ok
	}, "%s", what)
}

// nothingHeld waits until all names of a test are free.
func nothingHeld(t *testing.T) {
	t.Helper()
	eventually(t, "all names are free", func(rdb *redis.Client) (bool, error) {
		left, err := rdb.Keys(t.Context(), t.Name()+"-*").Result()
		return len(left) == 0, err
	})
}

// name is one of those that are in use.
func (w *worker) name() string {
	return nameOf(w.T, w.size()/perNames*names+w.IntN(names))
}

func nameOf(t *testing.T, i int) string { return fmt.Sprintf("%s-%d", t.Name(), i) }

func (w *worker) chance(p float64) bool { return w.Float64() < p }

// impatient is a context that ends soon.
func (w *worker) impatient(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, w.upTo(15*time.Millisecond))
}

func (w *worker) upTo(d time.Duration) time.Duration { return time.Duration(w.Int64N(int64(d))) }

// pause is the work under a lock.
func (w *worker) pause() {
	<-time.After(w.upTo(2 * time.Millisecond))
}

// begin is a call that is about to be made.
func begin(op history.Op) history.Op {
	op.Start = history.Now()
	return op
}

// took records a call that wanted something, and reports whether it got it.
func (w *worker) took(op history.Op, err error) bool {
	switch {
	case err == nil:
		w.add(op, history.Done)
		return true
	case errors.Is(err, holdfast.ErrNotAcquired), errors.Is(err, holdfast.ErrUpgrade):
		w.add(op, history.Refused)
	case unanswered(err):
		w.add(op, history.Unknown)
	default:
		w.Errorf("%s %s: %v", op.Call, op.Name, err)
	}
	return false
}

// gave records a call that gave something back.
func (w *worker) gave(op history.Op, err error) {
	switch {
	case err == nil:
		w.add(op, history.Done)
	case unanswered(err):
		w.add(op, history.Unknown)
	default:
		w.Errorf("%s %s: %v", op.Call, op.Name, err)
	}
}

// saw records a look, unless there was no answer.
func (w *worker) saw(op history.Op, n int64, err error) {
	switch {
	case err == nil:
		op.Value = n
		w.add(op, history.Done)
	case !unanswered(err):
		w.Errorf("%s %s: %v", op.Call, op.Name, err)
	}
}

func unanswered(err error) bool {
	return errors.Is(err, holdfast.ErrUncertain) || errors.Is(err, holdfast.ErrUnavailable) ||
		errors.Is(err, context.DeadlineExceeded)
}

// requireTelling fails for a history in which too little happened.
func requireTelling(t *testing.T, h *record, c history.Call) {
	t.Helper()
	done, refused, open := h.count(c, history.Done), h.count(c, history.Refused), h.count(c, history.Unknown)
	counts := fmt.Sprintf("%s: %d granted, %d refused, %d open", c, done, refused, open)
	t.Log(counts)
	require.GreaterOrEqual(t, done, length/40, counts)
	require.NotZero(t, refused, counts)
	require.NotZero(t, open, counts)
}
