// Package faultproxy is a TCP proxy for tests that stands between a Redis client
// and a real server and makes faults at the connection: a reply that is lost, a
// request that arrives late, a link that is cut. It is imported by _test.go files
// alone.
//
// # What it understands
//
// The proxy reads RESP2 and RESP3, so it knows which reply belongs to which
// request. A request is an array of bulk strings; inline commands, streamed types
// and commands that change the rule of one reply per request (MONITOR, PSYNC,
// CLIENT REPLY) are not supported. What it can't read is an error of the test.
//
// # Who owns what
//
// Each connection is a link with four goroutines and two queues:
//
//	client -> readRequests -> requests -> writeBackend -> server
//	client <- writeClient  <- replies  <- readReplies  <- server
//
// Readers never wait for anything but their socket: rules are looked up when a
// request is read, and replies are matched when they are read. Every simulated
// delay happens in a writer, so order is kept as TCP keeps it. Both queues are
// unbounded. When a client leaves, what it had sent is still delivered to the
// server, as the network would do; when the server leaves, what it had sent is
// still delivered to the client.
//
// # Faults and order
//
// Clients match replies to requests by order alone. After a reply is lost, or a
// request that would have caused one, a further reply on the same connection would
// be taken for the lost one; no real network does that. So the client gets no
// further reply on that connection: it stays open, further requests are carried
// out, and replies are still matched (and counted) inside the proxy. Connections
// with subscriptions are the exception: what arrives there names its channel.
package faultproxy
