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
}
