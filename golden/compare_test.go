package golden

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// compare finds what is different in a section and not excused, and excuses
// without a difference.
func compare(theirs, ours section, excuses []difference) (faults []string) {
	excuses = slices.DeleteFunc(slices.Clone(excuses), func(d difference) bool { return d.section != theirs.name })
	for i, want := range theirs.steps {
		if i >= len(ours.steps) || ours.steps[i].name != want.name {
			return append(faults, fmt.Sprintf("step %d, nobody plays it: %q", i+1, want.name))
		}
		got := ours.steps[i]
		onlyTheirs, onlyOurs := without(want.lines, got.lines, got.took)
		excuses = slices.DeleteFunc(excuses, func(d difference) bool {
			if d.step != want.name {
				return false
			}
			restTheirs, missing := without(onlyTheirs, d.theirs, 0)
			unseen, restOurs := without(d.ours, onlyOurs, got.took)
			if len(missing) > 0 || len(unseen) > 0 {
				return false
			}
			onlyTheirs, onlyOurs = restTheirs, restOurs
			return true
		})
		if len(onlyTheirs) > 0 || len(onlyOurs) > 0 {
			faults = append(faults, fmt.Sprintf("after %q\n  only Redisson leaves:\n    %s\n  only holdfast leaves:\n    %s",
				want.name, strings.Join(onlyTheirs, "\n    "), strings.Join(onlyOurs, "\n    ")))
		}
	}
	for _, extra := range ours.steps[len(theirs.steps):] {
		faults = append(faults, fmt.Sprintf("played, and not in the record: %q", extra.name))
	}
	for _, d := range excuses {
		faults = append(faults, fmt.Sprintf("an excuse without a difference, after %q: %s", d.step, d.why))
	}
	return faults
}

// without removes from both, one for one, the lines that say the same, and
// answers what is left.
func without(theirs, ours []string, took time.Duration) (onlyTheirs, onlyOurs []string) {
	onlyOurs = slices.Clone(ours)
	for _, line := range theirs {
		i := slices.IndexFunc(onlyOurs, func(o string) bool { return same(line, o, took) })
		if i < 0 {
			onlyTheirs = append(onlyTheirs, line)
		} else {
			onlyOurs = slices.Delete(onlyOurs, i, i+1)
		}
	}
	return onlyTheirs, onlyOurs
}

var moment = regexp.MustCompile(`ttl \d+s|<now[+-]?\d+s>`)

// drift is how many seconds times may be apart: the Java program took its own
// time between two looks.
const drift = 3

// same reports whether two lines say the same. Times may be apart, and ours
// shorter by what this run has taken.
func same(theirs, ours string, took time.Duration) bool {
	if moment.ReplaceAllString(theirs, "<moment>") != moment.ReplaceAllString(ours, "<moment>") {
		return false
	}
	a, b := moment.FindAllString(theirs, -1), moment.FindAllString(ours, -1)
	for i := range a {
		ahead := seconds(b[i]) - seconds(a[i])
		if a[i][0] != b[i][0] || ahead > drift || ahead < -drift-int(took/time.Second) {
			return false
		}
	}
	return true
}

func seconds(moment string) int {
	n, err := strconv.Atoi(strings.Trim(moment, "tl <now+s>"))
	if err != nil {
		panic("no moment: " + moment)
	}
	return n
}

// The comparison itself finds what it is for.
func TestCompare(t *testing.T) {
	const held, msg = "key n | hash | ttl 30s | <client>:<1> 1", "msg c <- 0"
	one := func(lines ...string) section {
		return section{"S", []step{{name: "lock", lines: lines, took: time.Second}}}
	}
	excuse := difference{section: "S", step: "lock", theirs: []string{msg}, ours: []string{held}, why: "so"}
	for name, c := range map[string]struct {
		theirs, ours section
		excuses      []difference
		faults       []string // what each of them begins with
	}{
		"the same":                  {one(held, msg), one(msg, held), nil, nil},
		"a little later":            {one(held), one("key n | hash | ttl 26s | <client>:<1> 1"), nil, nil},
		"much later":                {one(held), one("key n | hash | ttl 25s | <client>:<1> 1"), nil, []string{"after"}},
		"longer":                    {one(held), one("key n | hash | ttl 34s | <client>:<1> 1"), nil, []string{"after"}},
		"no time to live":           {one(held), one("key n | hash | no ttl | <client>:<1> 1"), nil, []string{"after"}},
		"another count":             {one(held), one("key n | hash | ttl 30s | <client>:<1> 2"), nil, []string{"after"}},
		"another type":              {one(held), one("key n | string | ttl 30s | <client>:<1> 1"), nil, []string{"after"}},
		"a time instead of a ttl":   {one("a ttl 30s"), one("a <now+30s>"), nil, []string{"after"}},
		"said once, not twice":      {one(msg, msg), one(msg), nil, []string{"after"}},
		"said twice, not once":      {one(msg), one(msg, msg), nil, []string{"after"}},
		"nobody plays the step":     {one(held), section{"S", nil}, nil, []string{"step 1"}},
		"another step":              {one(held), section{"S", []step{{name: "x"}}}, nil, []string{"step 1"}},
		"one step too many":         {section{"S", nil}, one(held), nil, []string{"played"}},
		"excused":                   {one(msg), one(held), []difference{excuse}, nil},
		"excused, and more differs": {one(msg, "a"), one(held, "b"), []difference{excuse}, []string{"after"}},
		"stale excuse":              {one(held), one(held), []difference{excuse}, []string{"an excuse"}},
		"half stale excuse":         {one(held, msg), one(held), []difference{excuse}, []string{"after", "an excuse"}},
		"excuse of another section": {one(held), one(held), []difference{{section: "T", step: "lock", why: "so"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			faults := compare(c.theirs, c.ours, c.excuses)
			require.Len(t, faults, len(c.faults), "%q", faults)
			for i, f := range faults {
				require.True(t, strings.HasPrefix(f, c.faults[i]), f)
			}
		})
	}
}

// Ids that are random differ, and yet it shows which is which.
func TestRandomIDs(t *testing.T) {
	const a, b = `\x00bcdefghijklmnop`, `\xffbcdefghijklmnop`
	var names idNames
	require.Equal(t, "key z | zset | no ttl | <id 1> 922337203685477",
		comparable(`key z | zset | no ttl | `+a+` 922337203685477`, &names))
	require.Equal(t, "key z | zset | no ttl | <id 2> <now+2s> <id 1> 5",
		comparable(`key z | zset | no ttl | `+b+` <now+2s> `+a+` 5`, &names))
	require.Equal(t, `key z | zset | no ttl | \x10<id 1>\x02\x00\x00\x00 <now0s>`,
		comparable(`key z | zset | no ttl | \x10`+a+`\x02\x00\x00\x00 <now0s>`, &names))
	require.Equal(t, `key z | zset | no ttl | \x0f`+a+`\x02\x00\x00\x00 <now0s>`,
		comparable(`key z | zset | no ttl | \x0f`+a+`\x02\x00\x00\x00 <now0s>`, &names), "another length byte")
	require.Equal(t, "key h | hash | no ttl | a 2 b 1", comparable("key h | hash | no ttl | b 1 a 2", &names))
}
