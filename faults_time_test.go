package holdfast_test

import (
	"context"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/keys"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rlock"
)

const century = 100 * 365 * 24 * time.Hour

// Extreme times neither overflow nor become none.
func TestA46ExtremeLeases(t *testing.T) {
	c, rdb := connect(t), server.Client(t)
	for d, want := range map[time.Duration]time.Duration{ // 0: refused
		math.MinInt64: 0, -time.Hour: 0, -1: 0, 0: 0,
		1: time.Millisecond, 999 * time.Microsecond: time.Millisecond, time.Millisecond: time.Millisecond,
		1500 * time.Microsecond: 2 * time.Millisecond, 24 * time.Hour: 24 * time.Hour,
		200 * 365 * 24 * time.Hour: century, math.MaxInt64: century,
	} {
		t.Run(d.String(), func(t *testing.T) {
			before := time.Now()
			h, err := c.Lock(t.Name()).TryLock(t.Context(), holdfast.Lease(d))
			if want == 0 {
				require.ErrorIs(t, err, holdfast.ErrInvalid)
				require.False(t, exists(t, rdb, t.Name()))
				return
			}
			require.NoError(t, err)
			if until := h.ExpiresAt(); want >= time.Second || !until.IsZero() { // a lease of ms may be over by now
				require.WithinRange(t, until, before.Add(want-lease.Margin(want)), time.Now().Add(want))
			}
			if want < time.Second {
				<-h.Context().Done()
				eventually(t, "it ends", func() bool { return !exists(t, rdb, t.Name()) })
				require.ErrorIs(t, h.Unlock(t.Context()), holdfast.ErrLost)
				return
			}
			ttl, err := c.Lock(t.Name()).TTL(t.Context())
			require.NoError(t, err)
			require.InDelta(t, want, ttl, float64(time.Minute))
			require.NoError(t, h.Context().Err())
			require.NoError(t, h.Extend(t.Context(), d))
			require.NoError(t, h.Unlock(t.Context()))

			h, err = c.Lock(t.Name()).TryLock(t.Context(), holdfast.Lease(time.Hour))
			require.NoError(t, err)
			require.NoError(t, h.Extend(t.Context(), d))
			ttl, err = c.Lock(t.Name()).TTL(t.Context())
			require.NoError(t, err)
			require.InDelta(t, want, ttl, float64(time.Minute))
			require.NoError(t, h.Unlock(t.Context()))
		})
	}
}

// Zero and less is one try; however long a wait may last, it ends with a release
// and doesn't spin.
func TestA46ExtremeWaits(t *testing.T) {
	sent, c := counting(t, holdfast.WithLease(never))
	keeper, rdb := connect(t, holdfast.WithLease(never)), server.Client(t)
	for _, d := range []time.Duration{
		math.MinInt64, -1, 0, 1, 999 * time.Microsecond, time.Millisecond, 1500 * time.Microsecond,
		24 * time.Hour, 200 * 365 * 24 * time.Hour, math.MaxInt64,
	} {
		t.Run(d.String(), func(t *testing.T) {
			l := c.Lock(t.Name())
			h, err := l.TryLock(t.Context(), holdfast.Wait(d))
			require.NoError(t, err, "free")
			require.NoError(t, h.Unlock(t.Context()))

			h, err = keeper.Lock(t.Name()).Lock(t.Context())
			require.NoError(t, err)
			sent.Reset()
			if d < time.Hour {
				for _, f := range []func() (*holdfast.Hold, error){
					func() (*holdfast.Hold, error) { return l.TryLock(t.Context(), holdfast.Wait(d)) },
					func() (*holdfast.Hold, error) { return l.Lock(t.Context(), holdfast.Wait(d)) },
				} {
					_, err = f()
					require.ErrorIs(t, err, holdfast.ErrNotAcquired)
				}
				require.Less(t, sent.Total(), int64(10))
				require.NoError(t, h.Unlock(t.Context()))
				return
			}
			waiter := async(func() (*holdfast.Hold, error) { return l.TryLock(t.Context(), holdfast.Wait(d)) })
			awaitWaiter(t, rdb, t.Name())
			throughout(t, 100*time.Millisecond, "it spins", func() bool { return sent.Total() < 10 })
			require.NoError(t, h.Unlock(t.Context()))
			r := await(t, waiter, prompt, "it is woken")
			require.NoError(t, r.err)
			require.NoError(t, r.hold.Unlock(t.Context()))
		})
	}
}

