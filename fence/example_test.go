package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/holdfasttest"
)

// A holder that is stopped for longer than its lease wakes up and writes: the row
// knows better.
func ExampleTable() {
	server, _ := holdfasttest.Start()
	defer server.Close()
	client := server.Client()
	ctx := context.Background()

	db, _ := sql.Open("sqlite", ":memory:")
	defer db.Close()
	db.SetMaxOpenConns(1) // a database in memory lives in its connection
	_, _ = db.Exec(`CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER, last_fence BIGINT)`)
	_, _ = db.Exec(`INSERT INTO accounts (id, balance) VALUES (42, 100)`)
	accounts, _ := fence.NewTable(fence.SQLite, fence.Names{Table: "accounts", Key: "id", Fence: "last_fence"})

	lock := client.FencedLock("account:42")
	late, _ := lock.Lock(ctx)
	_, _ = lock.ForceUnlock(ctx) // as if its lease had run out while it was stopped
	next, _ := lock.Lock(ctx)
	defer next.Unlock(ctx)

	fmt.Println(accounts.Update(ctx, db, next.Token(), 42, fence.Set("balance", 150)))
	err := accounts.Update(ctx, db, late.Token(), 42, fence.Set("balance", 90))
	fmt.Println(errors.Is(err, fence.ErrStale), err)
	// Output:
	// <nil>
	// true fence: a newer holder was here: token 1, but 2 was seen: nothing was written
}

// A row that is read before it is written is claimed first: what is read then
// can't be overtaken by an earlier holder any more.
func ExampleTable_Claim() {
	db, _ := sql.Open("sqlite", ":memory:")
	defer db.Close()
	db.SetMaxOpenConns(1)
	_, _ = db.Exec(`CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER, last_fence BIGINT)`)
	_, _ = db.Exec(`INSERT INTO accounts (id, balance) VALUES (42, 100)`)
	accounts, _ := fence.NewTable(fence.SQLite, fence.Names{Table: "accounts", Key: "id", Fence: "last_fence"})
	ctx := context.Background()
	const token, earlier = 8, 7 // of two holds

	fmt.Println(accounts.Claim(ctx, db, token, 42))
	fmt.Println(errors.Is(accounts.Update(ctx, db, earlier, 42, fence.Set("balance", 0)), fence.ErrStale))
	var balance int
	_ = db.QueryRow(`SELECT balance FROM accounts WHERE id = 42`).Scan(&balance)
	fmt.Println(balance, accounts.Update(ctx, db, token, 42, fence.Set("balance", balance+50)))
	// Output:
	// <nil>
	// true
	// 100 <nil>
}

func ExampleValues() {
	server, _ := holdfasttest.Start()
	defer server.Close()
	client, rdb := server.Client(), server.Redis()
	ctx := context.Background()
	values, _ := fence.NewValues(rdb)

	lock := client.FencedLock("report")
	late, _ := lock.Lock(ctx)
	_, _ = lock.ForceUnlock(ctx)
	next, _ := lock.Lock(ctx)
	defer next.Unlock(ctx)

	fmt.Println(values.Set(ctx, "report:latest", next.Token(), []byte("second"), 0))
	fmt.Println(errors.Is(values.Set(ctx, "report:latest", late.Token(), []byte("first"), 0), fence.ErrStale))
	fmt.Println(rdb.Get(ctx, "report:latest").Val())
	// Output:
	// <nil>
	// true
	// second
}

func ExampleStaleError() {
	server, _ := holdfasttest.Start()
	defer server.Close()
	values, _ := fence.NewValues(server.Redis())
	ctx := context.Background()
	_ = values.Claim(ctx, "report:latest", 9)

	var stale *fence.StaleError
	if errors.As(values.Claim(ctx, "report:latest", 8), &stale) {
		fmt.Println(stale.Token, stale.Seen)
	}
	// Output:
	// 8 9
}
