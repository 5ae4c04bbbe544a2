package keys

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/errs"
)

// The forms that Redisson builds, and one slot for all keys of a name.
func TestForms(t *testing.T) {
	for _, c := range []struct{ name, prefixed, suffixed string }{
		{"n", "label:{n}", "{n}:label"},
		{"x{y}z", "label:x{y}z", "x{y}z:label"},
		{"{a}{b}", "label:{a}{b}", "{a}{b}:label"},
		{"a b\x00\xff", "label:{a b\x00\xff}", "{a b\x00\xff}:label"},
		{strings.Repeat("n", 10<<10), "label:{" + strings.Repeat("n", 10<<10) + "}", "{" + strings.Repeat("n", 10<<10) + "}:label"},
	} {
		require.NoError(t, Check(c.name))
		require.Equal(t, c.prefixed, Prefixed("label", c.name))
		require.Equal(t, c.suffixed, Suffixed(c.name, "label"))
		require.Equal(t, Slot(c.name), Slot(c.prefixed))
		require.Equal(t, Slot(c.name), Slot(c.suffixed))
	}
}

// Names whose keys would fall apart, and those that are no names.
func TestRefusedNames(t *testing.T) {
	for _, name := range []string{"", "a{", "}{", "{}", "{}x", "a}b", "}", strings.Repeat("n", 64<<10)} {
		err := Check(name)
		require.ErrorIs(t, err, errs.ErrInvalid, "%.20q", name)
		require.Less(t, len(err.Error()), 500, "the text doesn't carry 64 KiB")
	}
}

// Slots as `redis-cli cluster keyslot` answers them.
func TestSlot(t *testing.T) {
	for key, slot := range map[string]int{"123456789": 12739, "foo": 12182, "{foo}bar": 12182, "x{foo}y{bar}": 12182, "": 0, "{}foo": 9500} {
		require.Equal(t, slot, Slot(key), key)
	}
}
