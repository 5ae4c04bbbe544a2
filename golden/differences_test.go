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
}

const keepsToken = "a re-entry keeps its token: a larger one would fence off what the same owner writes with the outer hold's"
