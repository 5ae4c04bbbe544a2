package worker

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/internal/history"
)

// What Shutdown would put in order is seen before: a hold that is renewed though
// nobody has it any more, and a channel that nobody unsubscribes.
func TestForgottenIsSeenBeforeShutdown(t *testing.T) {
	c, err := Config{
		Process: 7, Addrs: []string{server.Addr()}, History: "none", Prefix: t.Name() + ":",
		Lease: 300 * time.Millisecond, Epoch: history.Now(),
	}.complete()
	require.NoError(t, err)
	p := &process{Config: c}
	p.rdb, err = dial(c)
	require.NoError(t, err)
	defer func() { require.NoError(t, p.rdb.Close()) }()
	p.client, err = holdfast.New(p.rdb, holdfast.WithLease(c.Lease))
	require.NoError(t, err)
	defer func() { require.NoError(t, p.client.Close()) }()
	require.NoError(t, p.rest())

	name := NameOf(c.Prefix, history.RW, 1, 0)
	h, err := p.client.RWLock(name).Read().Lock(t.Context())
	require.NoError(t, err)
	err = p.rest()
	require.ErrorContains(t, err, name+" is held by "+p.client.ID()+":")
	require.NoError(t, h.Unlock(t.Context()))
	require.NoError(t, p.rest())

	sub := p.rdb.Subscribe(t.Context(), "news")
	defer func() { require.NoError(t, sub.Close()) }()
	_, err = sub.Receive(t.Context())
	require.NoError(t, err)
	require.ErrorContains(t, p.rest(), "subscribed: ")
	require.NoError(t, sub.Unsubscribe(t.Context()))
	require.NoError(t, p.rest())
}

// Another server's list, another process' connection.
func TestSubscribed(t *testing.T) {
	const line = "id=3 addr=127.0.0.1:1 name=holdfast-chaos-1 flags=P db=0 sub=0 psub=0 ssub=0 multi=-1 user=app\n"
	for want, lines := range map[bool][]string{
		false: {line, strings.Replace(strings.Replace(line, "chaos-1", "chaos-11", 1), " sub=0", " sub=1", 1), strings.Replace(line, " ssub=0", "", 1)},
		true:  {strings.Replace(line, " sub=0", " sub=1", 1), strings.Replace(line, "psub=0", "psub=2", 1), strings.Replace(line, "ssub=0", "ssub=1", 1)},
	} {
		for _, l := range lines {
			require.Equal(t, want, subscribed(l, ClientName(1)), l)
		}
	}
}
