// Package containers runs part of the suites against Redis in containers, through
// testcontainers: other networks, other ways to stop and to kill, other clocks of
// start and end than those of a process of our own.
//
// HOLDFAST_TEST_IMAGE names the image: scripts/image.sh makes one out of the local
// redis-server, and redis:8 would do where a registry can be reached. Without it,
// nothing is run, which is said in capitals. scripts/containers.sh does all that is
// needed on a machine of its own.
package containers

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/testcontainers/testcontainers-go"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/integration/internal/scenario"
)

const imageEnv = "HOLDFAST_TEST_IMAGE"

var image = os.Getenv(imageEnv)

func TestMain(m *testing.M) {
	scenario.Child()
	if image == "" {
		fmt.Fprintln(os.Stderr, "NOT RUN: CONTAINERS: "+imageEnv+" IS NOT SET")
		return
	}
	if err := local(); err != nil {
		fmt.Fprintln(os.Stderr, "containers:", err)
		os.Exit(1)
	}
	// The client of the engine keeps connections that nobody here owns.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

// local makes sure that nothing leaves this machine: all containers are reached at
// 127.0.0.1, and none is started besides those of the tests.
func local() error {
	for name, value := range map[string]string{
		"TESTCONTAINERS_RYUK_DISABLED": "true",      // its image would have to be pulled
		"TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1", // else a gateway's address is taken
	} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return err
	}
	defer provider.Close()
	host, err := provider.DaemonHost(context.Background())
	if err != nil {
		return err
	}
	if host != "127.0.0.1" && host != "localhost" {
		return fmt.Errorf("the engine's containers are at %s, not on this machine: refused", host)
	}
	return nil
}
