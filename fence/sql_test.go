package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fence"
)

// accounts is a database with a table in it.
func accounts(t testing.TB) (*sql.DB, *fence.Table) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "accounts.db")+"?_pragma=busy_timeout(60000)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = db.ExecContext(t.Context(), `CREATE TABLE "order" (id TEXT PRIMARY KEY, balance INTEGER, "group" TEXT, last_fence BIGINT)`)
	require.NoError(t, err)
	table, err := fence.NewTable(fence.SQLite, fence.Names{Table: "order", Key: "id", Fence: "last_fence"})
	require.NoError(t, err)
	return db, table
}

// row is what stands in a row: balance, group, fence.
func row(t testing.TB, db fence.DB, id string) (balance int64, group string, seen sql.NullInt64) {
	t.Helper()
	var g sql.NullString
	err := db.QueryRowContext(t.Context(), `SELECT balance, "group", last_fence FROM "order" WHERE id = ?`, id).Scan(&balance, &g, &seen)
	require.NoError(t, err)
	return balance, g.String, seen
}

func requireStale(t testing.TB, err error, token, seen int64) {
	t.Helper()
	require.ErrorIs(t, err, fence.ErrStale)
	var stale *fence.StaleError
	require.ErrorAs(t, err, &stale)
	require.Equal(t, &fence.StaleError{Token: token, Seen: seen}, stale)
}

func TestUpdateRefusesAnEarlierHolder(t *testing.T) {
	db, table := accounts(t)
	ctx := t.Context()
	_, err := db.ExecContext(ctx, `INSERT INTO "order" (id, balance) VALUES ('a', 1), ('b', 1)`) // no fence yet: NULL
	require.NoError(t, err)

	require.NoError(t, table.Update(ctx, db, 5, "a", fence.Set("balance", 50), fence.Set("group", "x")))
	require.NoError(t, table.Update(ctx, db, 5, "a", fence.Set("balance", 51)), "a holder writes as often as it likes")
	requireStale(t, table.Update(ctx, db, 4, "a", fence.Set("balance", 40)), 4, 5)
	requireStale(t, table.Claim(ctx, db, 1, "a"), 1, 5)
	balance, group, seen := row(t, db, "a")
	require.Equal(t, []any{int64(51), "x", int64(5)}, []any{balance, group, seen.Int64})

	require.NoError(t, table.Claim(ctx, db, 7, "a"))
	requireStale(t, table.Update(ctx, db, 6, "a", fence.Set("balance", 60)), 6, 7)
	n, err := table.Seen(ctx, db, "a")
	require.NoError(t, err)
	require.EqualValues(t, 7, n)
	balance, _, seen = row(t, db, "b")
	require.Equal(t, int64(1), balance, "another row")
	require.False(t, seen.Valid)
	n, err = table.Seen(ctx, db, "b")
	require.NoError(t, err)
	require.Zero(t, n)

	require.ErrorIs(t, table.Update(ctx, db, 9, "nobody", fence.Set("balance", 1)), fence.ErrNoRow)
	_, err = table.Seen(ctx, db, "nobody")
	require.ErrorIs(t, err, fence.ErrNoRow)
}

func TestPutWritesWhetherThereOrNot(t *testing.T) {
	db, table := accounts(t)
	ctx := t.Context()
	require.NoError(t, table.Put(ctx, db, 3, "a", fence.Set("balance", 30)))
	require.NoError(t, table.Put(ctx, db, 3, "a", fence.Set("balance", 31)))
	requireStale(t, table.Put(ctx, db, 2, "a", fence.Set("balance", 20)), 2, 3)
	require.NoError(t, table.Put(ctx, db, 8, "a", fence.Set("balance", 80), fence.Set("group", "y")))
	balance, group, seen := row(t, db, "a")
	require.Equal(t, []any{int64(80), "y", int64(8)}, []any{balance, group, seen.Int64})

	_, err := db.ExecContext(ctx, `INSERT INTO "order" (id, balance) VALUES ('n', 1)`) // NULL
	require.NoError(t, err)
	require.NoError(t, table.Put(ctx, db, 1, "n", fence.Set("balance", 2)))
}

