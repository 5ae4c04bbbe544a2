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
}

const keepsToken = "a re-entry keeps its token: a larger one would fence off what the same owner writes with the outer hold's"
