package redisson_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/integration/redisson"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rlimiter"
)

// grant is one as the server recorded it.
type grant struct {
	// made is when the server did it, by its clock, and stamp what was written into
	// the sorted set: Redisson writes the time at which it sent its request.
	made, stamp time.Time
	permits     int
}

// recorded follows what the server does until the function that it answers is
// called, which answers every grant of the limiter in the order in which they were
// made. Reading the sorted set now and then would tell the stamps, but neither that
// order nor when a grant was made.
func recorded(t *testing.T, name string) (end func() []grant) {
	t.Helper()
	conn, err := net.Dial("tcp", server.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	_, err = conn.Write([]byte("MONITOR\r\n"))
	require.NoError(t, err)
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 1<<20)
	require.True(t, lines.Scan())
	require.Equal(t, "+OK", lines.Text())

	last := "the end of " + name
	done := make(chan struct{})
	var seen []grant
	fault := errors.New("the server's record broke off")
	go func() {
		defer close(done)
		for lines.Scan() {
			made, command := monitored(lines.Text())
			switch {
			case len(command) == 2 && command[1] == last:
				fault = nil
				return
			case len(command) == 4 && strings.EqualFold(command[0], "ZADD") && command[1] == "{"+name+"}:permits":
				stamp, err := strconv.ParseInt(command[2], 10, 64)
				member := command[3] // a length, an id of that length, the permits in 32 bits
				if err != nil || len(member) != 21 || member[0] != 16 {
					fault = fmt.Errorf("a grant that is none: %q", command)
					return
				}
				n := binary.LittleEndian.Uint32([]byte(member[17:]))
				seen = append(seen, grant{made, time.UnixMilli(stamp), int(n)})
			}
		}
	}()
	return func() []grant {
		t.Helper()
		require.NoError(t, server.Client(t).Echo(t.Context(), last).Err())
		select {
		case <-done:
			require.NoError(t, fault)
			require.NotEmpty(t, seen)
			return seen
		case <-time.After(prompt):
			require.Fail(t, "the server's record has no end")
			return nil
		}
	}
}

// monitored reads a line of MONITOR: +1339518083.107412 [0 lua] "ZADD" "key" …
func monitored(line string) (at time.Time, command []string) {
	when, rest, _ := strings.Cut(strings.TrimPrefix(line, "+"), " ")
	sec, micro, _ := strings.Cut(when, ".")
	s, _ := strconv.ParseInt(sec, 10, 64)
	us, _ := strconv.ParseInt(micro, 10, 64)
	_, rest, _ = strings.Cut(rest, "] ")
	for rest != "" {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			break
		}
		word, err := strconv.Unquote(quoted)
		if err != nil {
			break
		}
		command = append(command, word)
		rest = strings.TrimPrefix(rest[len(quoted):], " ")
	}
	return time.Unix(s, us*1000), command
}

func byStamp(g grant) time.Time { return g.stamp }
func byMade(g grant) time.Time  { return g.made }

// most is how many permits were granted at most in a span that is open at its end.
func most(grants []grant, span time.Duration, at func(grant) time.Time) int {
	sorted := slices.SortedFunc(slices.Values(grants), func(a, b grant) int { return at(a).Compare(at(b)) })
	worst, sum, from := 0, 0, 0
	for _, g := range sorted {
		for from < len(sorted) && at(g).Sub(at(sorted[from])) >= span {
			sum -= sorted[from].permits
			from++
		}
		sum += g.permits
		worst = max(worst, sum)
	}
	return worst
}

// mostInWindow is how many permits the window held at most when a grant was made:
// those that had been granted until then with a stamp less than an interval old.
func mostInWindow(grants []grant, per time.Duration) int {
	worst := 0
	for i, g := range grants {
		edge, sum := time.UnixMilli(g.made.UnixMilli()).Add(-per), 0
		for _, before := range grants[:i+1] {
			if before.stamp.After(edge) {
				sum += before.permits
			}
		}
		worst = max(worst, sum)
	}
	return worst
}

