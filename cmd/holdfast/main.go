// Command holdfast runs commands under a lock that is shared by machines, and
// shows what the library does.
//
//	holdfast run nightly-report -- ./report.sh   # like flock(1), across machines
//	holdfast demo                                # three processes, one Redis
//
// See holdfast --help and holdfast run --help.
package main

import "os"

func main() {
	os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
}
