package main

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestLs(t *testing.T) {
	r := rdb(t)
	binary := lockName(t) + ":\xff\n\x1b"
	hold, err := client(t).Lock(lockName(t) + ":held").Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, r.HSet(t.Context(), binary, "c:1", 1).Err())
	require.NoError(t, r.Set(t.Context(), "redisson_lock_token:{"+lockName(t)+":fenced}", 7, 0).Err())
	require.NoError(t, r.Set(t.Context(), lockName(t)+":cache", "hello", 0).Err())

	code, stdout, stderr := holdfastRun(t, "ls", lockName(t)+":*")
	require.Zero(t, code, stderr)
	require.Empty(t, stderr)
	lines := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
	require.Len(t, lines, 3, stdout)
	require.Regexp(t, `^NAME +KIND +STATE$`, lines[0])
	require.Contains(t, stdout, hold.Owner())
	require.Contains(t, stdout, lockName(t)+`:\xff\n\x1b`)
	require.NotContains(t, stdout, "\x1b")

	code, stdout, _ = holdfastRun(t, "ls", lockName(t)+":*", "--json", "--all")
	require.Zero(t, code)
	kinds := make(map[string]string)
	for line := range strings.Lines(stdout) {
		var one struct {
			Name, Kind string
			NameBase64 []byte
			Held       bool
		}
		require.NoError(t, json.Unmarshal([]byte(line), &one))
		if one.NameBase64 != nil {
			one.Name = string(one.NameBase64)
		}
		kinds[one.Name] = one.Kind
	}
	require.Equal(t, map[string]string{lockName(t) + ":held": "lock", binary: "lock", lockName(t) + ":fenced": "fenced lock"}, kinds)
	require.NoError(t, hold.Unlock(t.Context()))

	code, stdout, _ = holdfastRun(t, "ls", "no-such-name-*")
	require.Zero(t, code)
	require.Empty(t, stdout)
}

// The keys of others are told of in one line.
func TestLsAmongForeignKeys(t *testing.T) {
	srv := redistest.Start(t)
	r := srv.Client(t)
	for _, key := range []string{"app:a", "other:a", "other:b", "other:c"} {
		require.NoError(t, r.HSet(t.Context(), key, "c:1", 1).Err())
	}
	require.NoError(t, r.Do(t.Context(), "acl", "setuser", "app", "on", ">pa55word", "resetchannels", "+@all",
		"~app:*", "~{app:*}:*", "~redisson_lock_token:{app:*}", "~redisson_lock_queue:{app:*}", "~redisson_lock_timeout:{app:*}").Err())
	url := "redis://app:pa55word@" + srv.Addr()
	code, stdout, stderr := holdfastRun(t, "ls", "--redis", url)
	require.Equal(t, exitDenied, code, stderr)
	require.Contains(t, stdout, "app:a")
	require.NotContains(t, stdout, "other:")
	require.Regexp(t, `^holdfast: 3 names can't be read, the first: .+\n$`, stderr)
	code, _, stderr = holdfastRun(t, "ls", "app:*", "--redis", url)
	require.Zero(t, code, stderr)
}

func TestInspect(t *testing.T) {
	r := rdb(t)
	require.NoError(t, r.HSet(t.Context(), lockName(t), "mode", "read", "c:1", 2, "c:2", 1).Err())
	code, stdout, stderr := holdfastRun(t, "inspect", lockName(t))
	require.Zero(t, code, stderr)
	for _, want := range []string{`kind +read-write lock, 2 readers, without expiry`, `mode +read`, `HOLDER +HOLDS +MODE +FOR`, `c:1 +2 +read +over`} {
		require.Regexp(t, want, stdout)
	}
	code, stdout, _ = holdfastRun(t, "inspect", lockName(t), "--json")
	require.Zero(t, code)
	var one struct {
		Mode    string
		Holders []struct{ Owner string }
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &one))
	require.Equal(t, "read", one.Mode)
	require.Len(t, one.Holders, 2)

	code, stdout, _ = holdfastRun(t, "inspect", lockName(t)+":free")
	require.Zero(t, code)
	require.Regexp(t, `kind +free\n`, stdout)
}

func TestUnlockByForce(t *testing.T) {
	c := client(t)
	for kind, take := range map[string]func(name string) (*holdfast.Hold, error){
		"lock":   func(n string) (*holdfast.Hold, error) { return c.Lock(n).Lock(t.Context()) },
		"fair":   func(n string) (*holdfast.Hold, error) { return c.FairLock(n).Lock(t.Context()) },
		"fenced": func(n string) (*holdfast.Hold, error) { return c.FencedLock(n).Lock(t.Context()) },
		"reader": func(n string) (*holdfast.Hold, error) { return c.RWLock(n).Read().Lock(t.Context()) },
		"writer": func(n string) (*holdfast.Hold, error) { return c.RWLock(n).Write().Lock(t.Context()) },
	} {
		t.Run(kind, func(t *testing.T) {
			hold, err := take(lockName(t))
			require.NoError(t, err)
			code, stdout, stderr := holdfastRun(t, "unlock", "--force", lockName(t))
			require.Zero(t, code, stderr)
			require.Contains(t, stdout, hold.Owner())
			requireFree(t, lockName(t))
			code, _, stderr = holdfastRun(t, "unlock", "--force", lockName(t))
			require.Equal(t, exitFailed, code)
			require.Contains(t, stderr, "is free")
			code, stdout, _ = holdfastRun(t, "unlock", "--force", "--json", lockName(t))
			require.Equal(t, exitFailed, code)
			require.Contains(t, stdout, `"opened":false`)
		})
	}
	require.NoError(t, rdb(t).Set(t.Context(), lockName(t)+":semaphore", 5, 0).Err())
	code, _, stderr := holdfastRun(t, "unlock", "--force", lockName(t)+":semaphore")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "no lock")
	require.Equal(t, "5", rdb(t).Get(t.Context(), lockName(t)+":semaphore").Val())
}

