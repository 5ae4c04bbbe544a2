package rlock_test

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/rlock"
)

// A transfer needs both accounts, in whatever order they come.
func ExampleMultiLock() {
	client, _ := holdfast.Open(rlock.URL())
	defer client.Close()

	transfer := func(from, to string) error {
		both := client.MultiLock(client.Lock("account:"+from), client.Lock("account:"+to))
		return both.Do(context.Background(), func(ctx context.Context) error {
			fmt.Println("moving from", from, "to", to)
			return ctx.Err() // ends when either lock is lost
		})
	}
	fmt.Println(transfer("alice", "bob"), transfer("bob", "alice"))
	// Output:
	// moving from alice to bob
	// moving from bob to alice
	// <nil> <nil>
}
