package rrwlock

import (
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/keys"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/script"
)

// Handles are of one of two kinds.
const (
	readKind  = "read"
	writeKind = "write"
)

// both is what the two modes have in common.
type both struct{}

// Channel is the one that Redisson publishes on.
func (both) Channel(key string) string { return keys.Prefixed("redisson_rwlock", key) }

// Keys implements hold.Keyed: KEYS[4] and KEYS[5].
func (both) Keys(key string) []any {
	return []any{keys.Suffixed(key, "holdfast:writers"), keys.Suffixed(key, "holdfast:readers")}
}

func (both) Extend(a hold.Args) script.Call {
	return script.NewMutation(extendScript, a.Keys, nil, a.Field, a.Lease.Milliseconds())
}

func (both) Transfer(a hold.Args) script.Call {
	return script.NewMutation(transferScript, a.Keys, nil, a.Field, a.To, a.Lease.Milliseconds(), a.Count, millis(a.Leases))
}

func (both) Renewal() *lease.Renewal { return renewal }

// Held implements hold.Mode.
func (both) Held(key, field string) script.Call {
	return script.NewCall(heldScript, []string{key}, field)
}

// millis is how scripts are given several leases.
func millis(leases []time.Duration) string {
	b := make([]byte, 0, 8*len(leases))
	for i, d := range leases {
		if i > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendInt(b, d.Milliseconds(), 10)
	}
	return string(b)
}

// place is how long it counts that a caller waits, in milliseconds.
func place(a hold.Args, d time.Duration) int64 {
	if !a.Waits {
		return 0
	}
	return d.Milliseconds()
}

// reader is the kind of read locks.
type reader struct{ both }

var (
	_ hold.Mode   = reader{}
	_ hold.Keyed  = reader{}
	_ hold.Leaver = reader{}
)

func (reader) ID() string { return readKind }

// Queues: readers don't stand in line, here or anywhere.
func (reader) Queues() bool { return true }

func (reader) Field(owner string) string { return owner }
func (reader) Owner(field string) string { return field }
func (reader) Name() string              { return "read" }
func (reader) Other() hold.Mode          { return writer{} }
func (reader) Refresh() time.Duration    { return readerAsks }

func (reader) Acquire(a hold.Args) script.Call {
	if a.Count == 1 {
		return script.NewMutation(acquireReadScript, a.Keys, firstHold, a.Field, a.Lease.Milliseconds(), place(a, readerPlace))
	}
	return script.NewMutation(acquireReadScript, a.Keys, nil, a.Field, a.Lease.Milliseconds(), place(a, readerPlace), a.Count)
}

func (reader) Release(a hold.Args) script.Call {
	if len(a.Leases) == 0 {
		return script.NewMutation(releaseReadScript, a.Keys, lastReadHold, a.Field, a.Channel)
	}
	return script.NewMutation(releaseReadScript, a.Keys, nil, a.Field, a.Channel, millis(a.Leases))
}

func (reader) Force(a hold.Args) script.Call {
	return script.NewMutation(forceScript, a.Keys, nil, "read", a.Channel, readersTurn.Milliseconds())
}

func (reader) Leave(a hold.Args) script.Call {
	return script.NewMutation(leaveScript, a.Keys, nil, "read", a.Field, a.Channel)
}

// writer is the kind of write locks.
type writer struct{ both }

var (
	_ hold.Mode   = writer{}
	_ hold.Keyed  = writer{}
	_ hold.Leaver = writer{}
)

const writerSuffix = ":write"

func (writer) ID() string { return writeKind }

func (writer) Queues() bool { return false }

func (writer) Field(owner string) string { return owner + writerSuffix }
func (writer) Owner(field string) string { return strings.TrimSuffix(field, writerSuffix) }
func (writer) Name() string              { return "write" }
func (writer) Other() hold.Mode          { return reader{} }
func (writer) Refresh() time.Duration    { return writerAsks }

func (writer) Acquire(a hold.Args) script.Call {
	if a.Count == 1 {
		return script.NewMutation(acquireWriteScript, a.Keys, firstHold, a.Field, a.Lease.Milliseconds(), place(a, writerPlace))
	}
	return script.NewMutation(acquireWriteScript, a.Keys, nil, a.Field, a.Lease.Milliseconds(), place(a, writerPlace), a.Count)
}

func (writer) Release(a hold.Args) script.Call {
	if a.Count == 0 {
		return script.NewMutation(releaseWriteScript, a.Keys, lastWriteHold, a.Field, a.Channel, readersTurn.Milliseconds())
	}
	return script.NewMutation(releaseWriteScript, a.Keys, nil, a.Field, a.Channel, readersTurn.Milliseconds(), a.Count, a.Lease.Milliseconds())
}

func (writer) Force(a hold.Args) script.Call {
	return script.NewMutation(forceScript, a.Keys, nil, "write", a.Channel, readersTurn.Milliseconds())
}

func (w writer) Leave(a hold.Args) script.Call {
	field, _ := a.Field.(string)
	return script.NewMutation(leaveScript, a.Keys, nil, "write", w.Owner(field), a.Channel)
}
