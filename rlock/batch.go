package rlock

import (
	_ "embed"

	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/script"
)

var (
	//go:embed multi_acquire.lua
	multiAcquireSrc string
	//go:embed multi_release.lua
	multiReleaseSrc string

	multiAcquireScript = script.Mutating("multi_acquire.lua", multiAcquireSrc)
	multiReleaseScript = script.Mutating("multi_release.lua", multiReleaseSrc)
)

var _ hold.Batched = plain{}

// Batches implements hold.Batched.
func (plain) Batches() string { return plain{}.ID() }

// AcquireAll implements hold.Batched.
func (plain) AcquireAll(each []hold.Args) script.Call {
	argv := make([]any, 0, 3+len(each))
	argv = append(argv, each[0].Field, each[0].Lease.Milliseconds())
	for _, a := range each {
		argv = append(argv, a.Count)
	}
	return script.NewMutation(multiAcquireScript, several(each), nil, argv...)
}

// ReleaseAll implements hold.Batched.
func (plain) ReleaseAll(each []hold.Args) script.Call {
	argv := make([]any, 0, 2+3*len(each))
	argv = append(argv, each[0].Field)
	for _, a := range each {
		argv = append(argv, a.Channel, a.Count, a.Lease.Milliseconds())
	}
	return script.NewMutation(multiReleaseScript, several(each), nil, argv...)
}

// several are the keys of a script on several locks. There is always a third
// one, so that the scripts find the locks at their places.
func several(each []hold.Args) script.Keys {
	k := each[0].Keys
	if k.Voided == nil {
		k.Voided = k.Marker
	}
	return k
}
