// Package linearizability records what concurrent callers ask and are answered,
// over links that lose replies, and checks that one order of the calls explains
// all answers: each call at one moment between its begin and its end, on an object
// that does one thing at a time. The search is that of
// github.com/anishathalye/porcupine.
//
// A call that ended without an answer is left open: it may take effect at any
// later time, or never. One that was to take something is followed by its undoing,
// which is open too. The models, and the proof that each can reject, are those of
// package history. A refusal is always right: a lock that is free may refuse,
// when a hold is handed on for example, but none may be granted that is taken.
package linearizability

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

var server *redistest.Server

func TestMain(m *testing.M) {
	redistest.Main(m, func(s *redistest.Server) { server = s })
}
