package rsemaphore

import "github.com/holdfast-go/holdfast/internal/redistest"

// Server is the one that the package's tests share.
func Server() *redistest.Server { return server }
