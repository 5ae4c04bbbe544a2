package security

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// rights are what a row of docs/acl.md asks for.
type rights struct{ keys, channels, commands []string }

// documented reads the table of docs/acl.md.
func documented(t *testing.T) map[string]rights {
	t.Helper()
	text, err := os.ReadFile("../../docs/acl.md")
	require.NoError(t, err)
	rows := make(map[string]rights)
	for line := range strings.Lines(string(text)) {
		line = strings.ReplaceAll(line, `\|`, "\x00")
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 6 || !strings.Contains(cells[4], "`") {
			continue
		}
		rows[strings.TrimSpace(cells[1])] = rights{quoted(cells[2]), quoted(cells[3]), quoted(cells[4])}
	}
	require.NotEmpty(t, rows)
	return rows
}

// The lines to paste say what the table does.
func TestACLLinesToPaste(t *testing.T) {
	text, err := os.ReadFile("../../docs/acl.md")
	require.NoError(t, err)
	for what, r := range documented(t) {
		words := []string{"ACL SETUSER app"}
		if len(r.keys) > 0 {
			words = append(words, "reset on >PASSWORD resetkeys resetchannels -@all")
		}
		for _, k := range r.keys {
			words = append(words, "~"+k)
		}
		for _, c := range r.channels {
			words = append(words, "&"+c)
		}
		for _, c := range r.commands {
			words = append(words, "+"+c)
		}
		require.Contains(t, string(text), "\n"+strings.Join(words, " ")+"\n", what)
	}
}

// quoted are the words between backquotes.
func quoted(cell string) (words []string) {
	for i, w := range strings.Split(cell, "`") {
		if i%2 == 1 {
			words = append(words, strings.ReplaceAll(w, "\x00", "|"))
		}
	}
	return words
}

// without answers rights that lack one word.
func without(words []string, lacks string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == lacks })
}

// user makes a user with these rights and nothing else on the shared server, and
// answers its URL. Names of prefix app: in the rights become those of prefix.
func (r rights) user(t *testing.T, name, prefix string) (url string) {
	t.Helper()
	r.make(t, server.Client(t, func(o *redis.Options) { o.PoolSize = 1 }), name, prefix)
	return "redis://" + name + ":" + escaped + "@" + server.Addr() + "/0?pool_size=4"
}

func (r rights) make(t *testing.T, rdb *redis.Client, name, prefix string) {
	t.Helper()
	args := []any{"acl", "setuser", name, "reset", "on", ">" + password, "resetkeys", "resetchannels", "-@all"}
	for _, k := range r.keys {
		args = append(args, "~"+strings.ReplaceAll(k, "app:", prefix))
	}
	for _, c := range r.channels {
		args = append(args, "&"+strings.ReplaceAll(c, "app:", prefix))
	}
	for _, c := range r.commands {
		args = append(args, "+"+c)
	}
	require.NoError(t, rdb.Do(t.Context(), args...).Err())
}

const (
	password = "s3:cr/e@t"
	// escaped is the password as it stands in a URL.
	escaped = "s3%3Acr%2Fe%40t"
)