// The lease of a client is checked when it is made, and capped.
func TestA46ExtremeWatchdogs(t *testing.T) {
	for _, d := range []time.Duration{math.MinInt64, -1, 0, 1, time.Millisecond, 29 * time.Millisecond} {
		_, err := holdfast.New(server.Client(t), holdfast.WithLease(d))
		require.ErrorIs(t, err, holdfast.ErrInvalid, d)
	}
	rdb := server.Client(t)
	sent, c := counting(t, holdfast.WithLease(30*time.Millisecond)) // the shortest
	h, err := c.Lock(t.Name()).Lock(t.Context())
	require.NoError(t, err)
	eventually(t, "it is renewed", func() bool { return sent.Total() > 3 || h.Context().Err() != nil })
	_ = h.Unlock(t.Context()) // lost, on a busy machine
	for _, d := range []time.Duration{200 * 365 * 24 * time.Hour, math.MaxInt64} {
		c := connect(t, holdfast.WithLease(d))
		h, err := c.Lock(t.Name()).Lock(t.Context())
		require.NoError(t, err)
		require.InDelta(t, century, rdb.PTTL(t.Context(), t.Name()).Val(), float64(time.Minute))
		require.NoError(t, h.Unlock(t.Context()))
	}
}

// A name is refused, or all that stands in Redis for it is in one slot.
func FuzzNames(f *testing.F) {
	node := redistest.StartCluster(f, 1).Nodes()[0] // it refuses scripts over several slots
	rdb := node.Client(f)
	c := newClient(f, node.Client(f), holdfast.WithLease(time.Minute))
	for _, name := range []string{
		"a", "{a}", "x{a}y", "{a}{b}", "}{", "{}", "a{", "a}", "{a", "a}{b}", "{}{a}", "{{a}}", "{a}}", "{ }", "",
		" ", "\x00", "\xff\xfe", "{\xff}", "ключ", "a:b", "a b\r\n", strings.Repeat("x", 10<<10), strings.Repeat("x", 32<<10+1),
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		l := c.Lock(name)
		require.Equal(t, name, l.Name())
		h, err := l.TryLock(t.Context())
		if err != nil {
			require.ErrorIs(t, err, holdfast.ErrInvalid)
			require.Less(t, len(err.Error()), 1000, "a long name floods the log")
			return
		}
		require.Equal(t, map[string]string{h.Owner(): "1"}, rdb.HGetAll(t.Context(), name).Val())
		slot := func(key string) int64 {
			n, err := rdb.ClusterKeySlot(t.Context(), key).Result()
			require.NoError(t, err)
			require.EqualValues(t, n, keys.Slot(key))
			return n
		}
		for _, key := range []string{
			keys.Prefixed("redisson_lock__channel", name), keys.Suffixed(name, "holdfast:req:x"),
		} {
			require.Equal(t, slot(name), slot(key), key)
		}
		_, err = l.TryLock(t.Context())
		require.ErrorIs(t, err, holdfast.ErrNotAcquired)
		require.NoError(t, h.Extend(t.Context(), time.Hour))
		require.NoError(t, h.Unlock(t.Context()))
		opened, err := l.ForceUnlock(t.Context())
		require.NoError(t, err)
		require.False(t, opened)
		require.False(t, exists(t, rdb, name))
	})
}

// model is what a lock should do. An owner may believe that it holds what has
// been taken from it.
type model struct {
	holder  int // -1: free
	count   int
	believe [3]int
}

func (m *model) lock(o int) error {
	switch m.holder {
	case o:
		m.believe[o]++
	case -1:
		m.believe[o] = 1
	default:
		m.believe[o] = 0 // told by the refusal
		return holdfast.ErrNotAcquired
	}
	m.holder, m.count = o, m.believe[o]
	return nil
}