// early is by how much a stamp is older than its grant, at most.
func early(grants []grant) time.Duration {
	var worst time.Duration
	for _, g := range grants {
		worst = max(worst, g.made.Sub(g.stamp))
	}
	return worst
}

func count(grants []grant) int {
	n := 0
	for _, g := range grants {
		n += g.permits
	}
	return n
}

// A limiter that both sides use never has more permits in its window than its rate,
// as the server recorded them. Spans of an interval keep to the rate as far as
// Redisson's stamps are right: see TestLimiterStampsOfJava.
func TestLimiterOfBothSides(t *testing.T) {
	versions(t, func(t *testing.T, j *redisson.JVM) {
		const rate, per, intervals = 20, time.Second, 6
		c, _ := connect(t)
		l, theirs := c.RateLimiter(t.Name()), j.Owner(t, "a").Object("RateLimiter", t.Name())
		require.True(t, redisson.Get[bool](theirs.Call("trySetRate", "OVERALL", rate, redisson.D(per))))
		config, err := l.Config(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, rate, config.Rate)
		require.Equal(t, rlimiter.Overall, config.Kind)

		// Each call goes on until it is granted: what is given up would be recorded,
		// and taken back.
		end := recorded(t, t.Name())
		until := time.Now().Add(intervals * per)
		var mine, javas atomic.Int64
		var wg sync.WaitGroup
		for i, n := range []int64{1, 1, 2, 3} {
			wg.Go(func() {
				for time.Now().Before(until) {
					if err := l.Acquire(t.Context(), n); err != nil {
						t.Errorf("Go wants %d: %v", n, err)
						return
					}
					mine.Add(n)
				}
			})
			o := j.Owner(t, fmt.Sprint("worker", i)).Object("RateLimiter", t.Name())
			wg.Go(func() {
				for time.Now().Before(until) {
					if err := o.Call("acquire", n).Err(); err != nil {
						t.Errorf("Java wants %d: %v", n, err)
						return
					}
					javas.Add(n)
				}
			})
		}
		wg.Wait()
		grants := end()

		first := grants[0].made
		used := 0
		for _, g := range grants {
			if g.made.Sub(first) < intervals*per {
				used += g.permits
			}
		}
		// Of the stamps the part of a millisecond is missing.
		sure := max(per-early(grants), time.Millisecond)
		t.Logf("Go %d, Java %d; %d of %d used; of a rate of %d at most %d in the window, %d in a span by stamps, %d by when they were made; stamps are up to %s early",
			mine.Load(), javas.Load(), used, rate*intervals, rate,
			mostInWindow(grants, per), most(grants, per, byStamp), most(grants, per, byMade), early(grants))
		require.EqualValues(t, mine.Load()+javas.Load(), count(grants), "the record is of all grants and of no others")
		require.LessOrEqual(t, mostInWindow(grants, per), rate)
		require.LessOrEqual(t, most(grants, sure, byStamp), rate, "in %s", sure)
		require.LessOrEqual(t, most(grants, sure, byMade), rate, "in %s", sure)
		require.GreaterOrEqual(t, used, rate*intervals/2, "the rate is used")
	})
}

