package holdfast

import "github.com/holdfast-go/holdfast/rlock"

// MultiLock answers several locks as one: all of them or none, of any kind, and of
// several clients. It sends nothing; none at all, or one that is nil, is ErrInvalid
// from the first call.
func (c *Client) MultiLock(locks ...rlock.Locker) *rlock.MultiLock {
	return rlock.NewMultiLock(c.services, locks...)
}
