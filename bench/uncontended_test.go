package bench

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
)

// floor is the least that a lock on Redis can be: go-redis, one minimal script
// to lock and one to unlock, nothing around them.
type floor struct {
	rdb          *redis.Client
	lock, unlock *redis.Script
}

func newFloor(b testing.TB) *floor {
	return &floor{
		rdb: server.Client(b),
		lock: redis.NewScript(`
			if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
			redis.call('HSET', KEYS[1], ARGV[1], 1)
			redis.call('PEXPIRE', KEYS[1], ARGV[2])
			return 1`),
		unlock: redis.NewScript(`
			if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
			redis.call('DEL', KEYS[1])
			redis.call('PUBLISH', KEYS[2], '0')
			return 1`),
	}
}

func (f *floor) pair(ctx context.Context, b testing.TB) {
	if n, err := f.lock.Run(ctx, f.rdb, []string{"floor"}, "owner", 30000).Int(); n != 1 || err != nil {
		b.Fatal(n, err)
	}
	if n, err := f.unlock.Run(ctx, f.rdb, []string{"floor", "channel"}, "owner").Int(); n != 1 || err != nil {
		b.Fatal(n, err)
	}
}

func pair(ctx context.Context, b testing.TB, l holdfast.Locker) {
	h, err := l.Lock(ctx)
	if err != nil {
		b.Fatal(err)
	}
	if err := h.Unlock(ctx); err != nil {
		b.Fatal(err)
	}
}

// Bar: 2 commands, both EVALSHA; at least 0.90 of the floor's throughput, median
// of the rounds; at most 25 allocations above it.
func BenchmarkUncontended(b *testing.B) {
	const rounds, pairs = 30, 500
	for name, ctx := range map[string]func() (context.Context, context.CancelFunc){
		"background": func() (context.Context, context.CancelFunc) { return context.Background(), func() {} },
		"cancelable": func() (context.Context, context.CancelFunc) { return context.WithCancel(context.Background()) },
	} {
		b.Run(name, func(b *testing.B) {
			ctx, cancel := ctx()
			defer cancel()
			f, counted := newFloor(b), newSide(b, server.Options())
			c, err := holdfast.New(server.Client(b)) // without a hook, as the floor
			require.NoError(b, err)
			b.Cleanup(func() { require.NoError(b, c.Close()) })
			l := c.Lock("uncontended")
			ours := func() {
				for range pairs {
					pair(ctx, b, l)
				}
			}
			least := func() {
				for range pairs {
					f.pair(ctx, b)
				}
			}
			ours()
			least()
			for b.Loop() {
				var ratios, times []float64
				for i := range 2 * rounds {
					first, second := ours, least
					if i%2 == 1 {
						first, second = least, ours
					}
					start := time.Now()
					first()
					t1 := time.Since(start)
					start = time.Now()
					second()
					t2 := time.Since(start)
					if i%2 == 1 {
						t1, t2 = t2, t1
					}
					ratios = append(ratios, float64(t2)/float64(t1))
					times = append(times, float64(t1)/pairs)
				}
				counted.commands.Reset()
				for range pairs {
					pair(ctx, b, counted.Lock("counted"))
				}
				require.Equal(b, counted.commands.Total(), counted.commands.Count("evalsha")+counted.commands.Count("eval"))
				b.ReportMetric(median(ratios), "of_floor")
				b.ReportMetric(median(times)/1e3, "µs/pair")
				b.ReportMetric(float64(counted.commands.Total())/pairs, "commands/pair")
			}
			b.ReportMetric((allocs(ours)-allocs(least))/pairs, "allocs_above_floor")
			b.ReportMetric(0, "ns/op") // one loop is the whole measurement
		})
	}
}

// The usual form, for benchstat.
func BenchmarkLockUnlock(b *testing.B) {
	b.Run("holdfast", func(b *testing.B) {
		l := newSide(b, server.Options()).Lock("lock-unlock")
		b.ReportAllocs()
		for b.Loop() {
			pair(context.Background(), b, l)
		}
	})
	b.Run("holdfast, cancelable", func(b *testing.B) {
		ctx := b.Context()
		l := newSide(b, server.Options()).Lock("lock-unlock-cancelable")
		b.ReportAllocs()
		for b.Loop() {
			pair(ctx, b, l)
		}
	})
	b.Run("floor", func(b *testing.B) {
		f := newFloor(b)
		b.ReportAllocs()
		for b.Loop() {
			f.pair(context.Background(), b)
		}
	})
}

// Bar: 2 commands, as the plain lock: the token comes with the grant.
func BenchmarkUncontendedFenced(b *testing.B) {
	const pairs = 500
	s := newSide(b, server.Options())
	l := s.FencedLock("uncontended-fenced")
	pair(context.Background(), b, l)
	for b.Loop() {
		s.commands.Reset()
		start := time.Now()
		for range pairs {
			pair(context.Background(), b, l)
		}
		took := time.Since(start)
		require.EqualValues(b, 2*pairs, s.commands.Total())
		b.ReportMetric(float64(s.commands.Total())/pairs, "commands/pair")
		b.ReportMetric(float64(took.Microseconds())/pairs, "µs/pair")
	}
	b.ReportMetric(0, "ns/op")
}