// Who has the rights of a kind of lock, and no others, opens it without a look.
func TestUnlockByForceWithoutALook(t *testing.T) {
	srv := redistest.Start(t)
	c, err := holdfast.Open(srv.URL())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	common := []string{"~app:*", "~{app:*}:holdfast:req:*", "+eval", "+evalsha", "+exists", "+get", "+set", "+del", "+pexpire", "+publish"}
	users := map[string][]string{
		"locks": append([]string{"&redisson_lock__channel:{app:*}", "+hlen"}, common...),
		"rw": append([]string{
			"&redisson_rwlock:{app:*}", "~{app:*}:holdfast:writers", "~{app:*}:holdfast:readers", "~{app:*}:*:rwlock_timeout:*",
			"+hget", "+hgetall", "+pttl", "+time", "+zadd", "+zcard", "+zcount", "+zrem", "+zremrangebyscore", "+zrevrange", "+zscore",
		}, common...),
		"nobody": {"~other:*", "+@all"},
	}
	for name, rules := range users {
		args := []any{"acl", "setuser", name, "on", ">pa55word", "resetchannels"}
		for _, r := range rules {
			args = append(args, r)
		}
		require.NoError(t, srv.Client(t).Do(t.Context(), args...).Err())
	}
	for _, tt := range []struct {
		user string
		lock holdfast.Locker
	}{
		{"locks", c.Lock("app:lock")},
		{"locks", c.FairLock("app:fair")},
		{"rw", c.RWLock("app:writer").Write()},
		{"rw", c.RWLock("app:reader").Read()},
	} {
		t.Run(tt.lock.Name(), func(t *testing.T) {
			_, err := tt.lock.Lock(t.Context())
			require.NoError(t, err)
			args := []string{"unlock", "--force", tt.lock.Name(), "--redis"}
			code, stdout, stderr := holdfastRun(t, append(args, "redis://nobody:pa55word@"+srv.Addr())...)
			require.Equal(t, exitDenied, code, stderr)
			require.Empty(t, stdout)
			args = append(args, "redis://"+tt.user+":pa55word@"+srv.Addr())
			code, stdout, stderr = holdfastRun(t, args...)
			require.Zero(t, code, stderr)
			require.Contains(t, stdout, "thrown out: not known, no right to look")
			locked, err := tt.lock.IsLocked(t.Context())
			require.NoError(t, err)
			require.False(t, locked)
			code, _, stderr = holdfastRun(t, args...)
			require.Equal(t, exitFailed, code)
			require.Contains(t, stderr, "is free")
			code, stdout, _ = holdfastRun(t, append(args, "--json")...)
			require.Equal(t, exitFailed, code)
			require.JSONEq(t, `{"opened":false,"before":null}`, stdout)
		})
	}
}

// Off a terminal it writes a line per change; Ctrl-C is its usual end.
func TestWatchCommand(t *testing.T) {
	w := begin(t, nil, "watch", lockName(t))
	require.Regexp(t, `free$`, w.line())
	hold, err := client(t).Lock(lockName(t)).Lock(t.Context())
	require.NoError(t, err)
	require.Contains(t, w.line(), "lock, held by "+hold.Owner())
	require.NoError(t, hold.Unlock(t.Context()))
	require.Regexp(t, `free$`, w.line())
	w.signal(syscall.SIGINT)
	code, _, stderr := w.end()
	require.Zero(t, code, stderr)
	require.Empty(t, stderr)
}

func TestLookingWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"ls", "inspect x", "unlock --force x"} {
		args := append(strings.Fields(command), "--redis", "redis://:pa55word@127.0.0.1:1")
		code, stdout, stderr := holdfastRun(t, args...)
		require.Equal(t, exitUnavailable, code, stderr)
		require.Empty(t, stdout)
		require.NotContains(t, stderr, "pa55word")
	}
	srv := redistest.Start(t, "--requirepass", "right")
	for _, command := range []string{"ls", "inspect x", "unlock --force x", "watch x"} {
		args := append(strings.Fields(command), "--redis", "redis://:pa55word@"+srv.Addr())
		code, _, stderr := holdfastRun(t, args...)
		require.Equal(t, exitDenied, code, stderr)
	}
}