// In a transaction the refusal undoes what was written before it.
func TestInATransaction(t *testing.T) {
	db, table := accounts(t)
	ctx := t.Context()
	require.NoError(t, table.Put(ctx, db, 1, "a", fence.Set("balance", 10)))
	require.NoError(t, table.Put(ctx, db, 9, "b", fence.Set("balance", 10)))
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, table.Update(ctx, tx, 5, "a", fence.Set("balance", 5)))
	requireStale(t, table.Update(ctx, tx, 5, "b", fence.Set("balance", 15)), 5, 9)
	require.NoError(t, tx.Rollback())
	balance, _, seen := row(t, db, "a")
	require.Equal(t, []int64{10, 1}, []int64{balance, seen.Int64})
}

// Names can't carry SQL, and a value that isn't fenced is refused.
func TestSQLBadInput(t *testing.T) {
	db, table := accounts(t)
	ctx := t.Context()
	for _, bad := range []string{"", "a b", "1a", `a"b`, "a;b", "a-b", "ä", "a\x00", `x" = 1; DROP TABLE "order"; --`} {
		_, err := fence.NewTable(fence.SQLite, fence.Names{Table: bad, Key: "id", Fence: "f"})
		require.ErrorIs(t, err, holdfast.ErrInvalid, "%q", bad)
		_, err = fence.NewTable(fence.SQLite, fence.Names{Table: "t", Key: bad, Fence: "f"})
		require.ErrorIs(t, err, holdfast.ErrInvalid)
		_, err = fence.NewTable(fence.SQLite, fence.Names{Table: "t", Key: "id", Fence: bad})
		require.ErrorIs(t, err, holdfast.ErrInvalid)
		require.ErrorIs(t, table.Put(ctx, db, 1, "a", fence.Set(bad, 1)), holdfast.ErrInvalid)
	}
	for _, n := range []fence.Names{{Table: "t", Key: "a", Fence: "a"}, {Table: "t.", Key: "a", Fence: "b"}, {Table: ".", Key: "a", Fence: "b"}} {
		_, err := fence.NewTable(fence.SQLite, n)
		require.ErrorIs(t, err, holdfast.ErrInvalid)
	}
	_, err := fence.NewTable(7, fence.Names{Table: "t", Key: "id", Fence: "f"})
	require.ErrorIs(t, err, holdfast.ErrInvalid)
	for _, token := range []int64{0, -1, 1 << 52} {
		require.ErrorIs(t, table.Put(ctx, db, token, "a", fence.Set("balance", 1)), holdfast.ErrInvalid)
		require.ErrorIs(t, table.Update(ctx, db, token, "a", fence.Set("balance", 1)), holdfast.ErrInvalid)
		require.ErrorIs(t, table.Claim(ctx, db, token, "a"), holdfast.ErrInvalid)
	}
	require.ErrorIs(t, table.Update(ctx, db, 1, "a"), holdfast.ErrInvalid)
	require.ErrorIs(t, table.Put(ctx, db, 1, "a", fence.Set("last_fence", 9)), holdfast.ErrInvalid)
	require.ErrorIs(t, table.Put(ctx, db, 1, "a", fence.Set("id", "b")), holdfast.ErrInvalid)

	err = table.Put(ctx, db, 1, "a", fence.Set("no_such_column", 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, fence.ErrStale)
	gone, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, table.Put(gone, db, 1, "a", fence.Set("balance", 1)), context.Canceled)
}

