package rrwlock_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/rrwlock"
)

// model is a read-write lock in plain Go: how many holds each owner has.
type model struct {
	reads  map[string]int
	writer string
	writes int
}

func (m *model) read(owner string) error {
	if m.writes > 0 && m.writer != owner {
		return holdfast.ErrNotAcquired
	}
	m.reads[owner]++
	return nil
}

func (m *model) write(owner string) error {
	switch {
	case m.writes > 0 && m.writer != owner:
		return holdfast.ErrNotAcquired
	case m.writes == 0 && m.reads[owner] > 0:
		return holdfast.ErrUpgrade
	case m.writes == 0 && len(m.reads) > 0:
		return holdfast.ErrNotAcquired
	}
	m.writer = owner
	m.writes++
	return nil
}

func (m *model) unread(owner string) {
	if m.reads[owner]--; m.reads[owner] == 0 {
		delete(m.reads, owner)
	}
}

// modelHold is a hold, and whether it is alive in the model.
type modelHold struct {
	*rrwlock.Hold
	mode  string
	alive bool
}

// Three owners in three processes do anything at all, and now and then a lease ends
// or somebody opens the lock by force: what is granted, refused, held and lost is
// what the model says.
func TestAgainstModel(t *testing.T) {
	rdb := look(t)
	for round := range 12 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Logf("seed %d", seed)
			rnd := rand.New(rand.NewPCG(seed, 0))
			name := t.Name()
			m := &model{reads: make(map[string]int)}
			owners := []string{"a", "b", "c"}
			locks, holds := make(map[string]*rrwlock.RWLock), make(map[string][]*modelHold)
			for _, o := range owners {
				locks[o] = connect(t, holdfast.WithLease(never)).RWLock(name)
			}
			end := func(match func(owner, mode string) bool) {
				for _, o := range owners {
					for _, h := range holds[o] {
						h.alive = h.alive && !match(o, h.mode)
					}
				}
			}
			acquire := func(o, mode string, l rrwlock.Locker, ask func(string) error) string {
				h, err := l.TryLock(as(t, o))
				want := ask(o)
				if !errors.Is(err, want) {
					require.Failf(t, "differs from the model", "%s %ss: %v, want %v", o, mode, err, want)
				}
				if err == nil {
					holds[o] = append(holds[o], &modelHold{h, mode, true})
				}
				return fmt.Sprintf("%s asks to %s: %v", o, mode, want)
			}
			for range 150 {
				var did string
				o := owners[rnd.IntN(3)]
				switch n := rnd.IntN(20); {
				case n < 6:
					did = acquire(o, "read", locks[o].Read(), m.read)
				case n < 10:
					did = acquire(o, "write", locks[o].Write(), m.write)
				case n < 17 && len(holds[o]) > 0:
					i := rnd.IntN(len(holds[o]))
					h := holds[o][i]
					holds[o] = slices.Delete(holds[o], i, i+1)
					did = fmt.Sprintf("%s gives back a %s hold, alive %v", o, h.mode, h.alive)
					err := h.Unlock(t.Context())
					switch {
					case !h.alive:
						require.ErrorIs(t, err, holdfast.ErrLost, did)
					case h.mode == "read":
						require.NoError(t, err, did)
						m.unread(o)
					default:
						require.NoError(t, err, did)
						m.writes--
					}
				case n == 17: // somebody's read leases end
					did = o + "'s read leases end"
					keys, err := rdb.Keys(t.Context(), "{"+name+"}:*:"+o+":rwlock_timeout:*").Result()
					require.NoError(t, err)
					if len(keys) > 0 {
						require.NoError(t, rdb.Del(t.Context(), keys...).Err())
					}
					delete(m.reads, o)
					end(func(owner, mode string) bool { return owner == o && mode == "read" })
				case n == 18: // all leases end
					did = "all leases end"
					keys, err := rdb.Keys(t.Context(), "*"+name+"*").Result()
					require.NoError(t, err)
					if len(keys) > 0 {
						require.NoError(t, rdb.Del(t.Context(), keys...).Err())
					}
					m.reads, m.writes = make(map[string]int), 0
					end(func(string, string) bool { return true })
				case n == 19:
					l, want := locks[o].Read(), m.writes == 0 && len(m.reads) > 0
					if rnd.IntN(2) == 0 {
						l, want = locks[o].Write(), m.writes > 0
					}
					did = fmt.Sprintf("force, want %v", want)
					opened, err := l.ForceUnlock(t.Context())
					require.NoError(t, err)
					// A hash of dead readers only may be opened as if they lived.
					if opened != want && (want || m.writes > 0 || len(m.reads) > 0) {
						require.Failf(t, "differs from the model", "%s: %v", did, opened)
					}
					if want {
						m.reads, m.writes = make(map[string]int), 0
						end(func(string, string) bool { return true })
					}
				default:
					continue
				}
				for _, o := range owners {
					require.Equal(t, m.reads[o], count(t, locks[o].Read(), as(t, o)), "reads of %s after: %s", o, did)
					writes := 0
					if m.writer == o {
						writes = m.writes
					}
					require.Equal(t, writes, count(t, locks[o].Write(), as(t, o)), "writes of %s after: %s", o, did)
				}
			}
			for _, o := range owners {
				for _, h := range holds[o] {
					_ = h.Unlock(t.Context()) // some are lost
				}
			}
			nothingLeft(t, rdb, name)
		})
	}
}
