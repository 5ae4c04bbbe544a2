package rrwlock

import "github.com/holdfast-go/holdfast/internal/script"

// URL is the server that the package's tests share.
func URL() string { return server.URL() }

// Sources are the texts of the scripts, by name.
func Sources() map[string]string {
	texts := make(map[string]string)
	for _, s := range []*script.Script{acquireReadScript, acquireWriteScript, releaseReadScript, releaseWriteScript, renewScript, leaveScript} {
		texts[s.Name()] = s.Source()
	}
	return texts
}