// A key column that is no key can't be used by mistake.
func TestUpdateOfSeveralRows(t *testing.T) {
	db, _ := accounts(t)
	table, err := fence.NewTable(fence.SQLite, fence.Names{Table: "main.order", Key: "group", Fence: "last_fence"})
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), `INSERT INTO "order" (id, "group") VALUES ('a', 'g'), ('b', 'g')`)
	require.NoError(t, err)
	require.ErrorIs(t, table.Update(t.Context(), db, 1, "g", fence.Set("balance", 1)), holdfast.ErrInvalid)
}

// Postgres numbers its parameters; the statement is the same.
func TestPostgresStatements(t *testing.T) {
	table, err := fence.NewTable(fence.Postgres, fence.Names{Table: "shop.orders", Key: "id", Fence: "f"})
	require.NoError(t, err)
	db := &spy{}
	require.ErrorIs(t, table.Update(t.Context(), db, 3, "k", fence.Set("a", 1)), errSpy)
	require.Equal(t, `UPDATE "shop"."orders" SET "a" = $1, "f" = $2 WHERE "id" = $3 AND coalesce("f", 0) <= $4`, db.query)
	require.Equal(t, []any{1, int64(3), "k", int64(3)}, db.args)
	require.ErrorIs(t, table.Put(t.Context(), db, 3, "k", fence.Set("a", 1)), errSpy)
	require.Equal(t, `INSERT INTO "shop"."orders" ("id", "f", "a") VALUES ($1, $2, $3) ON CONFLICT ("id") DO UPDATE `+
		`SET "f" = excluded."f", "a" = excluded."a" WHERE coalesce("shop"."orders"."f", 0) <= excluded."f"`, db.query)
	require.Equal(t, []any{"k", int64(3), 1}, db.args)
}

// spy keeps what it is asked to execute.
type spy struct {
	fence.DB
	query string
	args  []any
}

var errSpy = errors.New("looked, did nothing")

func (s *spy) ExecContext(_ context.Context, query string, args ...any) (sql.Result, error) {
	s.query, s.args = query, args
	return nil, errSpy
}

// Holders that lose the lock and write on all the same can't undo what a later
// one has written: the fences that were written only rise.
func TestLateHoldersOverwriteNothing(t *testing.T) {
	db, table := accounts(t)
	db.SetMaxOpenConns(1) // SQLite has one writer
	rdb := server.Client(t)
	values, err := fence.NewValues(rdb)
	require.NoError(t, err)
	c, err := holdfast.New(server.Client(t))
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, table.Put(t.Context(), db, 1, "a", fence.Set("balance", 0)))
	l := c.FencedLock(t.Name())

	var mu sync.Mutex
	var sqlFences, redisFences []int64 // in the order in which they were seen
	stale := 0
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 12 {
				h, err := l.Lock(t.Context(), holdfast.Lease(4*time.Millisecond))
				if err != nil {
					t.Error(err)
					return
				}
				<-time.After(rand.N(12 * time.Millisecond)) // often longer than the lease
				mu.Lock()                                   // so that the order is known; writers come in any
				err1 := table.Update(t.Context(), db, h.Token(), "a", fence.Set("balance", h.Token()))
				if err1 == nil {
					sqlFences = append(sqlFences, h.Token())
				}
				err2 := values.Set(t.Context(), t.Name()+":value", h.Token(), []byte("v"), 0)
				if err2 == nil {
					redisFences = append(redisFences, h.Token())
				}
				for _, err := range []error{err1, err2} {
					if errors.Is(err, fence.ErrStale) {
						stale++
					} else if err != nil {
						t.Error(err)
					}
				}
				mu.Unlock()
				if err := h.Unlock(t.Context()); err != nil && !errors.Is(err, holdfast.ErrNotHeld) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, fences := range [][]int64{sqlFences, redisFences} {
		require.IsNonDecreasing(t, fences)
	}
	balance, _, seen := row(t, db, "a")
	require.Equal(t, balance, seen.Int64)
	require.Positive(t, stale, "no holder was late: the test has tested nothing")
	t.Logf("%d writes, %d refused", len(sqlFences)+len(redisFences), stale)
}
