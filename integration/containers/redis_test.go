package containers

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"github.com/testcontainers/testcontainers-go"

	"github.com/holdfast-go/holdfast/integration/internal/topology"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// server is Redis in a container, at an address of 127.0.0.1 that stays.
type server struct {
	testcontainers.Container
	engine *testcontainers.DockerClient
	port   int
	admin  *redis.Client
}

// run starts a container in the network of this machine: what servers announce to
// each other is what clients can reach, too.
func run(t *testing.T, args ...string) *server {
	t.Helper()
	port, err := redistest.FreePort()
	require.NoError(t, err)
	s := &server{port: port}
	cmd := append([]string{"redis-server", "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--repl-diskless-sync-delay", "0"}, args...)
	s.Container, err = testcontainers.Run(t.Context(), image,
		testcontainers.WithCmd(cmd...),
		testcontainers.WithHostConfigModifier(func(c *container.HostConfig) { c.NetworkMode = "host" }))
	if s.Container != nil {
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			require.NoError(t, s.Terminate(ctx, testcontainers.StopTimeout(0)))
		})
	}
	require.NoError(t, err)
	s.engine, err = testcontainers.NewDockerClientWithOpts(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.engine.Close()) })
	s.admin = redis.NewClient(&redis.Options{Addr: s.addr(), MaxRetries: -1})
	t.Cleanup(func() { require.NoError(t, s.admin.Close()) })
	s.await(t)
	return s
}

func (s *server) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// await waits until it answers.
func (s *server) await(t *testing.T) {
	t.Helper()
	redistest.Eventually(t, time.Minute, func() bool { return s.admin.Ping(t.Context()).Err() == nil }, "%s doesn't answer", s.addr())
}

func (s *server) kill(t *testing.T) {
	t.Helper()
	_, err := s.engine.ContainerKill(t.Context(), s.GetContainerID(), client.ContainerKillOptions{Signal: "KILL"})
	require.NoError(t, err)
}

func (s *server) pause(t *testing.T) {
	t.Helper()
	_, err := s.engine.ContainerPause(t.Context(), s.GetContainerID(), client.ContainerPauseOptions{})
	require.NoError(t, err)
}

func (s *server) unpause(t *testing.T) {
	t.Helper()
	_, err := s.engine.ContainerUnpause(t.Context(), s.GetContainerID(), client.ContainerUnpauseOptions{})
	require.NoError(t, err)
}

// replicated starts a master and two replicas under three sentinels.
func replicated(t *testing.T) (servers []*server, e topology.Endpoint) {
	t.Helper()
	const name = "m"
	master := run(t)
	servers = append(servers, master)
	for range 2 {
		servers = append(servers, run(t, "--replicaof", "127.0.0.1", strconv.Itoa(master.port)))
	}
	follow(t, servers, master)
	e = topology.Endpoint{Kind: topology.Sentinel, MasterName: name}
	for range 3 {
		port, err := redistest.FreePort()
		require.NoError(t, err)
		conf := strings.Join([]string{
			"port " + strconv.Itoa(port),
			"bind 127.0.0.1",
			fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 2", name, master.port),
			"sentinel down-after-milliseconds " + name + " 1000",
			"sentinel failover-timeout " + name + " 5000",
		}, "\n") + "\n"
		c, err := testcontainers.Run(t.Context(), image,
			testcontainers.WithCmd("redis-server", "/data/sentinel.conf", "--sentinel"),
			testcontainers.WithFiles(testcontainers.ContainerFile{Reader: strings.NewReader(conf), ContainerFilePath: "/data/sentinel.conf", FileMode: 0o666}),
			testcontainers.WithHostConfigModifier(func(c *container.HostConfig) { c.NetworkMode = "host" }))
		if c != nil {
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				require.NoError(t, c.Terminate(ctx, testcontainers.StopTimeout(0)))
			})
		}
		require.NoError(t, err)
		e.Addrs = append(e.Addrs, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	}
	for _, addr := range e.Addrs {
		sentinel := redis.NewSentinelClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { require.NoError(t, sentinel.Close()) })
		redistest.Eventually(t, time.Minute, func() bool {
			m, err := sentinel.Master(t.Context(), name).Result()
			return err == nil && m["num-slaves"] == "2" && m["num-other-sentinels"] == "2" && m["flags"] == "master"
		}, "a sentinel doesn't see the others")
	}
	return servers, e
}

// follow waits until all others are replicas of the master.
func follow(t *testing.T, servers []*server, master *server) {
	t.Helper()
	redistest.Eventually(t, time.Minute, func() bool {
		info, err := master.admin.Info(t.Context(), "replication").Result()
		return err == nil && strings.Count(info, "state=online") == len(servers)-1
	}, "replicas don't follow")
}
