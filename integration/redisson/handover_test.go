package redisson_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/redisson"
)

// A lock goes to and fro between the sides within 100 ms, by messages alone: in
// the median, as a machine may stop either side for a while.
func TestHandOver(t *testing.T) {
	const rounds, bar = 25, 100 * time.Millisecond
	versions(t, func(t *testing.T, j *redisson.JVM) {
		c, sent := connect(t)
		name := t.Name()
		rdb := server.Client(t)
		theirs := j.Owner(t, "a").Object("Lock", name)
		// Fixed leases: after many rounds Redisson's watchdog sends what belongs to
		// none of them.
		lease := (20 * time.Second).Milliseconds()
		theirs.Call("lock", lease, redisson.Millis).OK()
		var toGo, toJava []time.Duration
		channel := "redisson_lock__channel:{" + name + "}"
		for range rounds {
			got := waiting(t, rdb, channel, 0, func() (*holdfast.Hold, error) { return c.Lock(name).Lock(t.Context()) })
			sent.Reset()
			unlocked := time.Now()
			theirs.Call("unlock").OK()
			r := receive(t, got, "the lock")
			toGo = append(toGo, r.at.Sub(unlocked))
			require.LessOrEqual(t, sent.Total(), int64(3), "a try after the subscription, one after the message, a renewal")

			listening(t, rdb, channel, 0)
			waits := theirs.Call("lock", lease, redisson.Millis)
			listening(t, rdb, channel, 1)
			unlocked = time.Now()
			require.NoError(t, r.hold.Unlock(t.Context()))
			waits.OK()
			toJava = append(toJava, time.Since(unlocked))
		}
		theirs.Call("unlock").OK()
		for what, all := range map[string][]time.Duration{"Java to Go": toGo, "Go to Java": toJava} {
			slices.Sort(all)
			t.Logf("%s: median %s, worst %s", what, all[rounds/2], all[rounds-1])
			require.Less(t, all[rounds/2], bar, what)
		}
	})
}
