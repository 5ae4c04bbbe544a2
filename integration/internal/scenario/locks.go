package scenario

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/rlock"
)

// Lock is a kind of lock under test.
type Lock struct {
	Name         string
	Make         func(c *holdfast.Client, name string) rlock.Locker
	NonReentrant bool
	// Shared: read holds of a read-write lock, whose rival is its write side.
	Shared    bool
	ReadWrite bool
}

// Locks are all kinds, the plain one first.
func Locks() []Lock {
	return []Lock{
		{Name: "Lock", Make: func(c *holdfast.Client, name string) rlock.Locker { return c.Lock(name) }},
		{Name: "LockNonReentrant", NonReentrant: true, Make: func(c *holdfast.Client, name string) rlock.Locker {
			return c.Lock(name, rlock.NonReentrant())
		}},
		{Name: "FairLock", Make: func(c *holdfast.Client, name string) rlock.Locker { return c.FairLock(name) }},
		{Name: "FencedLock", Make: func(c *holdfast.Client, name string) rlock.Locker { return c.FencedLock(name) }},
		{Name: "SpinLock", Make: func(c *holdfast.Client, name string) rlock.Locker { return c.SpinLock(name, nil) }},
		{Name: "WriteLock", ReadWrite: true, Make: func(c *holdfast.Client, name string) rlock.Locker { return c.RWLock(name).Write() }},
		{Name: "ReadLock", ReadWrite: true, Shared: true, Make: func(c *holdfast.Client, name string) rlock.Locker { return c.RWLock(name).Read() }},
		{Name: "MultiLock", Make: func(c *holdfast.Client, name string) rlock.Locker {
			return c.MultiLock(c.Lock(name), c.Lock(name+":2"), c.Lock(name+":3")) // in three slots
		}},
	}
}

// made remembers which client made a lock.
type made struct {
	mu sync.Mutex
	by map[rlock.Locker]*holdfast.Client
}

func (m *made) note(l rlock.Locker, c *holdfast.Client) rlock.Locker {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.by == nil {
		m.by = make(map[rlock.Locker]*holdfast.Client)
	}
	m.by[l] = c
	return l
}

func (m *made) client(l rlock.Locker) *holdfast.Client {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.by[l]
}

// rival is what keeps out a kind's holds, where that isn't the same lock.
func (l Lock) rival(m *made) func(rlock.Locker) rlock.Locker {
	if !l.Shared {
		return nil
	}
	return func(x rlock.Locker) rlock.Locker { return m.client(x).RWLock(x.Name()).Write() }
}

// Contract runs the contract suite for a kind.
func (p Place) Contract(t *testing.T, l Lock) {
	m := &made{}
	locktest.Run(t, locktest.Kind{
		Redis:        p.Redis(t),
		NonReentrant: l.NonReentrant,
		ReadWrite:    l.ReadWrite,
		Rival:        l.rival(m),
		New: func(t *testing.T, lease time.Duration) func(string) rlock.Locker {
			c := p.With(t, locktest.Link{Lease: lease})
			return func(name string) rlock.Locker { return m.note(l.Make(c, name), c) }
		},
		Resume: func(x rlock.Locker, ctx context.Context, handle string) (*rlock.Hold, error) {
			return m.client(x).Resume(ctx, handle)
		},
	})
}

// Faults plays the scenarios that concern any lock for a kind.
func (p Place) Faults(t *testing.T, l Lock) {
	m := &made{}
	locktest.RunFaults(t, locktest.Place{
		Redis: p.Redis(t),
		Quiet: p.Quiet,
		Rival: l.rival(m),
		Connect: func(t *testing.T, link locktest.Link) locktest.Party {
			c := p.Via(t, link)
			return locktest.Party{
				Lock:    func(name string) rlock.Locker { return m.note(l.Make(c.Client, name), c.Client) },
				Proxies: c.All(),
				Sent:    c.Sent,
			}
		},
	})
}
