//go:build unix

package holdfast_test

import (
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
)

// A process that was stopped for longer than its lease learns at its first look
// that the lock is somebody else's.
func TestA15StoppedProcess(t *testing.T) {
	other := connect(t)
	var wg sync.WaitGroup
	for i := range 3 {
		name := t.Name() + strconv.Itoa(i)
		p := startChild(t, "holder", server.Addr(), name)
		require.Equal(t, "held", p.line(t))
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGSTOP))
		at := time.Now()
		wg.Go(func() {
			l := other.Lock(name)
			h, err := l.TryLock(t.Context(), holdfast.Wait(prompt))
			if err != nil {
				t.Error("the lease of a stopped process doesn't end:", err)
				return
			}
			<-time.After(time.Until(at.Add(stopped + 200*time.Millisecond)))
			if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Error(err)
			}
			for _, what := range []string{"the first look at the context", "the unlock"} {
				if !p.lines.Scan() || p.lines.Text() != "true true" {
					t.Errorf("%s said %q", what, p.lines.Text())
				}
			}
			if err := h.Unlock(t.Context()); err != nil {
				t.Error("the other's hold was touched:", err)
			}
		})
	}
	wg.Wait()
}
