package record

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Difference is a step after which ours is something else on purpose: lines of
// theirs that are missing, and lines that stand instead.
type Difference struct {
	Section, Step string
	Theirs, Ours  []string
	Why           string
}

// Compare finds what is different in a section and not excused, and excuses
// without a difference.
func Compare(theirs, ours Section, excuses []Difference) (faults []string) {
	excuses = slices.DeleteFunc(slices.Clone(excuses), func(d Difference) bool { return d.Section != theirs.Name })
	for i, want := range theirs.Steps {
		if i >= len(ours.Steps) || ours.Steps[i].Name != want.Name {
			return append(faults, fmt.Sprintf("step %d, nobody plays it: %q", i+1, want.Name))
		}
		got := ours.Steps[i]
		onlyTheirs, onlyOurs := without(want.Lines, got.Lines, got.Took)
		excuses = slices.DeleteFunc(excuses, func(d Difference) bool {
			if d.Step != want.Name {
				return false
			}
			restTheirs, missing := without(onlyTheirs, d.Theirs, 0)
			unseen, restOurs := without(d.Ours, onlyOurs, got.Took)
			if len(missing) > 0 || len(unseen) > 0 {
				return false
			}
			onlyTheirs, onlyOurs = restTheirs, restOurs
			return true
		})
		if len(onlyTheirs) > 0 || len(onlyOurs) > 0 {
			faults = append(faults, fmt.Sprintf("after %q\n  only in the record:\n    %s\n  only in this run:\n    %s",
				want.Name, strings.Join(onlyTheirs, "\n    "), strings.Join(onlyOurs, "\n    ")))
		}
	}
	for _, extra := range ours.Steps[len(theirs.Steps):] {
		faults = append(faults, fmt.Sprintf("played, and not in the record: %q", extra.Name))
	}
	for _, d := range excuses {
		faults = append(faults, fmt.Sprintf("an excuse without a difference, after %q: %s", d.Step, d.Why))
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
