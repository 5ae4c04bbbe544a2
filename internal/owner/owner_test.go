package owner

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/errs"
)

func TestMintedIDsDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 10_000 {
		id := Mint().ID()
		require.False(t, seen[id])
		seen[id] = true
	}
	require.NoError(t, Mint().Check())
	require.False(t, Mint().Chosen())
}

func TestChosenIDs(t *testing.T) {
	require.Equal(t, "17", Chosen("17").ID())
	require.NoError(t, Chosen("17").Check())
	for _, id := range []string{"", "a:write", string(make([]byte, maxID+1))} {
		require.ErrorIs(t, Chosen(id).Check(), errs.ErrInvalid)
	}
}

func TestContext(t *testing.T) {
	_, err := Must(context.Background())
	require.ErrorIs(t, err, errs.ErrNoOwner)
	require.ErrorContains(t, err, "WithOwner")
	token := Mint()
	got, err := Must(With(context.Background(), token))
	require.NoError(t, err)
	require.Same(t, token, got)
}

// The last endings are remembered, and no more than that.
func TestEndings(t *testing.T) {
	token := Mint()
	require.Equal(t, errs.NeverHeld, token.Last("a"))
	token.Ended("a", errs.GivenBack)
	token.Ended("b", errs.Lost)
	token.Ended("a", errs.Lost)
	require.Equal(t, errs.Lost, token.Last("a"))
	require.Equal(t, errs.Lost, token.Last("b"))
	for i := range 10 * keepEndings {
		token.Ended(fmt.Sprint(i), errs.GivenBack)
	}
	require.Len(t, token.ended, keepEndings)
	require.Equal(t, errs.NeverHeld, token.Last("a"))
}
