package security

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/rlock"
)

// On a cluster a user needs what the docs name besides. Without a right to sharded
// channels plain ones are used, or waiters poll.
func TestACLCluster(t *testing.T) {
	rows := documented(t)
	besides := rows["on a cluster"]
	require.NotEmpty(t, besides.commands)
	cluster := redistest.StartCluster(t, 2)
	for _, lacks := range append([]string{"nothing"}, besides.commands...) {
		t.Run(lacks, func(t *testing.T) {
			t.Parallel()
			r := rows["Lock"]
			r.commands = append(without(r.commands, "-"), without(besides.commands, lacks)...)
			name := strings.ReplaceAll(lacks, "|", "-")
			p := &pair{t: t, prefix: name + ":"}
			for _, node := range cluster.Nodes() {
				r.make(t, node.Client(t), name, p.prefix)
			}
			url := "redis+cluster://" + name + ":" + escaped + "@" + strings.Join(cluster.Addrs(), ",")
			opts := []holdfast.Option{holdfast.WithPrefix(p.prefix), holdfast.WithLease(lease), holdfast.WithPollFallback(50 * time.Millisecond), p.log.option()}
			p.a, p.b = open(t, url, opts...), open(t, url, opts...)
			err := p.lock(within(t, 2*prompt), func(c *holdfast.Client) rlock.Locker { return c.Lock("n") })
			switch lacks {
			case "cluster|slots":
				require.ErrorIs(t, err, holdfast.ErrDenied)
				require.ErrorContains(t, err, "cluster")
			default:
				require.NoError(t, err)
			}
		})
	}
}

// WithReplicas asks for one command more.
func TestACLReplicas(t *testing.T) {
	rows := documented(t)
	besides := rows["with WithReplicas"]
	require.NotEmpty(t, besides.commands)
	for _, c := range append([]string{""}, besides.commands...) {
		t.Run("without "+c, func(t *testing.T) {
			t.Parallel()
			r := rows["Lock"]
			r.commands = append(without(r.commands, "-"), without(besides.commands, c)...)
			p := newPair(t, r, holdfast.WithReplicas(1, 50*time.Millisecond))
			_, err := p.a.Lock("n").TryLock(within(t, prompt))
			if c == "" { // there are no replicas
				require.ErrorIs(t, err, holdfast.ErrNotReplicated)
				return
			}
			require.ErrorIs(t, err, holdfast.ErrDenied)
			require.ErrorContains(t, err, c)
		})
	}
}

// A database other than 0 has to be selected.
func TestACLDatabase(t *testing.T) {
	rows := documented(t)
	for _, selects := range []bool{true, false} {
		r := rows["Lock"]
		if selects {
			r.commands = append(without(r.commands, "-"), rows["in a database other than 0"].commands...)
		}
		name := map[bool]string{true: "selects", false: "selects-not"}[selects]
		url := strings.Replace(r.user(t, name, name+":"), "/0?", "/3?", 1)
		err := open(t, url, holdfast.WithPrefix(name+":")).Lock("n").Do(within(t, prompt), func(context.Context) error { return nil })
		if selects {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, holdfast.ErrDenied)
			require.ErrorContains(t, err, "select")
		}
	}
}
