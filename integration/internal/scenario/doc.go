// Package scenario holds the tests that run on whatever servers they are given: the
// contract of every kind of lock, a hand-over of every other primitive, and the
// scenarios of faults that matter beyond a single server. Only tests import it.
package scenario
