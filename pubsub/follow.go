package pubsub

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// go-redis' failover client closes the connections of commands when a sentinel names
// a new master, and leaves those of pub/sub where they are. Who has commands under way
// is told by Doubt. Who only waits would hear nothing until the old master is made a
// replica, some two seconds later: so a quiet link looks where the commands go.

// lookEvery is how often.
const lookEvery = 500 * time.Millisecond

// failover reports whether the hub's client asks sentinels where the master is.
func (h *Hub) failover() bool {
	c, ok := h.rdb.(*redis.Client)
	return ok && c.Options().Addr == "FailoverClient" // as go-redis calls it
}

var errNowhere = errors.New("CLIENT INFO tells no laddr")

// serving is the server that commands go to, as it calls itself.
func (h *Hub) serving(ctx context.Context) (addr string, err error) {
	info, err := h.rdb.Do(ctx, "client", "info").Text()
	if err != nil {
		return "", err
	}
	for word := range strings.FieldsSeq(info) {
		if at, ok := strings.CutPrefix(word, "laddr="); ok {
			return at, nil
		}
	}
	return "", errNowhere // before Redis 6.2
}

// follow looks until the link has no connection any more, or the server doesn't tell.
// There is one at a time: a look may take as long as a read, and longer than sessions.
func (l *link) follow() {
	ctx := l.tasks.Context()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		goOn, look := l.due(time.Now())
		if !goOn {
			return
		}
		if look {
			at, err := l.serving(ctx)
			var said redis.Error
			switch {
			case err == nil:
				l.servedBy(at)
			case errors.Is(err, errNowhere), errors.As(err, &said) && !redis.IsLoadingError(err) && !redis.HasErrorPrefix(err, "BUSY"):
				// It may not: asking again would fill the server's log.
				l.mu.Lock()
				l.following = false
				l.mu.Unlock()
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// due reports whether to go on, as long as there is a connection, and whether to look:
// somebody waits for a message and none has come for a while, or where commands go
// isn't known yet. Who may not go on doesn't follow any more, in the same moment: the
// next connection begins another.
func (l *link) due(now time.Time) (goOn, look bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.following = !l.begun.IsZero()
	return l.following, l.server == "" || len(l.topics) > 0 && now.Sub(l.lastRead) >= lookEvery
}

func (l *link) servedBy(addr string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.server != "" && l.server != addr {
		l.doubtLocked(time.Now(), true)
	}
	l.server = addr
}
