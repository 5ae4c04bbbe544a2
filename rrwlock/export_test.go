package rrwlock

// URL is the server that the package's tests share.
func URL() string { return server.URL() }