// Redisson stamps a grant with its own time when it sends the request. One that is
// late counts in the window as if it had been made then, and leaves it as much too
// early: a span of an interval can see more than the rate, by the stamps (the grants
// that had left for those who look at the time had not for the late one) and by the
// time at which they were made. What is in the window is right at any moment.
func TestLimiterStampsOfJava(t *testing.T) {
	for _, version := range []string{newest, older} {
		t.Run(version, func(t *testing.T) {
			const rate, per = 2, 1500 * time.Millisecond // Redisson sends again after 3 s
			proxy := faultproxy.New(t, server.Addr())
			config := alone(version)
			config.Addrs = []string{proxy.Addr()}
			theirs := redisson.Start(t, home, config).Owner(t, "a")
			c, _ := connect(t)
			l := c.RateLimiter(t.Name())
			for _, name := range []string{t.Name() + " before", t.Name()} {
				_, err := c.RateLimiter(name).TrySetRate(t.Context(), rlimiter.Overall, rate, per)
				require.NoError(t, err)
			}
			// What a first call has to load would come into the time between.
			require.True(t, redisson.Get[bool](theirs.Object("RateLimiter", t.Name()+" before").Call("tryAcquire")))

			end := recorded(t, t.Name())
			require.NoError(t, l.Acquire(t.Context(), rate))
			late := make(chan struct{})
			held := proxy.Add(faultproxy.Rule{
				Match: func(cmd []string) bool { return slices.Contains(cmd, "{"+t.Name()+"}:permits") },
				Do:    faultproxy.HoldRequest(late),
			})
			got := theirs.Object("RateLimiter", t.Name()).Call("tryAcquire")
			<-held.Done()
			require.NoError(t, l.Acquire(t.Context(), 1), "the first two have left the window")
			close(late)
			require.True(t, redisson.Get[bool](got), "one is left")
			require.NoError(t, l.Acquire(t.Context(), 1), "Java's leaves it at once")
			grants := end()

			require.Len(t, grants, 4)
			require.True(t, grants[2].stamp.Before(grants[1].stamp), "the late one is Java's: %v", grants)
			require.Equal(t, rate+1, most(grants, per, byStamp), "%v", grants)
			require.Equal(t, rate+1, most(grants, per, byMade), "%v", grants)
			require.LessOrEqual(t, mostInWindow(grants, per), rate)
		})
	}
}

// Permits that are given back: Redisson counts them as free, and leaves their grant in
// the window, which makes them free once more when it runs out. holdfast takes the
// grant out, so that an interval never sees more than the rate of permits kept.
func TestLimiterRelease(t *testing.T) {
	const rate, per = 5, 2 * time.Second
	// three acquires all, gives all back, acquires all again half an interval later,
	// without a wait, and once more as soon as that is possible.
	three := func(t *testing.T, name string, acquire, try, release func() error) (second, third grant) {
		t.Helper()
		end := recorded(t, name)
		require.NoError(t, acquire())
		require.NoError(t, release())
		rdb := server.Client(t)
		now, err := rdb.Time(t.Context()).Result()
		require.NoError(t, err)
		half := now.Add(per / 2)
		redistest.Eventually(t, prompt, func() bool { return rdb.Time(t.Context()).Val().After(half) }, "half an interval")
		require.NoError(t, try(), "what was given back is free")
		require.NoError(t, acquire())
		grants := end()
		require.Len(t, grants, 3)
		require.Equal(t, 3*rate, count(grants))
		return grants[1], grants[2]
	}
	versions(t, func(t *testing.T, j *redisson.JVM) {
		l := j.Owner(t, "a").Object("RateLimiter", t.Name())
		require.True(t, redisson.Get[bool](l.Call("trySetRate", "OVERALL", rate, redisson.D(per))))
		second, third := three(t, t.Name(),
			func() error { return l.Call("acquire", rate).Err() },
			func() error {
				require.True(t, redisson.Get[bool](l.Call("tryAcquire", rate)))
				return nil
			},
			func() error { return l.Call("release", rate).Err() })
		require.Less(t, third.made.Sub(second.made), per, "Redisson has been mended: docs/redisson.md says otherwise")
	})
	t.Run("holdfast", func(t *testing.T) {
		c, _ := connect(t)
		l := c.RateLimiter(t.Name())
		_, err := l.TrySetRate(t.Context(), rlimiter.Overall, rate, per)
		require.NoError(t, err)
		second, third := three(t, t.Name(),
			func() error { return l.Acquire(t.Context(), rate) },
			func() error { return l.TryAcquire(t.Context(), rate) },
			func() error { return l.Release(t.Context(), rate) })
		require.GreaterOrEqual(t, third.made.Sub(second.made), per-time.Millisecond, "stamps are whole milliseconds")
	})
}
