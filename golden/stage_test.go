package golden

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest/record"
)

// stage is where one section is played by holdfast.
type stage struct {
	*record.Scene
	client *holdfast.Client
}

// play makes the calls of one section.
func play(t *testing.T, name string, calls func(*stage)) record.Section {
	t.Helper()
	s := &stage{Scene: record.NewScene(t, server.Client(t))}
	s.Anonymous = s.anonymous
	client, err := holdfast.New(server.Client(t))
	require.NoError(t, err)
	s.client = client
	t.Cleanup(func() { s.ok(client.Close()) })
	calls(s)
	return s.Section(name)
}

// as is a context of the owner that in Java is a thread.
func (s *stage) as(thread int) context.Context {
	return holdfast.WithOwnerID(s.Context(), strconv.Itoa(thread))
}

// ok fails the test for a call that must succeed.
func (s *stage) ok(err error) {
	s.Helper()
	require.NoError(s, err)
}

// yes is ok for calls that answer whether they did it.
func (s *stage) yes(did bool, err error) {
	s.Helper()
	require.NoError(s, err)
	require.True(s, did)
}

var thread = regexp.MustCompile(`<client>:(\d+)`)

// anonymous replaces this client's id and its owners as in the record.
func (s *stage) anonymous(line string) string {
	line = strings.ReplaceAll(line, s.client.ID(), "<client>")
	return thread.ReplaceAllString(line, "<client>:<$1>")
}
