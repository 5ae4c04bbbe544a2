// Package topology starts Redis as it is run in production, on 127.0.0.1, from a
// server binary alone: a single server, a master with replicas, a master with
// replicas under sentinels, a cluster with replicas. It does to them what happens
// to servers: kills, restarts with and without their data, stops, failovers,
// slots that move.
//
// It is for tests (Run) and for programs (Start): everything answers an error.
//
//	top, err := topology.Start(ctx, topology.Cluster, topology.Options{})
//	defer top.Close()
//	proxies, err := top.Proxies()     // a fault proxy before every server
//	defer proxies.Close()
//	rdb := proxies.Endpoint().Client() // goes through them
//	owner, err := top.Owner(ctx, "name")
//	err = top.Failover(ctx, owner)
//
// Another process gets at the servers through an Endpoint, which is plain data.
//
// Proxies are not announced by the servers: the client's dialer puts the proxy's
// address in place of the node's. What servers say to each other never goes
// through them.
package topology
