package redisson

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// startTimeout is how long a JVM may take until its Redisson is connected.
const startTimeout = 90 * time.Second

// JVM is a process with one Redisson client.
type JVM struct {
	id  string // Redisson's client id
	cmd *exec.Cmd
	in  io.WriteCloser
	log *tail

	mu    sync.Mutex
	next  int
	calls map[int]*Future
	gone  error // why no answer comes any more

	ended chan struct{}
}

// Config is what a JVM is started with.
type Config struct {
	// Version of Redisson, as compiled by scripts/redisson.sh.
	Version string
	// Watchdog is Redisson's lockWatchdogTimeout: 0 means its default of 30 s.
	Watchdog time.Duration
	// Sharding is Redisson's ShardedSubscriptionMode, AUTO by default.
	Sharding string
	// Prefix is what Redisson's NameMapper puts before each name: none by default.
	Prefix string
	// Addrs are host:port; several are a cluster.
	Addrs []string
}

// Start starts a JVM for one test, whose end ends it.
func Start(tb testing.TB, home string, c Config) *JVM {
	tb.Helper()
	j, err := Launch(home, c)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		j.Kill()
		if tb.Failed() {
			tb.Logf("Redisson %s said: %s", c.Version, j.log)
		}
	})
	return j
}

// Launch starts a JVM and returns once its client is connected. home is what
// scripts/redisson.sh printed.
func Launch(home string, c Config) (*JVM, error) {
	if c.Watchdog == 0 {
		c.Watchdog = 30 * time.Second
	}
	if c.Sharding == "" {
		c.Sharding = "AUTO"
	}
	dir := filepath.Join(home, c.Version)
	path, err := os.ReadFile(filepath.Join(dir, "classpath"))
	if err != nil {
		return nil, err
	}
	// Small: several run on one machine, each for seconds.
	args := []string{
		"-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
		"-cp", dir + string(os.PathListSeparator) + strings.TrimSpace(string(path)),
		"holdfast.Peer", strconv.FormatInt(c.Watchdog.Milliseconds(), 10), c.Sharding, c.Prefix,
	}
	for _, a := range c.Addrs {
		args = append(args, "redis://"+a)
	}
	j := &JVM{cmd: exec.Command("java", args...), log: &tail{}, calls: make(map[int]*Future), ended: make(chan struct{})}
	j.cmd.Stderr = j.log
	out, err := j.cmd.StdoutPipe()
	if err == nil {
		j.in, err = j.cmd.StdinPipe()
	}
	ready := j.expect(nil)
	if err == nil {
		err = j.cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	go j.read(out)
	select {
	case <-ready.done:
		err = ready.err
	case <-time.After(startTimeout):
		err = fmt.Errorf("it isn't ready after %s", startTimeout)
	}
	if err == nil {
		err = json.Unmarshal(ready.value, &j.id)
	}
	if err != nil {
		j.Kill()
		return nil, fmt.Errorf("a JVM with Redisson %s: %w: %s", c.Version, err, j.log)
	}
	return j, nil
}

// ID is Redisson's client id, the first half of its owners.
func (j *JVM) ID() string { return j.id }

// Kill ends the process as a crash does, and waits for it.
func (j *JVM) Kill() {
	_ = j.cmd.Process.Kill() // it may have ended already
	<-j.ended
}

// expect makes the future of the next call.
func (j *JVM) expect(tb testing.TB) *Future {
	j.mu.Lock()
	defer j.mu.Unlock()
	f := &Future{tb: tb, id: j.next, done: make(chan struct{})}
	j.next++
	j.calls[f.id] = f
	if j.gone != nil {
		f.end(nil, j.gone)
	}
	return f
}

// read hands out the answers until the process ends.
func (j *JVM) read(out io.Reader) {
	defer close(j.ended)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var a struct {
			ID    *int            `json:"id"`
			Value json.RawMessage `json:"value"`
			Error string          `json:"error"`
		}
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			a.Error = fmt.Sprintf("an answer that is none: %s", lines.Bytes())
		}
		id := 0 // the first, which no request asked for
		if a.ID != nil {
			id = *a.ID
		}
		var err error
		if a.Error != "" {
			class, text, _ := strings.Cut(a.Error, ": ")
			err = &Exception{class, text}
		}
		j.mu.Lock()
		f := j.calls[id]
		delete(j.calls, id)
		j.mu.Unlock()
		if f != nil {
			f.end(a.Value, err)
		}
	}
	gone := errors.Join(errors.New("the JVM has ended"), lines.Err(), j.cmd.Wait())
	j.mu.Lock()
	defer j.mu.Unlock()
	j.gone = gone
	for _, f := range j.calls {
		f.end(nil, gone)
	}
}

