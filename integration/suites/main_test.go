// Package suites plays the same tests on every topology and every server version.
// doc.go of integration says how to run them.
package suites

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/integration/internal/scenario"
)

func TestMain(m *testing.M) {
	scenario.Child()
	// These tests wait more than they work. A number that was asked for stays.
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := f.Value.Set("8"); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}