func (m *model) unlock(o int) error {
	switch {
	case m.believe[o] == 0:
		return holdfast.ErrNotHeld
	case m.holder != o:
		m.believe[o] = 0
		return holdfast.ErrLost
	}
	m.believe[o]--
	if m.count = m.believe[o]; m.count == 0 {
		m.holder = -1
	}
	return nil
}

// force opens the lock; the holds of the owners of that client end at once.
func (m *model) force(of ...int) bool {
	was := m.holder >= 0
	m.holder, m.count = -1, 0
	for _, o := range of {
		if was {
			m.believe[o] = 0
		}
	}
	return was
}

var sequences atomic.Int64

// Any sequence of calls by three owners in two clients does what the model does.
func FuzzSequences(f *testing.F) {
	c := []*holdfast.Client{connect(f, holdfast.WithLease(never)), connect(f, holdfast.WithLease(never))}
	rdb := server.Client(f)
	f.Add([]byte{0, 3, 0})
	f.Add([]byte{0, 0, 0, 3, 3, 3, 3})
	f.Add([]byte{0, 9, 1, 3, 4})
	f.Add([]byte{0, 9, 0, 3, 3})
	f.Add([]byte{0, 0, 9, 0, 3, 3, 1})
	f.Add([]byte{0, 6, 3, 2, 7, 5, 0, 8, 3})
	f.Add([]byte{2, 6, 5, 1, 6, 2, 4, 8, 5})
	for seed := range 12 {
		var random []byte
		for i := range 40 {
			random = append(random, byte(keys.Slot(strconv.Itoa(seed*100+i))%10))
		}
		f.Add(random)
	}
	f.Fuzz(func(t *testing.T, steps []byte) {
		name := "sequence-" + strconv.FormatInt(sequences.Add(1), 10)
		locks := []*rlock.Lock{c[0].Lock(name), c[0].Lock(name), c[1].Lock(name)} // by owner
		ctx := make([]context.Context, 3)
		for o := range ctx {
			ctx[o] = holdfast.WithOwner(t.Context())
		}
		m := &model{holder: -1}
		var holds [3][]*holdfast.Hold
		for i, b := range steps[:min(len(steps), 100)] {
			o := int(b) % 3
			at := []any{"step %d of %v", i, steps}
			switch b % 10 {
			case 0, 1, 2:
				h, err := locks[o].TryLock(ctx[o])
				require.ErrorIs(t, err, m.lock(o), at...)
				if err == nil {
					holds[o] = append(holds[o], h)
				}
			case 3, 4, 5:
				require.ErrorIs(t, locks[o].Unlock(ctx[o]), m.unlock(o), at...)
			case 6, 7, 8:
				opened, err := locks[o].ForceUnlock(ctx[o])
				require.NoError(t, err, at...)
				require.Equal(t, m.force([][]int{{0, 1}, {0, 1}, {2}}[o]...), opened, at...)
			default:
				require.NoError(t, rdb.PExpire(t.Context(), name, time.Millisecond).Err())
				require.True(t, within(prompt, func() bool { return !exists(t, rdb, name) }))
				m.holder, m.count = -1, 0
			}
			want := map[string]string{}
			if m.holder >= 0 {
				id, _ := holdfast.OwnerID(ctx[m.holder])
				want[c[m.holder/2].ID()+":"+id] = strconv.Itoa(m.count)
			}
			require.Equal(t, want, rdb.HGetAll(t.Context(), name).Val(), at...)
			for o, believed := range m.believe { // who was told is told by each hold's context
				alive := 0
				for _, h := range holds[o] {
					if h.Context().Err() == nil {
						alive++
					}
				}
				require.Equal(t, believed, alive, at...)
			}
			n, err := locks[o].HoldCount(ctx[o])
			require.NoError(t, err, at...)
			require.Equal(t, m.holder == o, n > 0, at...)
		}
		require.NoError(t, rdb.Del(t.Context(), name).Err())
	})
}
