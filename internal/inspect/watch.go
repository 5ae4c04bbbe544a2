package inspect

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/keys"
	"github.com/holdfast-go/holdfast/internal/script"
)

// watchEvery is how often a name is read where nothing is published: renewals,
// expiry, and what waits are not.
const watchEvery = time.Second

// Watch answers what stands at a name, and again after each change.
func Watch(ctx context.Context, s *hold.Services, name string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		if ctx == nil {
			yield(Info{}, hold.ErrNilContext("watch", name))
			return
		}
		key, err := s.Key(name)
		if err != nil {
			yield(Info{}, err)
			return
		}
		news := newNews(s, key)
		defer news.close()
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		var shown Info
		failed := false
		for first := true; ; first = false {
			info, err := One(ctx, s, name)
			switch {
			case err != nil && (ctx.Err() != nil || !script.Temporary(err)):
				yield(Info{}, err)
				return
			case err != nil:
				// Redis may come back. One word of it is enough.
				if !failed && !yield(Info{Name: name, Key: key, Kind: Unknown}, err) {
					return
				}
				failed = true
			case first || failed || !same(shown, info):
				if !yield(info, nil) {
					return
				}
				shown, failed = info, false
			}
			news.follow(info)
			select {
			case <-news.wake:
			case <-tick.C:
			case <-s.Loop.Closed:
				yield(Info{}, fmt.Errorf("%w: watching %s", errs.ErrClosed, errs.Quote(name)))
				return
			case <-ctx.Done():
				yield(Info{}, fmt.Errorf("holdfast: watch %s: %w", errs.Quote(name), script.ContextError(ctx)))
				return
			}
		}
	}
}

// same reports whether nothing happened between a and b but that time went by:
// leases ran down, places in line came nearer, and went up again by a renewal.
func same(a, b Info) bool {
	still := func(i Info) Info {
		i.At, i.TTL, i.Listeners = time.Time{}, min(max(i.TTL, -1), 1), 0
		i.Holders = cloned(i.Holders, func(h *Holder) { h.TTL = min(max(h.TTL, -1), 1) })
		i.Queue = cloned(i.Queue, func(w *Waiter) { w.Until = time.Time{} })
		i.Writers = cloned(i.Writers, func(w *Waiter) { w.Until = time.Time{} })
		i.Readers = cloned(i.Readers, func(w *Waiter) { w.Until = time.Time{} })
		i.Permits = cloned(i.Permits, func(p *Permit) { p.Expires = time.Time{} })
		return i
	}
	return reflect.DeepEqual(still(a), still(b))
}

func cloned[T any](list []T, change func(*T)) []T {
	var out []T
	for _, v := range list {
		change(&v)
		out = append(out, v)
	}
	return out
}

// news are the channels of a name, as one.
type news struct {
	services *hold.Services
	key      string
	wake     chan struct{} // one slot
	stop     chan struct{}
	wg       sync.WaitGroup
	heads    string // who is followed in the queue
	leave    func() // that one's channel
}

func newNews(s *hold.Services, key string) *news {
	n := &news{services: s, key: key, wake: make(chan struct{}, 1), stop: make(chan struct{})}
	for _, channel := range Channels(key) {
		n.listen(channel, n.stop)
	}
	return n
}

// listen passes on what wakes a channel's waiters until stop is closed.
func (n *news) listen(channel string, stop <-chan struct{}) {
	sub := n.services.Loop.Subscribe(channel)
	n.wg.Go(func() {
		defer sub.Close()
		ready := sub.Ready()
		for {
			select {
			case <-ready:
				ready = nil // what came before went unheard
			case <-sub.Wake():
			case <-stop:
				return
			}
			select {
			case n.wake <- struct{}{}:
			default:
			}
		}
	})
}

// follow listens on the channel of who is next in line: there a fair lock's
// release is told.
func (n *news) follow(i Info) {
	head := ""
	if len(i.Queue) > 0 {
		head = i.Queue[0].Owner
	}
	if head == n.heads {
		return
	}
	if n.leave != nil {
		n.leave()
	}
	n.heads, n.leave = head, nil
	if head != "" {
		stop := make(chan struct{})
		n.leave = func() { close(stop) }
		n.listen(keys.Prefixed("redisson_lock__channel", n.key)+":"+head, stop)
	}
}

func (n *news) close() {
	if n.leave != nil {
		n.leave()
	}
	close(n.stop)
	n.wg.Wait()
}
