package hold

import (
	"context"
	"sync"
	"time"
)

// Keeper keeps holds of its own kind beside the ledger: permits, for example.
// There is one per client and kind.
type Keeper interface {
	// Drain takes no new ones, gives back all that there are, and answers what
	// could not be given back.
	Drain(ctx context.Context) error
	// Abandon takes no new ones, and ends all here with ErrClosed; in Redis
	// they are left to expire.
	Abandon()
}

// keepers are the keepers of a client by kind, and its requests that must not be
// cut off by a shutdown.
type keepers struct {
	mu     sync.Mutex
	byKind map[string]Keeper
	// pending counts the requests under way; idle is closed when there are none
	// any more, nil if nobody waits for that.
	pending int
	idle    chan struct{}
}

// Keeper answers the client's keeper of a kind, made by first at the first call.
func (s *Services) Keeper(kind string, first func() Keeper) Keeper {
	k := &s.keepers
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byKind[kind] == nil {
		if k.byKind == nil {
			k.byKind = make(map[string]Keeper)
		}
		k.byKind[kind] = first()
	}
	return k.byKind[kind]
}

// Begin notes a request that Shutdown should wait for, until End.
func (s *Services) Begin() {
	k := &s.keepers
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pending++
}

// End is the counterpart of Begin.
func (s *Services) End() {
	k := &s.keepers
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pending--
	if k.pending == 0 && k.idle != nil {
		close(k.idle)
		k.idle = nil
	}
}

func (k *keepers) all() []Keeper {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]Keeper, 0, len(k.byKind))
	for _, keeper := range k.byKind {
		all = append(all, keeper)
	}
	return all
}

// drain has every keeper give back what it keeps, and waits until no request is
// under way, for as long as within at most.
func (k *keepers) drain(ctx context.Context, within time.Duration) (failed []error) {
	for _, keeper := range k.all() {
		if err := keeper.Drain(ctx); err != nil {
			failed = append(failed, err)
		}
	}
	k.mu.Lock()
	if k.pending == 0 {
		k.mu.Unlock()
		return failed
	}
	if k.idle == nil {
		k.idle = make(chan struct{})
	}
	idle := k.idle
	k.mu.Unlock()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-idle:
	case <-ctx.Done():
	case <-timer.C:
	}
	return failed
}

func (k *keepers) abandon() {
	for _, keeper := range k.all() {
		keeper.Abandon()
	}
}

// NewHandle is the text of a handle for something of kind that field stands for
// in Redis; see ParseHandle and HandleField.
func NewHandle(kind, name, field string) string {
	return handle{Kind: kind, Name: []byte(name), Field: field}.String()
}

// HandleField answers the field of a handle.
func HandleField(text string) (string, error) {
	h, err := parseHandle(text)
	return h.Field, err
}
