package record

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The comparison itself finds what it is for.
func TestCompare(t *testing.T) {
	const held, msg = "key n | hash | ttl 30s | <client>:<1> 1", "msg c <- 0"
	one := func(lines ...string) Section {
		return Section{"S", []Step{{Name: "lock", Lines: lines, Took: time.Second}}}
	}
	excuse := Difference{Section: "S", Step: "lock", Theirs: []string{msg}, Ours: []string{held}, Why: "so"}
	for name, c := range map[string]struct {
		theirs, ours Section
		excuses      []Difference
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
		"nobody plays the step":     {one(held), Section{"S", nil}, nil, []string{"step 1"}},
		"another step":              {one(held), Section{"S", []Step{{Name: "x"}}}, nil, []string{"step 1"}},
		"one step too many":         {Section{"S", nil}, one(held), nil, []string{"played"}},
		"excused":                   {one(msg), one(held), []Difference{excuse}, nil},
		"excused, and more differs": {one(msg, "a"), one(held, "b"), []Difference{excuse}, []string{"after"}},
		"stale excuse":              {one(held), one(held), []Difference{excuse}, []string{"an excuse"}},
		"half stale excuse":         {one(held, msg), one(held), []Difference{excuse}, []string{"after", "an excuse"}},
		"excuse of another section": {one(held), one(held), []Difference{{Section: "T", Step: "lock", Why: "so"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			faults := Compare(c.theirs, c.ours, c.excuses)
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
