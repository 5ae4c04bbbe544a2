package redisson_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/integration/redisson"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/record"
)

// java is where one section is played by a live Redisson.
type java struct {
	*record.Scene
	jvm *redisson.JVM
	// threads are the ids that the record gives to the threads of this JVM.
	threads map[string]int
}

// of answers an object as a thread of the record uses it.
func (s *java) of(thread int, kind, name string) *redisson.Object {
	o := s.jvm.Owner(s, strconv.Itoa(thread))
	if _, ok := s.threads[o.Field()]; !ok {
		s.threads[o.Field()] = thread
	}
	return o.Object(kind, name)
}

func (s *java) anonymous(line string) string {
	for field, thread := range s.threads {
		_, id, _ := strings.Cut(field, ":")
		line = regexp.MustCompile(regexp.QuoteMeta(field)+`\b`).ReplaceAllString(line, fmt.Sprintf("<client>:<%d>", thread))
		line = regexp.MustCompile(`thread-id: `+id+`\b`).ReplaceAllString(line, fmt.Sprintf("thread-id: %d", thread))
	}
	return strings.ReplaceAll(line, s.jvm.ID(), "<client>")
}

// onceOnly is the section of a lock that its holder can't enter again.
func onceOnly(s *java, kind string) {
	l := s.of(1, kind, "n")
	l.Call("lock").OK()
	s.Look("lock")
	err := l.Call("tryLock").Err()
	require.Error(s, err)
	s.Answer("its holder tries again: %s", strings.Split(err.Error(), " by thread")[0]) // of the JVM's own pool
	s.Look("tryLock of the holder")
	l.Call("unlock").OK()
	s.Look("unlock")
}

