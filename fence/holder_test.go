package fence_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fence"
)

// Redis has lost the grant of a holder, and gives its token to another one: who
// comes first has it, until the tokens are raised.
func TestOneTokenOfTwoHolders(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx, key := t.Context(), "value"
		values, err := fence.NewValues(rdb)
		require.NoError(t, err)
		a, b := values.By("client:a b"), values.By("client:c")
		require.NoError(t, a.Set(ctx, key, 5, []byte("a"), 0))
		require.NoError(t, a.Claim(ctx, key, 5))
		err = b.Set(ctx, key, 5, []byte("b"), 0)
		requireStale(t, err, 5, 5)
		require.Contains(t, err.Error(), "RaiseToken")
		requireStale(t, b.Claim(ctx, key, 4), 4, 5)
		require.NoError(t, values.Set(ctx, key, 5, []byte("whoever"), 0), "without By holders aren't compared")
		requireStale(t, b.Claim(ctx, key, 5), 5, 5)
		require.NoError(t, b.Claim(ctx, key, 6))
		requireStale(t, a.Set(ctx, key, 5, []byte("a, late"), 0), 5, 6)
		requireStale(t, a.Set(ctx, key, 6, []byte("a, late"), 0), 6, 6)
		require.Equal(t, "whoever", rdb.Get(ctx, key).Val())
		require.Equal(t, "6 client:c", rdb.Get(ctx, "{value}:fence").Val())
	})
}

func TestOneTokenOfTwoHoldersInATable(t *testing.T) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "holders.db"))
	require.NoError(t, err)
	defer db.Close()
	ctx := t.Context()
	_, err = db.ExecContext(ctx, `CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER, fence BIGINT, holder TEXT)`)
	require.NoError(t, err)
	_, err = db.ExecContext(ctx, `INSERT INTO accounts (id, balance) VALUES (1, 0)`)
	require.NoError(t, err)
	table, err := fence.NewTable(fence.SQLite, fence.Names{Table: "accounts", Key: "id", Fence: "fence", Holder: "holder"})
	require.NoError(t, err)
	a, b := table.By("a"), table.By("b")
	for id, write := range map[int]func(t *fence.Table, token int64) error{
		1: func(t *fence.Table, token int64) error {
			return t.Update(ctx, db, token, 1, fence.Set("balance", token))
		},
		2: func(t *fence.Table, token int64) error { return t.Put(ctx, db, token, 2, fence.Set("balance", token)) },
	} {
		require.NoError(t, write(a, 5))
		require.NoError(t, write(a, 5))
		requireStale(t, write(b, 5), 5, 5)
		requireStale(t, write(b, 4), 4, 5)
		require.NoError(t, write(b, 6))
		requireStale(t, write(a, 5), 5, 6)
		requireStale(t, write(a, 6), 6, 6)
		requireStale(t, a.Claim(ctx, db, 6, id), 6, 6)
		require.NoError(t, b.Claim(ctx, db, 6, id))
		var balance int64
		require.NoError(t, db.QueryRowContext(ctx, `SELECT balance FROM accounts WHERE id = ?`, id).Scan(&balance))
		require.EqualValues(t, 6, balance)
		require.ErrorIs(t, write(table, 7), holdfast.ErrInvalid)
	}
	plain, err := fence.NewTable(fence.SQLite, fence.Names{Table: "accounts", Key: "id", Fence: "fence"})
	require.NoError(t, err)
	require.ErrorIs(t, plain.By("a").Claim(ctx, db, 7, 1), holdfast.ErrInvalid)
	require.ErrorIs(t, a.Update(ctx, db, 7, 1, fence.Set("holder", "b")), holdfast.ErrInvalid)
	for _, bad := range []string{"id", "fence", "1st", "a b"} {
		_, err = fence.NewTable(fence.SQLite, fence.Names{Table: "accounts", Key: "id", Fence: "fence", Holder: bad})
		require.ErrorIs(t, err, holdfast.ErrInvalid)
	}
}