// Owner is a Java thread, which Redisson takes for an owner.
type Owner struct {
	tb   testing.TB
	jvm  *JVM
	name string
}

// Owner answers this test's thread of this name; it is started at its first call.
func (j *JVM) Owner(tb testing.TB, name string) *Owner { return &Owner{tb, j, tb.Name() + "/" + name} }

// Field is the owner as it stands in Redis.
func (o *Owner) Field() string {
	o.tb.Helper()
	return o.jvm.id + ":" + strconv.FormatInt(Get[int64](o.object("", "").Call("threadId")), 10)
}

// Parked says whether the owner's thread sleeps in a call until a message wakes it.
func (o *Owner) Parked() bool {
	o.tb.Helper()
	look := &Owner{o.tb, o.jvm, o.name + "/parked"}
	return Get[bool](look.object("", o.name).Call("parked"))
}

// Object is one of Redisson's objects, used by one owner.
type Object struct {
	owner      *Owner
	kind, name string
	names      []string
}

// Object answers an object: kind is the factory method of RedissonClient without
// its "get", or ReadLock or WriteLock.
func (o *Owner) Object(kind, name string) *Object { return o.object(kind, name) }

func (o *Owner) object(kind, name string) *Object { return &Object{owner: o, kind: kind, name: name} }

// MultiLock answers a multi lock of plain locks.
func (o *Owner) MultiLock(names ...string) *Object {
	return &Object{owner: o, kind: "MultiLock", names: names}
}

// Millis is a TimeUnit argument, and D a Duration.
const Millis = "ms"

// D makes a java.time.Duration.
func D(d time.Duration) any { return map[string]int64{"ms": d.Milliseconds()} }

// Call calls a method and answers at once. Calls of one owner run one after the
// other.
func (o *Object) Call(method string, args ...any) *Future {
	j, tb := o.owner.jvm, o.owner.tb
	tb.Helper()
	if args == nil {
		args = []any{}
	}
	f := j.expect(tb)
	line, err := json.Marshal(map[string]any{
		"id": f.id, "owner": o.owner.name, "kind": o.kind, "name": o.name, "names": o.names, "call": method, "args": args,
	})
	require.NoError(tb, err)
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.in.Write(append(line, '\n')); err != nil && j.gone == nil {
		f.end(nil, err)
	}
	return f
}

// Exception is what a Java call threw.
type Exception struct{ Class, Message string }

func (e *Exception) Error() string { return e.Class + ": " + e.Message }

// Future is a call under way.
type Future struct {
	tb    testing.TB
	id    int
	once  sync.Once
	done  chan struct{}
	value json.RawMessage
	err   error
}

func (f *Future) end(value json.RawMessage, err error) {
	f.once.Do(func() {
		f.value, f.err = value, err
		close(f.done)
	})
}

// Done is closed once the call has ended.
func (f *Future) Done() <-chan struct{} { return f.done }

// Err waits for the end of the call: an *Exception, or that the JVM is gone.
func (f *Future) Err() error {
	f.tb.Helper()
	select {
	case <-f.done:
		return f.err
	case <-time.After(time.Minute):
		f.tb.Fatal("a Java call hangs")
		return nil
	}
}

// Answer waits for the end of the call and answers what it returned, as JSON;
// nil if it threw.
func (f *Future) Answer() json.RawMessage {
	<-f.done
	return f.value
}

// OK waits for the end of a call that must succeed.
func (f *Future) OK() {
	f.tb.Helper()
	require.NoError(f.tb, f.Err())
}

// Get waits for the answer of a call that must succeed.
func Get[T any](f *Future) T {
	f.tb.Helper()
	require.NoError(f.tb, f.Err())
	var v T
	require.NoError(f.tb, json.Unmarshal(f.value, &v), string(f.value))
	return v
}

// tail keeps the last of what a process wrote.
type tail struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.b.Len() > 1<<16 {
		t.b.Reset()
	}
	return t.b.Write(p)
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}
