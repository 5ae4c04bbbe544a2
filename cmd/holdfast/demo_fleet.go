package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
)

// order is what the demo tells a pod, as a line of JSON on its stdin.
type order struct {
	Do string `json:"do"`
}

// Events that the fleet itself reports.
const (
	podExited = "exited"
	podFailed = "failed"
)

// fleet is the pods of a demo: processes of this same program.
type fleet struct {
	pods   []*pod
	events chan event
	quit   context.CancelFunc
	wg     sync.WaitGroup // readers of events, each of which waits for its pod
}

type pod struct {
	number int
	cmd    *exec.Cmd
	orders io.WriteCloser
}

// launch starts the pods. They learn the URL from their environment, where
// other users of the machine can't read it.
func launch(ctx context.Context, p *program, url, prefix string) (*fleet, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program, to start it as pods: %w", err)
	}
	ctx, quit := context.WithCancel(ctx)
	f := &fleet{events: make(chan event), quit: quit}
	for n := 1; n <= demoPods; n++ {
		cmd := exec.CommandContext(ctx, self, "demo-pod", prefix, strconv.Itoa(n))
		cmd.Env = p.env.with(map[string]string{urlVariable: url})
		cmd.Stderr = p.stderr
		// Ctrl-C ends the demo, and the demo its pods. If it can't, they end at
		// the end of their stdin.
		cmd.SysProcAttr = ownGroup()
		if err := f.add(ctx, n, cmd); err != nil {
			f.stop()
			return nil, fmt.Errorf("start pod %d: %w", n, err)
		}
	}
	return f, nil
}

func (f *fleet) add(ctx context.Context, n int, cmd *exec.Cmd) error {
	orders, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	reports, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	f.pods = append(f.pods, &pod{n, cmd, orders})
	f.wg.Go(func() { f.listen(ctx, n, cmd, reports) })
	return nil
}

// listen passes on what a pod reports, and its end.
func (f *fleet) listen(ctx context.Context, n int, cmd *exec.Cmd, reports io.Reader) {
	lines := bufio.NewScanner(reports)
	for lines.Scan() {
		e := event{}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			e = event{Event: podFailed, Text: fmt.Sprintf("said something strange: %q", lines.Text())}
		}
		e.Pod = n
		f.pass(ctx, e)
	}
	_ = cmd.Wait() // how it ended is in ProcessState
	f.pass(ctx, event{Pod: n, Event: podExited, Text: "its process has ended: " + cmd.ProcessState.String()})
}

func (f *fleet) pass(ctx context.Context, e event) {
	select {
	case f.events <- e:
	case <-ctx.Done(): // nobody listens any more
	}
}

// order tells pods what to do. A pod that isn't there any more says so by its
// end, so the error doesn't matter here.
func (f *fleet) order(do string, numbers ...int) {
	for _, p := range f.pods {
		for _, n := range numbers {
			if p.number == n {
				_ = json.NewEncoder(p.orders).Encode(order{do})
			}
		}
	}
}

// kill ends a pod with SIGKILL.
func (f *fleet) kill(number int) error { return f.pods[number-1].cmd.Process.Kill() }

// dismiss lets pods end by themselves.
func (f *fleet) dismiss() {
	for _, p := range f.pods {
		_ = p.orders.Close() // fails for one that has ended
	}
}

// stop ends all pods that still run, and returns when they are gone.
func (f *fleet) stop() {
	f.quit()
	f.wg.Wait()
}
