package holdfast_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/locktest"
)

// Some faults need a process: one that is stopped, or many that start at once.
// The test binary is started again as that process, before any test of it runs.
const childEnv = "HOLDFAST_TEST_CHILD" // role, server, name

func init() {
	words := strings.SplitN(os.Getenv(childEnv), " ", 3)
	if len(words) < 3 {
		return
	}
	role := map[string]func(rdb *redis.Client, name string) error{
		"holder": holderChild,
		"crowd":  crowdChild,
		"multi":  multiChild,
	}[words[0]]
	rdb := redis.NewClient(&redis.Options{Addr: words[1]})
	if err := role(rdb, words[2]); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// child is a process that plays a role.
type child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
}

// startChild starts one, which ends with the test at the latest.
func startChild(t *testing.T, role, addr, name string) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), childEnv+"="+role+" "+addr+" "+name)
	c.cmd.Stderr = os.Stderr
	var err error
	c.stdin, err = c.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	c.lines = bufio.NewScanner(out)
	require.NoError(t, c.cmd.Start())
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill() // it has ended already, if all went well
		_ = c.cmd.Wait()         // killed, or ended: either is an error here that says nothing
	})
	return c
}

// line is the next line that the process writes.
func (c *child) line(t *testing.T) string {
	t.Helper()
	require.True(t, c.lines.Scan(), "the process has ended: %v", c.lines.Err())
	return c.lines.Text()
}

// stopped is the gap in a child's clock by which it knows that it was stopped:
// longer than its lease.
const stopped = 2 * watched

// holderChild is stopped for longer than the lease of its hold.
func holderChild(rdb *redis.Client, name string) error {
	c, err := holdfast.New(rdb, holdfast.WithLease(watched))
	if err != nil {
		return err
	}
	return errors.Join(locktest.HoldThroughStop(c.Lock(name), stopped), c.Close())
}

// crowd is how many owners each process of a crowd has.
const crowd = 2000

// crowdChild tries one name under many owners at once, keeps what it gets, and
// says how often it did.
func crowdChild(rdb *redis.Client, name string) error {
	c, err := holdfast.New(rdb, holdfast.WithLease(never))
	if err != nil {
		return err
	}
	l := c.Lock(name)
	fmt.Println("ready")
	told := bufio.NewScanner(os.Stdin)
	if !told.Scan() {
		return told.Err()
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	owners := map[string]bool{}
	won := 0
	var failed error
	for range 20 {
		wg.Go(func() {
			for range crowd / 20 {
				ctx := holdfast.WithOwner(context.Background())
				id, _ := holdfast.OwnerID(ctx)
				_, err := l.TryLock(ctx)
				mu.Lock()
				owners[id] = true
				switch {
				case err == nil:
					won++
				case !errors.Is(err, holdfast.ErrNotAcquired):
					failed = err
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if failed != nil {
		return failed
	}
	sample := ""
	for id := range owners {
		sample = id
		break
	}
	fmt.Println(won, len(owners), c.ID(), sample)
	told.Scan() // keep it until the parent has read all
	return nil
}
