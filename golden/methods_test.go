package golden

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every method of Redisson's locks and synchronizers has its counterpart, or the
// reason why there is none, in the porting guide.
func TestEveryMethodHasACounterpart(t *testing.T) {
	record, err := os.ReadFile("testdata/redisson-methods.txt")
	require.NoError(t, err)
	guide, err := os.ReadFile("../docs/redisson.md")
	require.NoError(t, err)
	methods := 0
	for line := range strings.Lines(string(record)) {
		line = strings.TrimRight(line, "\n")
		_, method, ok := strings.Cut(strings.TrimPrefix(line, "  "), " ")
		if !strings.HasPrefix(line, "  ") {
			continue
		}
		if !ok || !strings.Contains(method, "(") { // newCondition(): unsupported
			method = strings.TrimSuffix(strings.TrimSpace(line), ": unsupported")
		}
		if method == "unsupported" {
			method = "newCondition()"
		}
		methods++
		if strings.Contains(method, "(options.CommonOptions)") {
			method = "options.CommonOptions" // one line for all of them
		}
		require.Contains(t, string(guide), "`"+method+"`", "in the guide")
	}
	require.Greater(t, methods, 100)
}
