package faultproxy

import "sync"

// queue is an unbounded queue with one reader, which can wait for a message and
// for other events at once.
type queue[T any] struct {
	wake chan struct{} // one slot: something changed

	mu    sync.Mutex
	items []T
	ended bool
}

func newQueue[T any]() *queue[T] {
	return &queue[T]{wake: make(chan struct{}, 1)}
}

// push adds v, unless the queue was ended. It never blocks.
func (q *queue[T]) push(v T) {
	q.mu.Lock()
	if !q.ended {
		q.items = append(q.items, v)
	}
	q.mu.Unlock()
	q.signal()
}

// end says that nothing more comes. What is queued can still be taken.
func (q *queue[T]) end() {
	q.mu.Lock()
	q.ended = true
	q.mu.Unlock()
	q.signal()
}

// drop is the reader's end: it takes nothing any more.
func (q *queue[T]) drop() {
	q.mu.Lock()
	q.ended, q.items = true, nil
	q.mu.Unlock()
}

// take waits for items and returns all there are. It returns false when the queue
// has ended and is empty, or when stop is closed.
func (q *queue[T]) take(stop <-chan struct{}) ([]T, bool) {
	for {
		q.mu.Lock()
		items, ended := q.items, q.ended
		q.items = nil
		q.mu.Unlock()
		if len(items) > 0 {
			return items, true
		}
		if ended {
			return nil, false
		}
		select {
		case <-q.wake:
		case <-stop:
			return nil, false
		}
	}
}

func (q *queue[T]) signal() {
	select {
	case q.wake <- struct{}{}:
	default: // a signal is waiting already
	}
}
