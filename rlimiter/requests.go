package rlimiter

import (
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"time"

	"github.com/holdfast-go/holdfast/internal/script"
)

// One function per script: the places of KEYS and ARGV are known here alone.

var (
	//go:embed window.lua
	windowSrc string
	//go:embed acquire.lua
	acquireSrc string
	//go:embed undo.lua
	undoSrc string
	//go:embed release.lua
	releaseSrc string
	//go:embed available.lua
	availableSrc string
	//go:embed rate.lua
	rateSrc string
	//go:embed expire.lua
	expireSrc string
	//go:embed delete.lua
	deleteSrc string

	acquireScript   = windowed("acquire.lua", acquireSrc)
	undoScript      = windowed("undo.lua", undoSrc)
	releaseScript   = windowed("release.lua", releaseSrc)
	rateScript      = windowed("rate.lua", rateSrc)
	expireScript    = windowed("expire.lua", expireSrc)
	deleteScript    = windowed("delete.lua", deleteSrc)
	availableScript = script.New("available.lua", windowSrc+availableSrc)
)

// windowed makes a script that opens with marker.lua and window.lua.
func windowed(name, src string) *script.Script { return script.Mutating(name, windowSrc+src) }

func (l *Limiter) mutation(s *script.Script, k script.Keys, argv ...any) script.Call {
	k.More = l.window
	return script.NewMutation(s, k, nil, argv...)
}

// member is what a grant of the request with this marker is called in the sorted
// set: Lua's struct format Bc0I.
func member(marker any, n int64) string {
	id := sha256.Sum256([]byte(marker.(string))) // the marker is unique, and has random bits
	b := append(make([]byte, 0, 21), 16)
	b = append(b, id[:16]...)
	return string(binary.LittleEndian.AppendUint32(b, uint32(n))) //nolint:gosec // checked: at most 32 bits
}

func (l *Limiter) take(k script.Keys, n int64) script.Call {
	return l.mutation(acquireScript, k, n, member(k.Marker, n)) // marks a grant by itself
}

// untake undoes the request whose marker is voided.
func (l *Limiter) untake(k script.Keys, n int64) script.Call {
	return l.mutation(undoScript, k, member(k.Voided, n)).AlwaysMark()
}

func (l *Limiter) giveBack(k script.Keys, n int64) script.Call {
	return l.mutation(releaseScript, k, n).AlwaysMark()
}

func (l *Limiter) setRate(k script.Keys, how string, c Config) script.Call {
	return l.mutation(rateScript, k, how, c.Rate, c.Interval.Milliseconds(), int(c.Kind), c.KeepAlive.Milliseconds()).AlwaysMark()
}

func (l *Limiter) expire(k script.Keys, d time.Duration) script.Call {
	return l.mutation(expireScript, k, d.Milliseconds()).AlwaysMark()
}

func (l *Limiter) remove(k script.Keys) script.Call {
	return l.mutation(deleteScript, k).AlwaysMark()
}

func (l *Limiter) look() script.Call {
	ks := []string{l.o.RedisKey()}
	for _, k := range l.window {
		ks = append(ks, k.(string))
	}
	return script.NewCall(availableScript, ks)
}
