package redistest

import (
	"bytes"
	"sync"
)

// Diary keeps what is written to it, from any goroutine: a log, to look at
// afterwards. The zero value is ready.
type Diary struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (d *Diary) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.buf.Write(p)
}

// String is all that was written.
func (d *Diary) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.buf.String()
}
