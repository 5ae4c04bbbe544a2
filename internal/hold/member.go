package hold

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/errs"
)

// Ref is embedded by the types that users see around a Mutex. It leads this
// package, and no other, to the Mutex inside.
type Ref struct{ to *Mutex }

// Ref leads to m.
func (m *Mutex) Ref() Ref { return Ref{m} }

func (r Ref) inside() *Mutex    { return r.to }
func (m *Mutex) inside() *Mutex { return m }

// Member is one lock of several.
type Member struct {
	Locker
	mutex *Mutex // nil for a Locker of the user's own
	alone bool   // is taken through its methods only
}

// NewMembers looks at Lockers that a user gave. plain tells those whose methods
// do nothing else than their Mutex, so that several may share a script call: a
// type around a lock may override them.
func NewMembers(locks []Locker, plain func(Locker) bool) ([]Member, error) {
	ms := make([]Member, len(locks))
	var err error
	for i, l := range locks {
		if v := reflect.ValueOf(l); l == nil || v.Kind() == reflect.Pointer && v.IsNil() {
			if err == nil {
				err = errs.Invalid("lock number %d of several is nil: give it locks only", i+1)
			}
			continue
		}
		ms[i] = Member{Locker: l, alone: true}
		if in, ok := l.(interface{ inside() *Mutex }); ok {
			ms[i].mutex = in.inside()
			ms[i].alone = ms[i].mutex == nil || ms[i].mutex.batched() == nil || !plain(l)
		}
	}
	return ms, err
}

func joinNames(ms []Member) string {
	names := make([]string, 0, len(ms))
	for _, m := range ms {
		if m.Locker != nil {
			names = append(names, m.Name())
		}
	}
	return strings.Join(names, ",")
}

// arrange puts members into the order in which everybody asks for them, whatever
// the process, and leaves out those that were given twice.
func arrange(ms []Member) ([]Member, error) {
	out := make([]Member, 0, len(ms))
	for _, m := range ms {
		if m.mutex != nil && m.mutex.err != nil {
			return nil, m.mutex.err
		}
		again := false
		for _, o := range out {
			again = again || m.same(o)
			if m.mutex != nil && o.mutex != nil && m.mutex.Services != o.mutex.Services && m.mutex.key == o.mutex.key && m.server() == o.server() {
				return nil, errs.Invalid("lock %s was given twice, by two clients of one server: they are two owners, of whom the second would wait for the first for ever; use one client", errs.Quote(m.Name()))
			}
		}
		if !again {
			out = append(out, m)
		}
	}
	slices.SortStableFunc(out, func(a, b Member) int {
		return cmp.Or(strings.Compare(a.server(), b.server()), strings.Compare(a.key(), b.key()),
			strings.Compare(b.kindID(), a.kindID())) // write before read: the writer may read
	})
	return out, nil
}

// same reports whether two members are one lock.
func (m Member) same(o Member) bool {
	if m.mutex != nil && o.mutex != nil {
		a, b := m.mutex, o.mutex
		return a.Services == b.Services && a.key == b.key && a.kind.ID() == b.kind.ID() && reflect.TypeOf(m.Locker) == reflect.TypeOf(o.Locker)
	}
	v := reflect.ValueOf(m.Locker)
	return v.Type() == reflect.TypeOf(o.Locker) && v.Comparable() && m.Locker == o.Locker
}

func (m Member) key() string {
	if m.mutex == nil {
		return m.Name()
	}
	return m.mutex.key
}

func (m Member) kindID() string {
	if m.mutex == nil {
		return reflect.TypeOf(m.Locker).String()
	}
	return m.mutex.kind.ID()
}

// server is what is known of where a lock is: the same in every process, as far
// as they use the same address.
func (m Member) server() string {
	if m.mutex == nil {
		return ""
	}
	return serverOf(m.mutex.Runner.Redis(), m.mutex.ClientID)
}

// machine is server without the number of its database.
func (m Member) machine() string {
	at := m.server()
	if i := strings.LastIndexByte(at, '/'); i >= 0 {
		return at[:i]
	}
	return at
}

// serverOf names the server behind a go-redis client, or else the client.
func serverOf(rdb redis.UniversalClient, client string) string {
	switch c := rdb.(type) {
	case *redis.Client:
		// A failover client shows no address: its sentinels decide.
		if o := c.Options(); o.Addr != "" && o.Addr != "FailoverClient" {
			return fmt.Sprintf("%s/%d", o.Addr, o.DB)
		}
	case *redis.ClusterClient:
		addrs := slices.Clone(c.Options().Addrs)
		slices.Sort(addrs)
		return strings.Join(addrs, ",")
	}
	return "client " + client
}

// units are the members, in order, but for one: those that may share a script
// call together, where the first of them stands.
func (m *Multi) units(but int) [][]int {
	var units [][]int
	for i, o := range m.members {
		if i == but {
			continue
		}
		at := -1
		if !o.alone {
			at = slices.IndexFunc(units, func(u []int) bool {
				first := m.members[u[0]]
				return len(u) < maxBatch && !first.alone && first.mutex.beside(o.mutex.names)
			})
		}
		if at < 0 {
			units = append(units, []int{i})
			continue
		}
		units[at] = append(units[at], i)
	}
	return units
}

func errNoHold(l Locker) error {
	return errs.Invalid("lock %s answered neither a hold nor an error: its Lock and TryLock answer one of them", errs.Quote(l.Name()))
}
