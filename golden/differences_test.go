package golden

import "github.com/holdfast-go/holdfast/internal/redistest/record"

// differences that are meant. An entry that no longer differs fails the test.
//
// Not listed, since no other party looks at them: private keys, whose names have
// `holdfast:` in them here and begin with `redisson_unlock_latch:` there.
var differences = []record.Difference{
	{
		Section: "RLock",
		Theirs:  []string{"unlock when not held: IllegalMonitorStateException: attempt to unlock lock, not locked by current thread by node id: <client> thread-id: 1"},
		Ours:    []string{"unlock when not held: holdfast: not held: \"n\": expired or lost"},
		Why:     "an error, and it says what became of the hold",
	},
	heldAlready("NonReentrantLock"),
	heldAlready("NonReentrantFairLock"),
	{
		Section: "RFencedLock", Step: "lock again",
		Theirs: []string{"token at re-entry 2, getToken 2", "key redisson_lock_token:{n} | string | no ttl | 2"},
		Ours:   []string{"token at re-entry 1, getToken 1", "key redisson_lock_token:{n} | string | no ttl | 1"},
		Why:    keepsToken,
	},
	{
		Section: "RFencedLock", Step: "unlock twice",
		Theirs: []string{"key redisson_lock_token:{n} | string | no ttl | 2"},
		Ours:   []string{"key redisson_lock_token:{n} | string | no ttl | 1"},
		Why:    keepsToken,
	},
	{
		Section: "FairLock", Step: "first waiter, no limit",
		Theirs: []string{
			"key redisson_lock_queue:{n} | list | no ttl | <client>:<62>",
			"key redisson_lock_timeout:{n} | zset | no ttl | <client>:<62> <now+330s>",
		},
		Ours: []string{
			"key redisson_lock_queue:{n} | list | ttl 86730s | <client>:<62>",
			"key redisson_lock_timeout:{n} | zset | ttl 86730s | <client>:<62> <now+330s>",
		},
		Why: queueEnds,
	},
	{
		Section: "FairLock", Step: "second waiter, tryLock(20 s, lease 9 s)",
		Theirs: []string{
			"key redisson_lock_queue:{n} | list | no ttl | <client>:<62> <client>:<63>",
			"key redisson_lock_timeout:{n} | zset | no ttl | <client>:<62> <now+329s> <client>:<63> <now+349s>",
		},
		Ours: []string{
			"key redisson_lock_queue:{n} | list | ttl 86749s | <client>:<62> <client>:<63>",
			"key redisson_lock_timeout:{n} | zset | ttl 86749s | <client>:<62> <now+329s> <client>:<63> <now+349s>",
		},
		Why: queueEnds,
	},
	{
		Section: "FairLock", Step: "third waiter, tryLock(1 s)",
		Theirs: []string{
			"key redisson_lock_queue:{n} | list | no ttl | <client>:<62> <client>:<63> <client>:<64>",
			"key redisson_lock_timeout:{n} | zset | no ttl | <client>:<62> <now+329s> <client>:<63> <now+349s> <client>:<64> <now+350s>",
		},
		Ours: []string{
			"key redisson_lock_queue:{n} | list | ttl 86750s | <client>:<62> <client>:<63> <client>:<64>",
			"key redisson_lock_timeout:{n} | zset | ttl 86750s | <client>:<62> <now+329s> <client>:<63> <now+349s> <client>:<64> <now+350s>",
		},
		Why: queueEnds,
	},
	{
		Section: "FairLock", Step: "third gave up",
		Theirs: []string{
			"key redisson_lock_queue:{n} | list | no ttl | <client>:<62> <client>:<63>",
			"key redisson_lock_timeout:{n} | zset | no ttl | <client>:<62> <now+328s> <client>:<63> <now+348s>",
		},
		Ours: []string{
			"key redisson_lock_queue:{n} | list | ttl 86748s | <client>:<62> <client>:<63>",
			"key redisson_lock_timeout:{n} | zset | ttl 86748s | <client>:<62> <now+328s> <client>:<63> <now+348s>",
		},
		Why: queueEnds,
	},
	{
		Section: "FairLock", Step: "unlock: first waiter has it",
		Theirs: []string{
			"key redisson_lock_queue:{n} | list | no ttl | <client>:<63>",
			"key redisson_lock_timeout:{n} | zset | no ttl | <client>:<63> <now+48s>",
		},
		Ours: []string{
			"key redisson_lock_queue:{n} | list | ttl 86750s | <client>:<63>",
			"key redisson_lock_timeout:{n} | zset | ttl 86750s | <client>:<63> <now+48s>",
		},
		Why: queueEnds,
	},
	{
		Section: "ReadWriteLock", Step: "write lock again",
		Theirs: []string{"key n | hash | ttl 60s | <client>:<1>:write 2 mode write"},
		Ours:   []string{"key n | hash | ttl 30s | <client>:<1>:write 2 mode write"},
		Why:    "a writer's re-entry doesn't add its lease to the life that is left: a writer that dies is missed after one lease, however deep it was",
	},
	{
		Section: "ReadWriteLock", Step: "downgraded",
		Ours: []string{"msg redisson_rwlock:{n} <- 1"},
		Why:  "readers may come in from that moment: they are told, instead of finding out when the writer's lease would have ended",
	},
	{
		Section: "PermitExpirableSemaphore", Step: "acquire, no lease",
		Theirs: []string{"key {n}:timeout | zset | no ttl | <id 1> 922337203685477"},
		Ours:   []string{"key {n}:timeout | zset | no ttl | <id 1> <now+30s>"},
		Why:    renewedPermit,
	},
	{
		Section: "PermitExpirableSemaphore", Step: "acquire, lease 2 s",
		Theirs: []string{"key {n}:timeout | zset | no ttl | <id 2> <now+2s> <id 1> 922337203685477"},
		Ours:   []string{"key {n}:timeout | zset | no ttl | <id 2> <now+2s> <id 1> <now+30s>"},
		Why:    renewedPermit,
	},
	{
		Section: "PermitExpirableSemaphore", Step: "updateLeaseTime 30 s",
		Theirs: []string{"key {n}:timeout | zset | no ttl | <id 2> <now+30s> <id 1> 922337203685477"},
		Ours:   []string{"key {n}:timeout | zset | no ttl | <id 1> <now+30s> <id 2> <now+30s>"},
		Why:    renewedPermit,
	},
	{
		Section: "PermitExpirableSemaphore", Step: "setPermits(5)",
		Theirs: []string{"release again: RedisException: Unexpected exception while processing command"},
		Ours:   []string{"release again: permit <id 1>: holdfast: not held: \"n\": never held by this owner"},
		Why:    "an error that says what is wrong",
	},
}

const (
	keepsToken    = "a re-entry keeps its token: a larger one would fence off what the same owner writes with the outer hold's"
	queueEnds     = "if all who wait die and nobody comes by again, the queue goes a day after the last place was kept"
	renewedPermit = "a permit without a lease is renewed, instead of lasting for ever: a process that dies gives its permits back"
)

func heldAlready(section string) record.Difference {
	return record.Difference{
		Section: section, Step: "tryLock of the holder",
		Theirs: []string{"its holder tries again: IllegalMonitorStateException: Lock 'n' is non-reentrant and is already held"},
		Ours:   []string{"its holder tries again: holdfast: owner holds it already: \"n\", and this lock is not re-entrant"},
		Why:    "an error, ErrReentry",
	}
}
