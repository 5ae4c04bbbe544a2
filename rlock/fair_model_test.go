package rlock

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/hold"
)

// model is what a fair lock should do: a holder, and a line of waiters some of
// which are dead.
type model struct {
	holder string
	line   []string
	dead   map[string]bool
}

func (m *model) leave(o string) bool {
	i := slices.Index(m.line, o)
	if i < 0 {
		return false
	}
	m.line = slices.Delete(m.line, i, i+1)
	delete(m.dead, o)
	return true
}

// try answers 1 for a grant, 2 for a re-entry, -1 for a refusal.
func (m *model) try(o string, waits bool) int64 {
	cutOff := m.dead[o] // it is back, and judges nobody at first
	if len(m.line) > 0 && m.line[0] != o && m.dead[m.line[0]] && !cutOff {
		m.line = slices.DeleteFunc(m.line, func(w string) bool { return w != o && m.dead[w] })
		m.dead = map[string]bool{}
	}
	if m.holder == o {
		m.leave(o)
		return 2
	}
	if m.holder == "" && (len(m.line) == 0 || m.line[0] == o) {
		m.leave(o)
		m.holder = o
		return 1
	}
	if waits {
		if !slices.Contains(m.line, o) {
			m.line = append(m.line, o)
		}
		delete(m.dead, o)
	}
	return -1
}

// Whatever three owners do, and whatever happens to them, in any order: holder
// and line are those of the model.
func TestFairFollowsTheModel(t *testing.T) {
	const wait = 100 * sec
	k := fair{}
	owners := []string{"a", "b", "c"}
	for seed := range uint64(40) {
		b := newFairBench(t)
		require.NoError(t, b.rdb.Del(t.Context(), b.key).Err())
		m := &model{dead: map[string]bool{}}
		rnd := rand.New(rand.NewPCG(seed, seed))
		var history strings.Builder
		for range 60 {
			o := owners[rnd.IntN(len(owners))]
			var reply, want int64
			what := ""
			switch n := rnd.IntN(20); {
			case n < 9:
				what, want = "waits", m.try(o, true)
				reply = b.ask(k.Acquire, waiting(o, 60*sec, wait))
			case n < 11:
				what, want = "comes by", m.try(o, false)
				reply = b.ask(k.Acquire, hold.Args{Field: o, Count: 1, Lease: 60 * sec})
			case n < 14:
				what = "releases"
				if m.holder == o {
					m.holder, want = "", 1
				}
				reply = b.ask(k.Release, hold.Args{Field: o})
			case n < 16:
				what = "leaves"
				if m.leave(o) {
					want = 1
				}
				reply = b.ask(k.Leave, hold.Args{Field: o, Place: hold.Place{Wait: wait}})
			case n < 17:
				what = "forces"
				if m.holder != "" {
					m.holder, want = "", 1
				}
				reply = b.run(b.request(k.Force, hold.Args{}).first.AlwaysMark())
			case n < 18:
				what = "sees the lease end"
				m.holder = ""
				require.NoError(t, b.rdb.Del(t.Context(), b.key).Err())
			default:
				what = "dies"
				if slices.Contains(m.line, o) {
					m.dead[o] = true
					require.NoError(t, b.rdb.ZAdd(t.Context(), b.alive, redis.Z{Member: o, Score: 1}).Err())
				}
			}
			history.WriteString(fmt.Sprintf("%s %s; ", o, what))
			if reply == 3 { // done, and nobody had to be told
				reply = 1
			}
			if want < 0 {
				require.GreaterOrEqual(t, reply, int64(10), "seed %d: %s", seed, history.String())
			} else {
				require.Equal(t, want, reply, "seed %d: %s", seed, history.String())
			}
			holders := b.rdb.HKeys(t.Context(), b.key).Val()
			if m.holder == "" {
				require.Empty(t, holders, "seed %d: %s", seed, history.String())
			} else {
				require.Equal(t, []string{m.holder}, holders, "seed %d: %s", seed, history.String())
			}
			require.Equal(t, fmt.Sprint(m.line), fmt.Sprint(b.rdb.LRange(t.Context(), b.queue, 0, -1).Val()), "seed %d: %s", seed, history.String())
			b.state() // list, sorted set and private set agree
			for i, z := range b.rdb.ZRangeWithScores(t.Context(), b.timeout, 0, -1).Val() {
				bound := float64(b.now().Add(60*sec + wait*4).UnixMilli())
				require.Less(t, z.Score, bound+float64(i), "seed %d: %s", seed, history.String())
			}
		}
	}
}
