package golden

// difference is a step after which holdfast leaves something else on purpose:
// lines of the record that are missing here, and lines that stand instead.
type difference struct {
	section, step string
	theirs, ours  []string
	why           string
}

// differences that are meant. An entry that no longer differs fails the test.
//
// Not listed, since no other party looks at them: private keys, whose names have
// `holdfast:` in them here and begin with `redisson_unlock_latch:` there.
var differences = []difference{
	{
		section: "RLock",
		theirs:  []string{"unlock when not held: IllegalMonitorStateException: attempt to unlock lock, not locked by current thread by node id: <client> thread-id: 1"},
		ours:    []string{"unlock when not held: holdfast: not held: \"n\": expired or lost"},
		why:     "an error, and it says what became of the hold",
	},
	{
		section: "RFencedLock", step: "lock again",
		theirs: []string{"token at re-entry 2, getToken 2", "key redisson_lock_token:{n} | string | no ttl | 2"},
		ours:   []string{"token at re-entry 1, getToken 1", "key redisson_lock_token:{n} | string | no ttl | 1"},
		why:    keepsToken,
	},
	{
		section: "RFencedLock", step: "unlock twice",
		theirs: []string{"key redisson_lock_token:{n} | string | no ttl | 2"},
		ours:   []string{"key redisson_lock_token:{n} | string | no ttl | 1"},
		why:    keepsToken,
	},
	{
		section: "FairLock", step: "first waiter, no limit",
		theirs: []string{
			"key redisson_lock_queue:{n} | list | no ttl | <client>:<62>",
			"key redisson_lock_timeout:{n} | zset | no ttl | <client>:<62> <now+330s>",
		},
		ours: []string{
			"key redisson_lock_queue:{n} | list | ttl 86730s | <client>:<62>",
			"key redisson_lock_timeout:{n} | zset | ttl 86730s | <client>:<62> <now+330s>",
		},
		why: queueEnds,
	},
	{
		section: "FairLock", step: "second waiter, tryLock(20 s, lease 9 s)",
		theirs: []string{
			"key redisson_lock_queue:{n} | list | no ttl | <client>:<62> <client>:<63>",
			"key redisson_lock_timeout:{n} | zset | no ttl | <client>:<62> <now+329s> <client>:<63> <now+349s>",
		},
		ours: []string{
			"key redisson_lock_queue:{n} | list | ttl 86749s | <client>:<62> <client>:<63>",
			"key redisson_lock_timeout:{n} | zset | ttl 86749s | <client>:<62> <now+329s> <client>:<63> <now+349s>",
		},
		why: queueEnds,
	},
	{
		section: "FairLock", step: "third waiter, tryLock(1 s)",
		theirs: []string{
			"key redisson_lock_queue:{n} | list | no ttl | <client>:<62> <client>:<63> <client>:<64>",
			"key redisson_lock_timeout:{n} | zset | no ttl | <client>:<62> <now+329s> <client>:<63> <now+349s> <client>:<64> <now+350s>",
		},
		ours: []string{
			"key redisson_lock_queue:{n} | list | ttl 86750s | <client>:<62> <client>:<63> <client>:<64>",
			"key redisson_lock_timeout:{n} | zset | ttl 86750s | <client>:<62> <now+329s> <client>:<63> <now+349s> <client>:<64> <now+350s>",
		},
		why: queueEnds,
	},
	{
		section: "FairLock", step: "third gave up",
		theirs: []string{
			"key redisson_lock_queue:{n} | list | no ttl | <client>:<62> <client>:<63>",
			"key redisson_lock_timeout:{n} | zset | no ttl | <client>:<62> <now+328s> <client>:<63> <now+348s>",
		},
		ours: []string{
			"key redisson_lock_queue:{n} | list | ttl 86748s | <client>:<62> <client>:<63>",
			"key redisson_lock_timeout:{n} | zset | ttl 86748s | <client>:<62> <now+328s> <client>:<63> <now+348s>",
		},
		why: queueEnds,
	},
	{
		section: "FairLock", step: "unlock: first waiter has it",
		theirs: []string{
			"key redisson_lock_queue:{n} | list | no ttl | <client>:<63>",
			"key redisson_lock_timeout:{n} | zset | no ttl | <client>:<63> <now+48s>",
		},
		ours: []string{
			"key redisson_lock_queue:{n} | list | ttl 86750s | <client>:<63>",
			"key redisson_lock_timeout:{n} | zset | ttl 86750s | <client>:<63> <now+48s>",
		},
		why: queueEnds,
	},
	{
		section: "ReadWriteLock", step: "write lock again",
		theirs: []string{"key n | hash | ttl 60s | <client>:<1>:write 2 mode write"},
		ours:   []string{"key n | hash | ttl 30s | <client>:<1>:write 2 mode write"},
		why:    "a writer's re-entry doesn't add its lease to the life that is left: a writer that dies is missed after one lease, however deep it was",
	},
	{
		section: "ReadWriteLock", step: "downgraded",
		ours: []string{"msg redisson_rwlock:{n} <- 1"},
		why:  "readers may come in from that moment: they are told, instead of finding out when the writer's lease would have ended",
	},
	{
		section: "PermitExpirableSemaphore", step: "acquire, no lease",
		theirs: []string{"key {n}:timeout | zset | no ttl | <id 1> 922337203685477"},
		ours:   []string{"key {n}:timeout | zset | no ttl | <id 1> <now+30s>"},
		why:    renewedPermit,
	},
	{
		section: "PermitExpirableSemaphore", step: "acquire, lease 2 s",
		theirs: []string{"key {n}:timeout | zset | no ttl | <id 2> <now+2s> <id 1> 922337203685477"},
		ours:   []string{"key {n}:timeout | zset | no ttl | <id 2> <now+2s> <id 1> <now+30s>"},
		why:    renewedPermit,
	},
	{
		section: "PermitExpirableSemaphore", step: "updateLeaseTime 30 s",
		theirs: []string{"key {n}:timeout | zset | no ttl | <id 2> <now+30s> <id 1> 922337203685477"},
		ours:   []string{"key {n}:timeout | zset | no ttl | <id 1> <now+30s> <id 2> <now+30s>"},
		why:    renewedPermit,
	},
	{
		section: "PermitExpirableSemaphore", step: "setPermits(5)",
		theirs: []string{"release again: RedisException: Unexpected exception while processing command"},
		ours:   []string{"release again: permit <id 1>: holdfast: not held: \"n\": never held by this owner"},
		why:    "an error that says what is wrong",
	},
}

const (
	keepsToken    = "a re-entry keeps its token: a larger one would fence off what the same owner writes with the outer hold's"
	queueEnds     = "if all who wait die and nobody comes by again, the queue goes a day after the last place was kept"
	renewedPermit = "a permit without a lease is renewed, instead of lasting for ever: a process that dies gives its permits back"
)
