// Package record is what a program leaves in Redis after each of its calls,
// written down: read from a file, seen on a server, and compared.
package record

import (
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Step is what one call was seen to do, as lines in the form of the record:
//
//	key NAME | type | ttl 30s | value     or: no ttl
//	msg CHANNEL <- payload
//	anything else: what the call answered
//
// Answers stand before the heading of their step in a file, as they were printed
// before the look at Redis. Those behind the last heading are the step named "".
type Step struct {
	Name  string
	Lines []string
	Took  time.Duration // since the section began; zero in a file
}

// Section is one run from an empty Redis.
type Section struct {
	Name  string
	Steps []Step
}

// String is the section as a file has it, but for the order of things.
func (s Section) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n", s.Name)
	for _, step := range s.Steps {
		isAnswer := func(line string) bool { return !strings.HasPrefix(line, "key ") && !strings.HasPrefix(line, "msg ") }
		for _, line := range step.Lines {
			if isAnswer(line) {
				fmt.Fprintln(&b, line)
			}
		}
		if step.Name == "" {
			continue
		}
		fmt.Fprintf(&b, "## %s\n", step.Name)
		for _, line := range step.Lines {
			if !isAnswer(line) {
				fmt.Fprintln(&b, line)
			}
		}
	}
	return b.String()
}

// Read reads a file. What it says is made comparable.
func Read(tb testing.TB, file string) []Section {
	tb.Helper()
	text, err := os.ReadFile(file)
	require.NoError(tb, err)
	var sections []Section
	var names *idNames
	var answers []string
	flush := func() {
		if len(answers) > 0 {
			s := &sections[len(sections)-1]
			s.Steps = append(s.Steps, Step{Lines: answers})
			answers = nil
		}
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		name, isStep := strings.CutPrefix(line, "## ")
		title, isSection := strings.CutPrefix(line, "# ")
		switch {
		case isSection:
			flush()
			sections = append(sections, Section{Name: title})
			names = &idNames{}
		case len(sections) == 0 || line == "": // before the first section: what the file is
		case isStep:
			s := &sections[len(sections)-1]
			s.Steps = append(s.Steps, Step{Name: name, Lines: answers})
			answers = nil
		case strings.HasPrefix(line, "key "+latchPrefix):
			// Private to the sender, as ours are: how Redisson knows its own resends.
		case strings.HasPrefix(line, "key "), strings.HasPrefix(line, "msg "):
			steps := sections[len(sections)-1].Steps
			require.NotEmpty(tb, steps, "%s: before any step: %s", file, line)
			last := &steps[len(steps)-1]
			last.Lines = append(last.Lines, comparable(line, names))
		default:
			answers = append(answers, line)
		}
	}
	flush()
	require.NotEmpty(tb, sections, file)
	return sections
}

// comparable puts the fields of a hash in order and gives random ids names.
func comparable(line string, names *idNames) string {
	parts := strings.Split(line, " | ")
	if len(parts) != 4 {
		return line
	}
	words := strings.Split(parts[3], " ")
	switch parts[1] {
	case "hash":
		pairs := slices.Collect(slices.Chunk(words, 2))
		slices.SortFunc(pairs, slices.Compare[[]string])
		words = slices.Concat(pairs...)
	case "zset":
		for i := 0; i < len(words); i += 2 {
			words[i] = names.of(words[i])
		}
		// Of one moment: Redis orders them by their bytes, which are random.
		for i := 2; i < len(words); i += 2 {
			if words[i+1] == words[i-1] && words[i] < words[i-2] {
				words[i], words[i-2] = words[i-2], words[i]
			}
		}
	}
	parts[3] = strings.Join(words, " ")
	return strings.Join(parts, " | ")
}

// idNames names the random ids of one section by the order in which they turn
// up: so it shows that the same permit is meant in two steps.
type idNames struct{ seen []string }

var rawByte = regexp.MustCompile(`\\x[0-9a-f]{2}`)

// of answers a member with its 16 random bytes replaced by a name: alone in
// expiring permits, packed between a length and a number in grants of a limiter.
func (n *idNames) of(member string) string {
	if !rawByte.MatchString(member) {
		return member
	}
	raw := rawByte.ReplaceAllStringFunc(member, func(x string) string {
		b, _ := hex.DecodeString(x[2:]) // the pattern says that it is hex
		return string(b)
	})
	switch {
	case len(raw) == 16:
		return n.name(raw)
	case len(raw) == 21 && raw[0] == 16:
		return `\x10` + n.name(raw[1:17]) + escape(raw[17:])
	}
	return member
}

func (n *idNames) name(raw string) string {
	i := slices.Index(n.seen, raw)
	if i < 0 {
		i = len(n.seen)
		n.seen = append(n.seen, raw)
	}
	return fmt.Sprintf("<id %d>", i+1)
}

// escape writes raw bytes as the record does.
func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' || s[i] == '\\' {
			fmt.Fprintf(&b, `\x%02x`, s[i])
		} else {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}
