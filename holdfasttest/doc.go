// Package holdfasttest gives unit tests a Redis in memory to lock on, so that
// code which takes a *holdfast.Client can be tested without a server:
//
//	func TestShip(t *testing.T) {
//		client := holdfasttest.New(t)
//		shop := NewShop(client)
//		...
//	}
//
// The server runs in the test's own process, on a free port of 127.0.0.1, and
// its clock runs with real time: leases expire by themselves, and a hold that
// is renewed stays. Two clients of one server stand for two processes; see
// [NewServer]. Nothing is shared between servers, so tests may run in parallel.
//
// It is for testing what your code does with locks. It is a single server
// without replicas, users or persistence, and its Lua isn't Redis' own: faults
// such as failovers, and figures such as latencies, need a real one.
package holdfasttest