// sections are the calls that the records in golden/testdata are of, made anew.
var sections = map[string]func(*java){
	"RLock": func(s *java) {
		l := s.of(1, "Lock", "n")
		l.Call("lock").OK()
		s.Look("lock")
		l.Call("lock").OK()
		s.Look("lock again")
		l.Call("unlock").OK()
		s.Look("unlock (1 left)")
		l.Call("unlock").OK()
		s.Look("unlock (0 left)")
		l.Call("lock", 7000, redisson.Millis).OK()
		s.Look("lock with lease 7s")
		require.True(s, redisson.Get[bool](l.Call("forceUnlock")))
		s.Look("force unlock")
		s.Answer("unlock when not held: %v", l.Call("unlock").Err())
	},
	"RLock name with braces": func(s *java) {
		l := s.of(1, "Lock", "x{y}z")
		l.Call("lock").OK()
		s.Look("lock")
		l.Call("unlock").OK()
		s.Look("unlock")
	},
	"non-reentrant and spin": func(s *java) {
		l := s.of(1, "SpinLock", "n")
		l.Call("lock").OK()
		s.Look("spin lock")
		l.Call("unlock").OK()
		s.Look("spin unlock")
	},
	"NonReentrantLock":     func(s *java) { onceOnly(s, "NonReentrantLock") },
	"NonReentrantFairLock": func(s *java) { onceOnly(s, "NonReentrantFairLock") },
	"RFencedLock": func(s *java) {
		l := s.of(1, "FencedLock", "n")
		s.Answer("token %d", redisson.Get[int](l.Call("lockAndGetToken")))
		s.Look("lock")
		again := redisson.Get[int](l.Call("lockAndGetToken"))
		s.Answer("token at re-entry %d, getToken %d", again, redisson.Get[int](l.Call("getToken")))
		s.Look("lock again")
		l.Call("unlock").OK()
		l.Call("unlock").OK()
		s.Look("unlock twice")
	},
	"FairLock": func(s *java) {
		queued := func(n int64) {
			redistest.Eventually(s, prompt, func() bool {
				return s.Redis.LLen(s.Context(), "redisson_lock_queue:{n}").Val() == n
			}, "%d stand in line", n)
		}
		l := s.of(1, "FairLock", "n")
		l.Call("lock").OK()
		s.Look("lock")
		first := s.of(62, "FairLock", "n").Call("lock")
		queued(1)
		s.Look("first waiter, no limit")
		second := s.of(63, "FairLock", "n").Call("tryLock", 20000, 9000, redisson.Millis)
		queued(2)
		s.Look("second waiter, tryLock(20 s, lease 9 s)")
		third := s.of(64, "FairLock", "n").Call("tryLock", 1000, redisson.Millis)
		queued(3)
		s.Look("third waiter, tryLock(1 s)")
		s.Answer("w3 got %v", redisson.Get[bool](third))
		queued(2)
		s.Look("third gave up")
		l.Call("unlock").OK()
		first.OK()
		s.Look("unlock: first waiter has it")
		s.of(62, "FairLock", "n").Call("unlock").OK()
		s.Answer("w2 got %v", redisson.Get[bool](second))
		s.Look("second has it")
		s.of(63, "FairLock", "n").Call("unlock").OK()
		s.Look("all done")
	},
	"ReadWriteLock": func(s *java) {
		r, w := s.of(1, "ReadLock", "n"), s.of(1, "WriteLock", "n")
		r.Call("lock").OK()
		s.Look("read lock")
		r.Call("lock").OK()
		s.Look("read lock again")
		s.of(65, "ReadLock", "n").Call("lock", 12000, redisson.Millis).OK()
		s.Look("second reader, lease 12 s")
		s.Answer("reader tries write: %v", redisson.Get[bool](w.Call("tryLock")))
		s.of(65, "ReadLock", "n").Call("unlock").OK()
		s.Look("second reader gone")
		r.Call("unlock").OK()
		s.Look("read unlock (1 left)")
		r.Call("unlock").OK()
		s.Look("read unlock (0 left)")
		w.Call("lock").OK()
		s.Look("write lock")
		w.Call("lock").OK()
		s.Look("write lock again")
		w.Call("unlock").OK()
		s.Look("write unlock (1 left)")
		r.Call("lock").OK()
		s.Look("writer reads")
		w.Call("unlock").OK()
		s.Look("downgraded")
		r.Call("unlock").OK()
		s.Look("read unlock")
	},
	"ReadWriteLock: many readers of different threads": func(s *java) {
		threads := []int{101, 102, 103}
		for _, n := range threads {
			s.Answer("reader %d tryLock: %v", n, redisson.Get[bool](s.of(n, "ReadLock", "n").Call("tryLock")))
		}
		s.Look("three readers")
		for _, n := range threads {
			s.of(n, "ReadLock", "n").Call("unlock").OK()
			s.Answer("unlock %d: null", n)
		}
		s.Look("three unlocks")
	},
	"Semaphore": func(s *java) {
		sem := s.of(1, "Semaphore", "n")
		s.Answer("trySet %v again %v", redisson.Get[bool](sem.Call("trySetPermits", 3)), redisson.Get[bool](sem.Call("trySetPermits", 3)))
		s.Look("trySetPermits(3)")
		sem.Call("acquire", 2).OK()
		s.Look("acquire(2)")
		sem.Call("release").OK()
		s.Look("release")
		sem.Call("addPermits", 4).OK()
		s.Look("addPermits(4)")
		sem.Call("addPermits", -20).OK()
		s.Look("addPermits(-20)")
		s.Answer("drain %d", redisson.Get[int](sem.Call("drainPermits")))
		s.Look("drain")
	},
	"PermitExpirableSemaphore": func(s *java) {
		sem := s.of(1, "PermitExpirableSemaphore", "n")
		s.Answer("trySet %v", redisson.Get[bool](sem.Call("trySetPermits", 3)))
		s.Look("trySetPermits(3)")
		first := redisson.Get[string](sem.Call("acquire"))
		s.Answer("permit id length %d", len(first))
		s.Look("acquire, no lease")
		second := redisson.Get[string](sem.Call("acquire", 2000, redisson.Millis))
		s.Look("acquire, lease 2 s")
		s.Answer("update lease %v", redisson.Get[bool](sem.Call("updateLeaseTime", second, 30000, redisson.Millis)))
		s.Look("updateLeaseTime 30 s")
		sem.Call("release", first).OK()
		s.Look("release")
		err := sem.Call("release", first).Err()
		require.Error(s, err)
		s.Answer("release again: %s", strings.Split(err.Error(), ". ")[0])
		sem.Call("setPermits", 5).OK()
		s.Look("setPermits(5)")
		sem.Call("release", second).OK()
		s.Look("release")
		s.Answer("available %d acquired %d", redisson.Get[int](sem.Call("availablePermits")), redisson.Get[int](sem.Call("acquiredPermits")))
	},
	"CountDownLatch": func(s *java) {
		l := s.of(1, "CountDownLatch", "n")
		s.Answer("trySet %v again %v", redisson.Get[bool](l.Call("trySetCount", 2)), redisson.Get[bool](l.Call("trySetCount", 2)))
		s.Look("trySetCount(2)")
		l.Call("countDown").OK()
		s.Look("countDown")
		l.Call("countDown").OK()
		s.Look("countDown to 0")
		l.Call("countDown").OK()
		s.Look("countDown below 0")
		require.True(s, redisson.Get[bool](l.Call("trySetCount", 1)))
		require.True(s, redisson.Get[bool](l.Call("delete")))
		s.Look("delete")
	},
	"CountDownLatch name with braces": func(s *java) {
		l := s.of(1, "CountDownLatch", "x{y}z")
		require.True(s, redisson.Get[bool](l.Call("trySetCount", 1)))
		l.Call("countDown").OK()
		s.Look("set 1, countDown")
	},
	"RateLimiter": func(s *java) {
		l := s.of(1, "RateLimiter", "n")
		per := redisson.D(10 * time.Second)
		s.Answer("trySetRate %v", redisson.Get[bool](l.Call("trySetRate", "OVERALL", 5, per)))
		s.Look("trySetRate(OVERALL, 5, 10 s)")
		s.Answer("tryAcquire(2) %v", redisson.Get[bool](l.Call("tryAcquire", 2)))
		s.Look("tryAcquire(2)")
		l.Call("setRate", "PER_CLIENT", 3, per).OK()
		s.Look("setRate(PER_CLIENT)")
		s.Answer("tryAcquire(1) %v", redisson.Get[bool](l.Call("tryAcquire", 1)))
		s.Look("tryAcquire(1)")
	},
	"MultiLock": func(s *java) {
		o := s.jvm.Owner(s, "1")
		s.threads[o.Field()] = 1
		l := o.MultiLock("m1", "m2")
		l.Call("lock").OK()
		s.Look("lock")
		l.Call("unlock").OK()
		s.Look("unlock")
	},
}

