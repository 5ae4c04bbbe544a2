package script

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/errs"
)

// Texts of an error reply that speaks of rights: from outside a script, and from
// inside one, as Redis 6.2 and 7.0 and later servers word them.
var denials = []string{"NOPERM", "The user executing the script can't", "ACL failure in script"}

// raisedAt is the line of a script on which an error was raised.
var raisedAt = regexp.MustCompile(`@user_script: ?(\d+)`)

// called is a command in a line of a script.
var called = regexp.MustCompile(`redis\.p?call\(['"]([A-Za-z]+)['"]`)

func speaksOfRights(text string) bool {
	return hasAnyOf(text, denials...)
}

// halfRan reports whether a script was stopped by a right that its user lacks. What
// it did before stands.
func halfRan(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && speaksOfRights(reply.Error()) && raisedAt.MatchString(reply.Error())
}

// explain is Explain, and says which right a user lacks: servers tell of a command
// that a script may not run without its name, and of a key without its.
func (c *Call) explain(err error) error {
	explained := Explain(err)
	var reply redis.Error
	if !errors.As(err, &reply) || !errors.Is(explained, errs.ErrDenied) {
		return explained
	}
	text := reply.Error()
	if !speaksOfRights(text) {
		return explained
	}
	var what []string
	if found := raisedAt.FindAllStringSubmatch(text, -1); found != nil {
		n, _ := strconv.Atoi(found[len(found)-1][1]) // digits: a line that isn't there says nothing
		if commands := c.script.commandsAt(n); commands != nil {
			what = append(what, fmt.Sprintf("line %d: %s", n, strings.Join(commands, ", ")))
		}
	}
	if strings.Contains(text, "key") {
		what = append(what, "the keys are "+strings.Join(c.quotedKeys(), ", "))
	}
	if what == nil {
		return explained
	}
	return fmt.Errorf("%w (%s, %s)", explained, c.script.name, strings.Join(what, "; "))
}

// commandsAt are the commands on a line of the script, counted from 1.
func (s *Script) commandsAt(line int) (commands []string) {
	lines := strings.Split(s.Source(), "\n")
	if line < 1 || line > len(lines) {
		return nil
	}
	for _, m := range called.FindAllStringSubmatch(lines[line-1], -1) {
		commands = append(commands, strings.ToUpper(m[1]))
	}
	return commands
}

// quotedKeys are KEYS, for an error text.
func (c *Call) quotedKeys() []string {
	n, _ := c.args[argNumKeys].(int)
	const most = 12 // batches carry many
	quoted := make([]string, 0, min(n, most)+1)
	for _, k := range c.args[argKeys : argKeys+n] {
		if len(quoted) == most {
			return append(quoted, "…")
		}
		quoted = append(quoted, errs.Quote(fmt.Sprint(k)))
	}
	return quoted
}
