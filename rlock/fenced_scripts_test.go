package rlock

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/script"
)

// fencedState is the state of a lock and its token.
func fencedState(b *bench) string {
	b.t.Helper()
	token := b.rdb.Get(b.t.Context(), fenced{}.TokenKey(b.key)).Val()
	require.LessOrEqual(b.t, b.rdb.PTTL(b.t.Context(), fenced{}.TokenKey(b.key)).Val(), time.Duration(0), "a token doesn't expire")
	return b.state() + " token " + token
}

// fencedLife is the dealings of two owners with one fenced name.
func fencedLife(key string) []step {
	k := fenced{}
	at := func(make func(hold.Args) script.Call) func(hold.Args) script.Call {
		return func(a hold.Args) script.Call {
			a.TokenKey = k.TokenKey(key)
			return make(a)
		}
	}
	args := func(owner string, count int, known int64) hold.Args {
		return hold.Args{Field: owner, Count: count, Lease: 30 * time.Second, Token: known}
	}
	stillIn := func(owner string) hold.Args {
		a := args(owner, 1, 0)
		a.MaybeIn = true
		return a
	}
	raise := func(n int64) func(hold.Args) script.Call {
		return func(a hold.Args) script.Call {
			a.More = []any{k.TokenKey(key)}
			return script.NewMutation(raiseTokenScript, a.Keys, nil, n)
		}
	}
	remove := func(a hold.Args) script.Call {
		a.More = []any{k.TokenKey(key)}
		return script.NewMutation(deleteTokenScript, a.Keys, nil).AlwaysMark()
	}
	const a, b = "client:a", "client:b"
	acquire, plainly := at(k.Acquire), plain{}.Acquire
	return []step{
		{"there is no token to remove", remove, hold.Args{}, 0, "map[] 0s token "},
		{"a enters", acquire, args(a, 1, 0), -2, "map[client:a:1] 30s token 1"},
		{"a enters again", acquire, args(a, 2, 1), -3, "map[client:a:2] 30s token 1"},
		{"b is refused", acquire, args(b, 1, 0), anyReply, "map[client:a:2] 30s token 1"},
		{"a gives one back", k.Release, args(a, 1, 0), 1, "map[client:a:1] 30s token 1"},
		{"a gives the last back", k.Release, args(a, 0, 0), 1, "map[] 0s token 1"},
		{"b enters", acquire, args(b, 1, 0), -4, "map[client:b:1] 30s token 2"},
		{"b is forced out", k.Force, hold.Args{}, 1, "map[] 0s token 2"},
		{"a re-enters what is gone", acquire, args(a, 5, 1), -6, "map[client:a:1] 30s token 3"},
		{"a leaves", k.Release, args(a, 0, 0), 1, "map[] 0s token 3"},
		{"a enters the plain lock", plainly, args(a, 1, 0), 1, "map[client:a:1] 30s token 3"},
		{"a enters the fenced one inside", acquire, args(a, 2, 0), -9, "map[client:a:2] 30s token 4"},
		{"a leaves that", k.Release, args(a, 1, 0), 1, "map[client:a:1] 30s token 4"},
		{"a enters it again", acquire, args(a, 2, 0), -11, "map[client:a:2] 30s token 5"},
		{"the token is raised", raise(100), hold.Args{}, 1, "map[client:a:2] 30s token 100"},
		{"it doesn't fall", raise(50), hold.Args{}, 1, "map[client:a:2] 30s token 100"},
		{"a enters once more and keeps its own", acquire, args(a, 3, 5), -11, "map[client:a:3] 30s token 100"},
		{"the token of a held lock stays", remove, hold.Args{}, anyReply, "map[client:a:3] 30s token 100"},
		{"a lost that, and is in yet", acquire, stillIn(a), -203, "map[client:a:1] 30s token 101"},
		{"a passes it on", k.Transfer, hold.Args{Field: a, To: b, Lease: 30 * time.Second}, 1, "map[client:b:1] 30s token 101"},
		{"b gives it back", k.Release, args(b, 0, 0), 1, "map[] 0s token 101"},
		{"the token is removed", remove, hold.Args{}, 1, "map[] 0s token "},
		{"there is none any more", remove, hold.Args{}, 0, "map[] 0s token "},
		{"b enters", acquire, args(b, 1, 0), -2, "map[client:b:1] 30s token 1"},
	}
}

// Copies of requests, resent and late, neither burn a token nor give one twice.
func TestFencedScriptsResentAndLate(t *testing.T) {
	resentAndLate(t, fencedLife, fencedState)
}

