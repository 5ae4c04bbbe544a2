package rsemaphore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/rsemaphore"
)

// Three clients do at random what a semaphore can do; a number in Go says what must
// come of it.
func TestSemaphoreAgainstAModel(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			ctx := t.Context()
			r := rand.New(rand.NewPCG(seed, 1))
			var ss []*rsemaphore.Semaphore
			for range 3 {
				ss = append(ss, connect(t).Semaphore(t.Name()))
			}
			set, free := false, int64(0)
			for range 400 {
				s, n := ss[r.IntN(3)], r.Int64N(5)+1
				switch r.IntN(8) {
				case 0:
					ok, err := s.TrySetPermits(ctx, n)
					require.NoError(t, err)
					require.Equal(t, !set, ok)
					if ok {
						set, free = true, n
					}
				case 1, 2, 3:
					err := s.TryAcquire(ctx, n)
					if free >= n {
						require.NoError(t, err)
						free -= n
						continue
					}
					var no *holdfast.NotAcquiredError
					require.ErrorAs(t, err, &no)
					require.Equal(t, [2]int64{n, free}, [2]int64{no.Wanted, no.Free})
				case 4:
					require.NoError(t, s.Release(ctx, n))
					set, free = true, free+n
				case 5:
					ok, err := s.ReleaseIfExists(ctx, n)
					require.NoError(t, err)
					require.Equal(t, set, ok)
					if ok {
						free += n
					}
				case 6:
					n -= 3
					require.NoError(t, s.AddPermits(ctx, n))
					set, free = true, free+n
				case 7:
					if r.IntN(3) == 0 {
						ok, err := s.Delete(ctx)
						require.NoError(t, err)
						require.Equal(t, set, ok)
						set = false
					} else {
						got, err := s.Drain(ctx)
						require.NoError(t, err)
						require.Equal(t, free, got)
					}
					free = 0
				}
				require.Equal(t, free, available(t, s))
			}
		})
	}
}

// The same for expiring permits. Time passes by moving an expiry into the past, as
// the lease of a client that crashed does.
func TestExpirableAgainstAModel(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			ctx := t.Context()
			rdb := rsemaphore.Server().Client(t)
			r := rand.New(rand.NewPCG(seed, 2))
			var es []*rsemaphore.Expirable
			for range 3 {
				es = append(es, connect(t).ExpirableSemaphore(t.Name()))
			}
			total := int64(4)
			set(t, es[0], total)
			var ids []string // in use
			gone := []string{strings.Repeat("0", 32)}
			pick := func(from []string) int { return r.IntN(len(from)) }
			for range 300 {
				e, n := es[r.IntN(3)], r.IntN(3)+1
				switch r.IntN(7) {
				case 0, 1, 2:
					ps, err := e.AcquireN(ctx, n, rsemaphore.Wait(0), rsemaphore.Lease(time.Hour))
					if free := total - int64(len(ids)); free < int64(n) {
						var no *holdfast.NotAcquiredError
						require.ErrorAs(t, err, &no)
						require.Equal(t, [2]int64{int64(n), max(free, 0)}, [2]int64{no.Wanted, no.Free})
						break
					}
					require.NoError(t, err)
					for _, p := range ps {
						ids = append(ids, p.ID())
					}
				case 3: // by whichever client
					if len(ids) == 0 {
						break
					}
					i, lost := pick(ids), gone[pick(gone)]
					require.ErrorIs(t, e.Release(ctx, ids[i], lost), holdfast.ErrNotHeld)
					if r.IntN(2) == 0 {
						require.NoError(t, e.Release(ctx, ids[i]))
					} else {
						got, err := e.TryRelease(ctx, lost, ids[i])
						require.NoError(t, err)
						require.Equal(t, 1, got)
					}
					gone, ids = append(gone, ids[i]), append(ids[:i:i], ids[i+1:]...)
				case 4: // expires
					if len(ids) == 0 {
						break
					}
					i := pick(ids)
					raw := make([]byte, 16)
					_, err := fmt.Sscanf(ids[i], "%x", &raw)
					require.NoError(t, err)
					require.NoError(t, rdb.Do(ctx, "ZADD", "{"+t.Name()+"}:timeout", "XX", 1, string(raw)).Err())
					gone, ids = append(gone, ids[i]), append(ids[:i:i], ids[i+1:]...)
				case 5:
					if r.IntN(2) == 0 {
						total = r.Int64N(6)
						require.NoError(t, e.SetPermits(ctx, total))
						break
					}
					d := r.Int64N(5) - 2
					require.NoError(t, e.AddPermits(ctx, d))
					total += d
				case 6:
					err := e.Extend(ctx, gone[pick(gone)], time.Hour)
					require.True(t, errors.Is(err, holdfast.ErrNotHeld), "%v", err)
				}
				require.Equal(t, total-int64(len(ids)), available(t, e))
				require.EqualValues(t, len(ids), acquired(t, e))
				got, err := e.Permits(ctx)
				require.NoError(t, err)
				require.Equal(t, total, got)
			}
		})
	}
}
