// Package redisson drives real Redisson clients beside Go ones, on one server,
// and shows that both sides can use the same names at the same time.
//
// peer/ is the Java side: one Redisson client that does what it is told on
// stdin. scripts/redisson.sh compiles it against the versions that are tested.
package redisson
