package holdfast

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/script"
)

// WithReplicas has what is acquired or renewed count only once n replicas of its
// server have it: WAIT n timeout goes out behind each such script. Default: none;
// Redisson's default is all that are known, with a timeout of 1 s, of which one
// has to answer. A failover can then promote only a replica that knows the lock,
// as far as n covers all that may be promoted, and an old master that is cut off
// renews nothing.
//
// An acquisition that fewer than n confirm within timeout is undone, and the call
// fails at once with ErrNotReplicated (a *NotReplicatedError), also where it could
// wait: whether to try again is the caller's to say. Such a renewal is tried again
// until the hold's deadline; then the hold is lost. n is at least 1; timeout, in
// whole milliseconds, rounded up, at most a third of the lease (WithLease), and
// below the read timeout of the go-redis client. It counts towards Wait.
func WithReplicas(n int, timeout time.Duration) Option {
	return func(s *settings) error {
		if n < 1 {
			return errs.Invalid("WithReplicas(%d, %v): at least one replica has to confirm; leave the option out to ask for none", n, timeout)
		}
		if timeout <= 0 {
			return errs.Invalid("WithReplicas(%d, %v): the timeout has to be positive: Redis would wait forever", n, timeout)
		}
		s.replicas = script.Replicas{N: n, Timeout: lease.Round(timeout)}
		return nil
	}
}

// checkReplicas looks at what WithReplicas has to fit in with.
func (s *settings) checkReplicas(rdb redis.UniversalClient) error {
	r := s.replicas
	if r.N == 0 {
		return nil
	}
	if r.Timeout > s.lease/3 {
		return errs.Invalid("WithReplicas(%d, %v): more than a third of the lease of %v leaves no time to renew it: choose a shorter timeout, or a longer lease with WithLease", r.N, r.Timeout, s.lease)
	}
	var read time.Duration
	switch c := rdb.(type) {
	case *redis.Client:
		read = c.Options().ReadTimeout
	case *redis.ClusterClient:
		read = c.Options().ReadTimeout
	}
	if read > 0 && r.Timeout >= read {
		return errs.Invalid("WithReplicas(%d, %v): the go-redis client stops reading after %v: choose a shorter timeout, or raise its ReadTimeout", r.N, r.Timeout, read)
	}
	return nil
}
