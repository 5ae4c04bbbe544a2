// Package redistest starts real Redis servers for tests: a single one, a
// cluster, or a master with a sentinel. It is imported by _test.go files alone.
//
// Every server is a process of its own on 127.0.0.1, in a temporary folder,
// without persistence, and it never outlives the test binary. The binary is the
// one that the environment variable HOLDFAST_REDIS_SERVER names, else
// redis-server, else valkey-server, from PATH. Where none is found the test
// fails; it is never skipped.
package redistest