// The records that holdfast is compared with, call by call, are what a Redisson
// leaves here and now: keys, types, fields, members, times to live, messages and
// answers.
func TestRecordsAreOfALiveRedisson(t *testing.T) {
	for _, version := range []string{newest, older} {
		t.Run(version, func(t *testing.T) {
			own := redistest.Start(t) // each section empties it
			j := redisson.Start(t, home, redisson.Config{Version: version, Addrs: []string{own.Addr()}})
			recorded := record.Read(t, "../../golden/testdata/redisson-"+version+".txt")
			if version == newest {
				recorded = append(recorded, record.Read(t, "../../golden/testdata/redisson-"+version+"-only.txt")...)
				require.Len(t, sections, len(recorded))
			}
			for _, theirs := range recorded {
				t.Run(theirs.Name, func(t *testing.T) {
					play := sections[theirs.Name]
					require.NotNil(t, play, "nobody plays this section")
					s := &java{Scene: record.NewScene(t, own.Client(t)), jvm: j, threads: make(map[string]int)}
					s.Anonymous = s.anonymous
					play(s)
					seen := s.Section(theirs.Name)
					for _, fault := range record.Compare(theirs, seen, nil) {
						t.Error(fault)
					}
					if t.Failed() {
						t.Logf("seen here:\n%s", seen)
					}
				})
			}
		})
	}
}
