package rlock_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// childEnv makes the test binary a process with many waiters, before any test of
// it runs: server and name.
const childEnv = "HOLDFAST_RLOCK_CHILD"

const (
	crowd     = 200
	childFair = time.Second // its WithFairTimeout, and so its heartbeat
)

func init() {
	url, name, ok := strings.Cut(os.Getenv(childEnv), " ")
	if !ok {
		return
	}
	c, err := holdfast.Open(url, holdfast.WithFairTimeout(childFair))
	for range crowd {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		go func() {
			_, err := c.FairLock(name).Lock(context.Background())
			fmt.Println("not to be served:", err)
		}()
	}
	select {} // until it is killed
}

// startCrowd starts the process and waits until all stand in line.
func startCrowd(t *testing.T, l *line, url string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+url+" "+l.name)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it was killed already, if all went well
		_ = cmd.Wait()
	})
	redistest.Eventually(t, time.Minute, func() bool { return len(l.owners()) >= crowd }, "the crowd waits")
	return cmd
}

// F-A29: a process with 200 waiters is killed. Who comes after gets in within a
// heartbeat, and all the dead go at once, whether it stood in line before or not.
func TestA29DeadWaitersAreSkippedTogether(t *testing.T) {
	for _, queued := range []bool{true, false} {
		t.Run(fmt.Sprint("queued=", queued), func(t *testing.T) {
			l := newLine(t)
			c := connect(t, holdfast.WithFairTimeout(childFair))
			h := held(t, c.FairLock(l.name))
			cmd := startCrowd(t, l, "redis://"+l.rdb.Options().Addr)
			o := order{test: t}
			if queued {
				o.wait("E", c.FairLock(l.name), nil)
				l.await(crowd + 1)
			}
			require.NoError(t, cmd.Process.Kill())
			_ = cmd.Wait() // killed
			start := time.Now()
			require.NoError(t, h.Unlock(t.Context()))
			if !queued {
				o.wait("E", c.FairLock(l.name), nil)
			}
			o.wg.Wait()
			require.Less(t, time.Since(start), 10*childFair, "not a timeout for each of them")
			require.Equal(t, []string{"E"}, o.got)
			require.True(t, l.gone())
		})
	}
}
