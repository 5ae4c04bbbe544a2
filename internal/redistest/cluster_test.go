package redistest

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestClusterServesAllSlots(t *testing.T) {
	c := StartCluster(t, 3)
	ctx := testContext(t)
	require.Len(t, c.Addrs(), 3)
	rdb := c.Client(t)

	for i := range 50 {
		key := fmt.Sprintf("key-%d", i)
		require.NoError(t, rdb.Set(ctx, key, i, 0).Err())
	}
	var total int64
	for _, s := range c.Nodes() {
		size := s.Client(t).DBSize(ctx).Val()
		require.NotZero(t, size)
		total += size
	}
	require.EqualValues(t, 50, total)

	// Every node answers with the same owners from the start.
	for _, s := range c.Nodes() {
		slots, err := s.Client(t).ClusterShards(ctx).Result()
		require.NoError(t, err)
		owners := make(map[int]string)
		for _, r := range slots {
			require.Len(t, r.Nodes, 1)
			require.Len(t, r.Slots, 1)
			owners[int(r.Slots[0].Start)] = net.JoinHostPort(r.Nodes[0].IP, strconv.FormatInt(r.Nodes[0].Port, 10))
		}
		require.Equal(t, map[int]string{0: c.Addrs()[0], 5461: c.Addrs()[1], 10922: c.Addrs()[2]}, owners)
	}
}

func TestClusterOfOneAndPassword(t *testing.T) {
	c := StartCluster(t, 1, "--requirepass", "secret")
	require.NoError(t, c.Client(t).Set(testContext(t), "k", "v", 0).Err())
}

func TestClusterNodeComesBackWithItsSlots(t *testing.T) {
	c := StartCluster(t, 3)
	ctx := testContext(t)
	rdb := c.Client(t, func(o *redis.ClusterOptions) { o.MaxRedirects = -1 })
	require.NoError(t, rdb.Set(ctx, "k", "v", 0).Err()) // slot 7629: the second node

	node := c.Nodes()[1]
	node.Kill()
	require.Error(t, rdb.Get(ctx, "k").Err())
	node.Restart()
	Eventually(t, startTimeout, func() bool { return errors.Is(rdb.Get(ctx, "k").Err(), redis.Nil) }, "slot not served again")
}

func TestClusterNeedsANode(t *testing.T) {
	tb := &fakeTB{TB: t}
	require.True(t, tb.run(func() { StartCluster(tb, 0) }))
}

func TestSentinelLeadsToTheMaster(t *testing.T) {
	for name, args := range map[string][]string{
		"open":     nil,
		"password": {"--requirepass", "secret"},
	} {
		t.Run(name, func(t *testing.T) {
			s := StartSentinel(t, args...)
			ctx := testContext(t)
			rdb := s.Client(t, func(o *redis.FailoverOptions) { o.DialTimeout = 5 * time.Second })
			require.NoError(t, rdb.Set(ctx, "k", "v", 0).Err())
			require.Equal(t, "v", s.Master().Client(t).Get(ctx, "k").Val())

			direct := redis.NewSentinelClient(s.Server().Options())
			defer direct.Close()
			info, err := direct.Master(ctx, s.MasterName()).Result()
			require.NoError(t, err)
			require.Equal(t, "master", info["flags"])
			require.Equal(t, s.Master().Addr(), info["ip"]+":"+info["port"])
			require.Equal(t, s.SentinelAddr(), s.Server().Addr())

			// Both come back as what they were.
			s.Server().Restart()
			s.Master().Restart()
			require.ErrorIs(t, rdb.Get(ctx, "k").Err(), redis.Nil)
		})
	}
}
