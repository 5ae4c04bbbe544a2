package golden

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every method of Redisson's locks and synchronizers has its counterpart, or the
// reason why there is none, in the table of its type in the porting guide.
func TestEveryMethodHasACounterpart(t *testing.T) {
	record, err := os.ReadFile("testdata/redisson-methods.txt")
	require.NoError(t, err)
	guide, err := os.ReadFile("../docs/redisson.md")
	require.NoError(t, err)
	tables := tablesOf(string(guide))
	methods := 0
	var table string
	for line := range strings.Lines(string(record)) {
		line = strings.TrimRight(line, "\n")
		if !strings.HasPrefix(line, "  ") {
			table, _, _ = strings.Cut(line, " ")
			if table == "java.util.concurrent.locks.Lock" {
				table = "RLock" // which extends it
			}
			continue
		}
		_, method, ok := strings.Cut(strings.TrimPrefix(line, "  "), " ")
		if !ok || !strings.Contains(method, "(") { // newCondition(): unsupported
			method = "newCondition()"
		}
		methods++
		if strings.Contains(method, "(options.CommonOptions)") {
			method = "options.CommonOptions" // one line for all of them
		}
		require.Contains(t, tables[table], "`"+method+"`", "in the guide's table of %s", table)
	}
	require.Greater(t, methods, 100)
	require.Len(t, tables, 8)
}

// tablesOf are the guide's tables, by the type that the heading over them begins with,
// or that their first column is named after.
func tablesOf(guide string) map[string]string {
	types := regexp.MustCompile("^(?:## (?:[A-Za-z]+: )?(R[A-Z][A-Za-z]+)\\b|\\| `(RedissonClient)` \\|)")
	tables := make(map[string]string)
	var table string
	for line := range strings.Lines(guide) {
		switch found := types.FindStringSubmatch(line); {
		case found != nil:
			table = found[1] + found[2]
		case strings.HasPrefix(line, "## "):
			table = ""
		case table != "" && strings.HasPrefix(line, "| "):
			counterpart, _, _ := strings.Cut(line, " | ") // the first column is Redisson's
			tables[table] += counterpart + "\n"
		}
	}
	return tables
}
