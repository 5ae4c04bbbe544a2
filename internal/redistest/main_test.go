package redistest

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(orphanEnv) != "" {
		orphanMain()
	}
	goleak.VerifyTestMain(m)
}

// orphanEnv makes the test binary a child that starts a server and waits for its
// own death.
const orphanEnv = "REDISTEST_ORPHAN"

func orphanMain() {
	srv, _, err := StartMain()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(srv.Addr(), srv.dir)
	_, _ = io.Copy(io.Discard, os.Stdin) // the parent kills, it doesn't close
	os.Exit(1)
}

// fakeTB records what a helper does to the test that it is given.
type fakeTB struct {
	testing.TB // the methods that are not overridden

	mu       sync.Mutex
	failed   bool
	lines    []string
	cleanups []func()
}

func (f *fakeTB) Helper() {}

func (f *fakeTB) Cleanup(fn func()) { f.cleanups = append(f.cleanups, fn) }

func (f *fakeTB) Failed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

func (f *fakeTB) record(fail bool, line string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = f.failed || fail
	f.lines = append(f.lines, line)
}

func (f *fakeTB) Logf(format string, args ...any)   { f.record(false, fmt.Sprintf(format, args...)) }
func (f *fakeTB) Errorf(format string, args ...any) { f.record(true, fmt.Sprintf(format, args...)) }

type fatal struct{}

func (f *fakeTB) Fatal(args ...any) {
	f.record(true, fmt.Sprint(args...))
	panic(fatal{})
}

func (f *fakeTB) Fatalf(format string, args ...any) {
	f.record(true, fmt.Sprintf(format, args...))
	panic(fatal{})
}

// run calls fn and reports whether it ended in Fatal.
func (f *fakeTB) run(fn func()) (died bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(fatal); !ok {
				panic(r)
			}
			died = true
		}
	}()
	fn()
	return false
}

// finish runs the cleanups, as the end of a test does.
func (f *fakeTB) finish() {
	for i := len(f.cleanups) - 1; i >= 0; i-- {
		f.cleanups[i]()
	}
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	t.Cleanup(cancel)
	return ctx
}
