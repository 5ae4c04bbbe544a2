// Command holdfast runs commands under a lock that is shared by machines, and
// shows what the library does.
//
//	holdfast run nightly-report -- ./report.sh   # like flock(1), across machines
//	holdfast ls 'order:*'                        # who holds what
//	holdfast inspect order:42
//	holdfast watch order:42
//	holdfast unlock --force order:42
//	holdfast demo                                # three processes, one Redis
//
// See holdfast --help and holdfast run --help.
package main

import "os"

func main() {
	os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
}
