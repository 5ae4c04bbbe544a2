package script

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/errs"
)

type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}

// The command is named, whatever the server leaves out.
func TestMissingRightIsNamed(t *testing.T) {
	s := Mutating("take.lua", "local n = redis.call('HLEN', KEYS[1])\nredis.call('HSET', KEYS[1], 'a', n)\nreturn 1\n")
	line := 1 + strings.Count(s.Source()[:strings.Index(s.Source(), "'HSET'")], "\n")
	call := NewMutation(s, Keys{Key: "n", Marker: "{n}:m"}, nil)
	for what, c := range map[string]struct {
		text  string
		named []string
		half  bool
	}{
		"6.2, command": {"ERR Error running script (call to f_9b0e): @user_script:%[1]d: @user_script: %[1]d: The user executing the script can't run this command or subcommand", []string{"take.lua", "HSET"}, true},
		"7.0, command": {"ERR The user executing the script can't run this command or subcommand script: 52d5, on @user_script:%d.", []string{"take.lua", "HSET"}, true},
		"8.2, command": {"ERR ACL failure in script: User u has no permissions to run the 'hset' command script: 9b0e, on @user_script:%d.", []string{"take.lua", "HSET"}, true},
		"8.2, a key":   {"ERR ACL failure in script: No permissions to access a key script: on @user_script:%d.", []string{"HSET", `"n"`, `"{n}:m"`}, true},
		"7.0, keys":    {"NOPERM this user has no permissions to access one of the keys used as arguments", []string{`"n"`, `"{n}:m"`}, false},
		"no line":      {"ERR The user executing the script can't run this command or subcommand, on @user_script:4711.", nil, true},
		"evalsha":      {"NOPERM this user has no permissions to run the 'evalsha' command", []string{"evalsha"}, false},
	} {
		t.Run(what, func(t *testing.T) {
			text := c.text
			if strings.Contains(text, "%") {
				text = fmt.Sprintf(text, line)
			}
			reply := replyError(text)
			err := call.explain(reply)
			require.ErrorIs(t, err, errs.ErrDenied)
			require.ErrorIs(t, err, reply)
			require.NotContains(t, err.Error(), "HLEN")
			for _, name := range c.named {
				require.ErrorContains(t, err, name)
			}
			require.Equal(t, c.half, halfRan(reply))
		})
	}
	for _, other := range []error{errors.New("EOF"), replyError("OOM command not allowed, on @user_script:3."), replyError("WRONGTYPE x")} {
		require.Equal(t, Explain(other).Error(), call.explain(other).Error())
		require.False(t, halfRan(other))
	}
}
