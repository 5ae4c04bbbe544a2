package faultproxy

import (
	"bufio"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMatching feeds requests and replies to a matcher. Each line of a script is
// "> COMMAND" or "VALUE = NAME", where NAME is the command that the value answers,
// or "-" if it answers none. At the end nothing may be waiting.
func TestMatching(t *testing.T) {
	for name, script := range map[string]string{
		"one each, in order": `
			> SET a 1
			> GET a
			+OK~ = set
			*1~$9~subscribe~ = get`,
		"unasked for": `
			-ERR max number of clients reached~ = -`,
		"RESP3 pushes answer nothing": `
			> HELLO 3
			%1~+proto~:3~ = hello
			> GET a
			>2~$10~invalidate~_~ = -
			>3~$7~message~$1~c~$1~x~ = -
			$1~1~ = get`,
		"RESP3 confirmations in the order of requests": `
			> HELLO 3
			> SUBSCRIBE a b
			> PING
			%1~+proto~:3~ = hello
			>3~$9~subscribe~$1~a~:1~ = subscribe
			>3~$7~message~$1~a~$1~x~ = -
			>3~$9~subscribe~$1~b~:2~ = subscribe
			+PONG~ = ping`,
		"RESP3 arrays are never messages": `
			> HELLO 3
			%1~+proto~:3~ = hello
			> SUBSCRIBE a
			>3~$9~subscribe~$1~a~:1~ = subscribe
			> LRANGE l 0 -1
			*3~$7~message~$1~a~$1~x~ = lrange`,
		"RESP3 refused": `
			> HELLO 3
			> SSUBSCRIBE a b
			> PING
			%1~+proto~:3~ = hello
			-MOVED 1 127.0.0.1:1~ = ssubscribe
			+PONG~ = ping`,
		"RESP3 unsubscribe from all": `
			> HELLO 3
			%1~+proto~:3~ = hello
			> SUBSCRIBE a b c
			> PSUBSCRIBE p
			>3~$9~subscribe~$1~a~:1~ = subscribe
			>3~$9~subscribe~$1~b~:2~ = subscribe
			>3~$9~subscribe~$1~c~:3~ = subscribe
			>3~$10~psubscribe~$1~p~:4~ = psubscribe
			> UNSUBSCRIBE b
			> UNSUBSCRIBE
			> UNSUBSCRIBE
			> PING
			>3~$11~unsubscribe~$1~b~:3~ = unsubscribe
			>3~$11~unsubscribe~$1~c~:2~ = unsubscribe
			>3~$11~unsubscribe~$1~a~:1~ = unsubscribe
			>3~$11~unsubscribe~_~:1~ = unsubscribe
			+PONG~ = ping`,
		"RESP3 the server ends a shard subscription": `
			> HELLO 3
			%1~+proto~:3~ = hello
			> SSUBSCRIBE a
			>3~$10~ssubscribe~$1~a~:1~ = ssubscribe
			> SSUBSCRIBE b
			>3~$12~sunsubscribe~$1~a~:0~ = -
			>3~$10~ssubscribe~$1~b~:1~ = ssubscribe
			> PING
			+PONG~ = ping`,
		"RESP3 within MULTI": `
			> HELLO 3
			> MULTI
			> SUBSCRIBE a
			> EXEC
			%1~+proto~:3~ = hello
			+OK~ = multi
			+QUEUED~ = subscribe
			*1~>3~$9~subscribe~$1~a~:1~ = exec`,
		"RESP3 subscriptions that MULTI hid": `
			> HELLO 3
			%1~+proto~:3~ = hello
			> SUBSCRIBE a b
			>3~$9~subscribe~$1~a~:1~ = subscribe
			>3~$9~subscribe~$1~b~:2~ = subscribe
			> MULTI
			> UNSUBSCRIBE a
			> EXEC
			> UNSUBSCRIBE
			> PING
			+OK~ = multi
			+QUEUED~ = unsubscribe
			*1~>3~$11~unsubscribe~$1~a~:1~ = exec
			>3~$11~unsubscribe~$1~b~:0~ = unsubscribe
			+PONG~ = ping`,
		"RESP2 messages and confirmations": `
			> SUBSCRIBE a b
			*3~$9~subscribe~$1~a~:1~ = subscribe
			*3~$7~message~$1~a~$1~x~ = -
			*3~$9~subscribe~$1~b~:2~ = subscribe
			> PING
			*4~$8~pmessage~$1~p~$1~a~$1~x~ = -
			*2~$4~pong~$0~~ = ping
			> UNSUBSCRIBE
			*3~$11~unsubscribe~$1~a~:1~ = unsubscribe
			*3~$7~message~$1~b~$1~x~ = -
			*3~$11~unsubscribe~$1~b~:0~ = unsubscribe
			> LRANGE l 0 -1
			*3~$7~message~$1~a~$1~x~ = lrange`,
		"RESP2 other commands are refused": `
			> SUBSCRIBE a
			*3~$9~subscribe~$1~a~:1~ = subscribe
			> GET k
			-ERR Can't execute 'get'~ = get`,
		"RESET ends RESP3 and subscriptions": `
			> HELLO 3
			%1~+proto~:3~ = hello
			> SUBSCRIBE a
			>3~$9~subscribe~$1~a~:1~ = subscribe
			> RESET
			+RESET~ = reset
			> LRANGE l 0 -1
			*3~$7~message~$1~a~$1~x~ = lrange
			> SUBSCRIBE a
			*3~$9~subscribe~$1~a~:1~ = subscribe
			*3~$7~message~$1~a~$1~x~ = -`,
		"HELLO refused leaves RESP2": `
			> HELLO 3 AUTH u p
			-WRONGPASS~ = hello
			> SUBSCRIBE a
			*3~$9~subscribe~$1~a~:1~ = subscribe
			*3~$7~message~$1~a~$1~x~ = -`,
	} {
		t.Run(name, func(t *testing.T) {
			var m matcher
			for line := range strings.Lines(strings.TrimSpace(script)) {
				line = strings.TrimSpace(line)
				if cmd, ok := strings.CutPrefix(line, "> "); ok {
					m.push(newRecord(strings.Fields(cmd), nil))
					continue
				}
				i := strings.LastIndex(line, " = ")
				v, err := readValue(bufio.NewReader(strings.NewReader(wire(line[:i]))))
				require.NoError(t, err, line)
				got := "-"
				if r := m.reply(v); r != nil {
					got = r.name
				}
				require.Equal(t, line[i+3:], got, line)
			}
			require.Empty(t, m.waiting)
		})
	}
}
