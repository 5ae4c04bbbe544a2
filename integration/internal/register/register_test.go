package register

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestRegister(t *testing.T) {
	defer goleak.VerifyNone(t)
	r, err := Listen()
	require.NoError(t, err)
	a, b := Dial(r.Addr()), Dial(r.Addr())
	defer a.Close()
	defer b.Close()
	write := func(l *Link, name string, token, want int64) {
		t.Helper()
		newest, err := l.Write(name, "owner", token)
		require.NoError(t, err)
		require.Equal(t, want, newest)
	}
	write(a, "n", 3, 3)
	write(b, "n", 3, 3)
	write(b, "n", 5, 5)
	write(a, "n", 3, 5)
	write(a, "m", 1, 1)
	a.Close()
	write(a, "n", 1, 5)
	require.NoError(t, r.Close())
	_, err = b.Write("n", "owner", 9)
	require.Error(t, err)
}
