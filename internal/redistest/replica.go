package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// replicaTimeout bounds how long a replica may take to come up to its master.
const replicaTimeout = 20 * time.Second

// StartReplica starts a replica of s, with the given extra arguments, and returns
// once it follows. It is a server like any other: Pause keeps it from
// acknowledging anything while its connection stays, Kill ends it.
func (s *Server) StartReplica(tb testing.TB, args ...string) *Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), replicaTimeout)
	defer cancel()
	master := redis.NewClient(s.Options())
	defer master.Close()
	// The master would wait some seconds for more replicas to come.
	if err := master.ConfigSet(ctx, "repl-diskless-sync-delay", "0").Err(); err != nil {
		tb.Fatal("redistest: replica: ", err)
	}
	host, port, err := net.SplitHostPort(s.Addr())
	if err != nil {
		tb.Fatal(err)
	}
	args = append([]string{"--replicaof", host, port}, args...)
	if s.password != "" {
		args = append(args, "--requirepass", s.password, "--masterauth", s.password)
	}
	r := Start(tb, args...)
	if err := Retry(ctx, func() error { return r.follows(ctx, master) }); err != nil {
		tb.Fatal("redistest: replica: ", err)
	}
	return r
}

var errOffline = errors.New("the master doesn't count it as online")

// follows answers why a replica doesn't follow its master yet, or nil. Its own
// word comes too early: the master sends it nothing until it has said so.
func (s *Server) follows(ctx context.Context, master *redis.Client) error {
	info, err := master.Info(ctx, "replication").Result()
	if err == nil && !strings.Contains(info, fmt.Sprintf(",port=%d,state=online,", s.port)) {
		err = errOffline
	}
	return err
}

// StartReplica starts a replica of one of the cluster's masters and returns once
// it follows.
func (c *Cluster) StartReplica(tb testing.TB, master *Server) *Server {
	tb.Helper()
	r := Start(tb, master.args[len(plainArgs(nil)):]...)
	ctx, cancel := context.WithTimeout(context.Background(), clusterTimeout)
	defer cancel()
	theirs, ours := redis.NewClient(master.Options()), redis.NewClient(r.Options())
	defer theirs.Close()
	defer ours.Close()
	err := func() error {
		if err := theirs.ConfigSet(ctx, "repl-diskless-sync-delay", "0").Err(); err != nil {
			return err
		}
		id, err := theirs.ClusterMyID(ctx).Result()
		if err != nil {
			return err
		}
		host, port, err := net.SplitHostPort(master.Addr())
		if err != nil {
			return err
		}
		if err := ours.ClusterMeet(ctx, host, port).Err(); err != nil {
			return err
		}
		// It has to have heard of the master before it can follow it.
		return Retry(ctx, func() error { return ours.ClusterReplicate(ctx, id).Err() })
	}()
	if err == nil {
		err = Retry(ctx, func() error { return r.follows(ctx, theirs) })
	}
	if err != nil {
		tb.Fatal("redistest: replica: ", err)
	}
	return r
}

// Retry calls f until it succeeds or ctx ends: then it is its cause, and f's error.
func Retry(ctx context.Context, f func() error) error {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}
