// Package rlimiter holds the rate limiter. Users get it from a client:
//
//	calls := client.RateLimiter("partner-api")
//	set, err := calls.TrySetRate(ctx, rlimiter.Overall, 100, time.Second) // once
//	...
//	err = calls.Acquire(ctx, 1) // waits until there is a permit
//
// # What is promised
//
// In no span as long as the interval, wherever it begins, are more permits granted
// than the rate says, by the clock of the Redis server. Clocks of clients don't
// matter. A permit is free again when the interval since its grant has passed in
// whole milliseconds, so up to a millisecond later than on paper: of a rate per
// second it costs a thousandth, of one per millisecond half.
//
// Nothing adds up while a limiter is idle: what wasn't used is gone.
//
// # Waiting
//
// Redis answers a refusal with the time until there will be enough permits. Who
// waits sleeps for just that long: no subscription, no polling (except once per
// WithPollFallback). The goroutines of one client that wait for one name stand in
// line, whatever number each wants, and only the first one asks; so a caller who
// wants many isn't overtaken for ever by those who want one. Between clients
// there is no order. What is given back, or a rate that is raised, wakes the line of
// the same client at once; others see it when their time is over, or at the slow poll.
//
// # Beside Java
//
// The keys are those of Redisson's RRateLimiter. It passes its own clock, so beside
// Java clients all clocks must agree. It gives permits back by raising the value
// alone and leaves the grants in the window; a Go client that sees more permits than
// the grants allow counts them anew. It grants up to a millisecond earlier.
//
// # Cost
//
// An acquisition is one command. Each grant leaves a marker, a private key of some
// 100 bytes, for 70 s: by it a copy of a request that comes late is known.
package rlimiter
