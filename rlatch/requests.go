package rlatch

import (
	"strconv"

	"github.com/holdfast-go/holdfast/internal/script"
)

// One function per script: the places of KEYS and ARGV are known here alone.

func (l *Latch) set(k script.Keys, n int64) script.Call {
	return script.NewMutation(setScript, k, nil, n, l.channelArg).AlwaysMark()
}

func (l *Latch) countDown(k script.Keys) script.Call {
	k.More = []any{l.opened}
	return script.NewMutation(countDownScript, k, nil, l.channelArg).AlwaysMark()
}

func (l *Latch) remove(k script.Keys) script.Call {
	k.More = []any{l.opened}
	return script.NewMutation(deleteScript, k, nil, l.channelArg).AlwaysMark()
}

// look makes the question of one who waits; seen is nil at its first look.
func (l *Latch) look(seen any) script.Call {
	ks := []string{l.o.RedisKey(), l.opened.(string)}
	if seen == nil {
		return script.NewCall(awaitScript, ks)
	}
	return script.NewCall(awaitScript, ks, seen)
}

// parseCount reads what the scripts take for a count. One that no int64 holds
// can't have been set here.
func parseCount(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}