// What isn't a token that can grow is refused before anything is written.
func TestFencedTokenKeyHoldsSomethingElse(t *testing.T) {
	for what, bad := range map[string]any{
		"text": "abc", "empty": "", "fraction": "1.5", "negative": "-3", "space": " 1", "zeros": "007", "exponent": "1e3",
		"the last": "4503599627370495", "beyond": "9223372036854775807", "huge": "123456789012345678901234567890",
		"list": nil,
	} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t)
			key := fenced{}.TokenKey(b.key)
			require.NoError(t, b.rdb.Del(t.Context(), key).Err())
			if bad == nil {
				require.NoError(t, b.rdb.RPush(t.Context(), key, "x").Err())
			} else {
				require.NoError(t, b.rdb.Set(t.Context(), key, bad, 0).Err())
			}
			before := b.rdb.Dump(t.Context(), key).Val()
			args := hold.Args{Field: "c:a", Count: 1, Lease: time.Minute, TokenKey: key}
			acquire := b.request(fenced{}.Acquire, args)
			require.EqualValues(t, badToken, b.run(acquire.first))
			require.EqualValues(t, badToken, b.run(acquire.later))
			require.Equal(t, "map[] 0s", b.state())

			// The same for an owner who is in by a plain lock.
			b.run(b.request(plain{}.Acquire, args).first)
			args.Count = 2
			require.EqualValues(t, badToken, b.run(b.request(fenced{}.Acquire, args).first))
			require.Equal(t, "map[c:a:1] 1m0s", b.state())
			b.run(b.request(plain{}.Release, hold.Args{Field: "c:a"}).first)

			if what != "the last" && what != "beyond" && what != "huge" { // those are tokens, but can't grow
				for _, s := range []*script.Script{raiseTokenScript, deleteTokenScript} {
					require.EqualValues(t, badToken, b.run(b.request(func(a hold.Args) script.Call {
						a.More = []any{key}
						return script.NewMutation(s, a.Keys, nil, 7)
					}, hold.Args{}).first), s.Name())
				}
			}
			require.Equal(t, before, b.rdb.Dump(t.Context(), key).Val())
		})
	}
}

// The largest tokens come through exactly.
func TestFencedTokensNearTheLimit(t *testing.T) {
	b := newBench(t)
	key := fenced{}.TokenKey(b.key)
	require.NoError(t, b.rdb.Set(t.Context(), key, hold.MaxToken-2, 0).Err())
	args := hold.Args{Field: "c:a", Count: 1, Lease: time.Minute, TokenKey: key}
	for _, token := range []int64{hold.MaxToken - 1, hold.MaxToken} {
		acquire := b.request(fenced{}.Acquire, args)
		require.Equal(t, -2*token, b.run(acquire.first))
		require.Equal(t, -2*token-1, b.run(acquire.later))
		require.Equal(t, -2*token-1, b.run(acquire.first), "what the marker says")
		require.Equal(t, fmt.Sprint(token), b.rdb.Get(t.Context(), key).Val())
		args.Count, args.Token = 2, token
		require.Equal(t, -2*token-1, b.run(b.request(fenced{}.Acquire, args).first))
		args.Count, args.Token = 1, 0
		require.EqualValues(t, 1, b.run(b.request(plain{}.Release, hold.Args{Field: "c:a"}).first))
	}
	require.EqualValues(t, badToken, b.run(b.request(fenced{}.Acquire, args).first))
}

// A re-entry whose token key has gone meanwhile puts it back.
func TestFencedReentryMendsTheToken(t *testing.T) {
	b := newBench(t)
	key := fenced{}.TokenKey(b.key)
	require.NoError(t, b.rdb.Del(t.Context(), key).Err())
	args := hold.Args{Field: "c:a", Count: 2, Lease: time.Minute, TokenKey: key, Token: 41}
	b.run(b.request(plain{}.Acquire, hold.Args{Field: "c:a", Count: 1, Lease: time.Minute}).first)
	require.EqualValues(t, -83, b.run(b.request(fenced{}.Acquire, args).first))
	require.Equal(t, "41", b.rdb.Get(t.Context(), key).Val())
}

// The spin lock publishes nothing, and says so to its client.
func TestSpinScriptsPublishNothing(t *testing.T) {
	b := newBench(t)
	heard := b.rdb.PSubscribe(t.Context(), "*")
	t.Cleanup(func() { _ = heard.Close() })
	_, err := heard.Receive(t.Context()) // confirmed
	require.NoError(t, err)
	quiet := func(make func(hold.Args) script.Call) func(hold.Args) script.Call {
		return func(a hold.Args) script.Call {
			a.Channel = spin{}.Channel(b.key)
			return make(a)
		}
	}
	enter := hold.Args{Field: "c:a", Count: 1, Lease: time.Minute}
	for _, out := range []func(hold.Args) script.Call{spin{}.Release, spin{}.Force} {
		b.run(b.request(spin{}.Acquire, enter).first)
		require.EqualValues(t, 3, b.run(b.request(quiet(out), hold.Args{Field: "c:a"}).first))
		require.Equal(t, "map[] 0s", b.state())
	}
	require.NoError(t, b.rdb.Publish(t.Context(), "the end of "+t.Name(), "").Err())
	for {
		m, err := heard.ReceiveMessage(t.Context())
		require.NoError(t, err)
		if m.Channel == "the end of "+t.Name() {
			return
		}
		require.NotContains(t, m.Channel, b.key)
	}
}
