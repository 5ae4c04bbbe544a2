package rlock_test

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/rlock"
)

// One lock on each of three servers, by a client each.
func ExampleQuorum() {
	urls, stop := rlock.URLs(3)
	defer stop()

	var locks []rlock.Locker
	for _, url := range urls {
		client, _ := holdfast.Open(url)
		defer client.Close()
		locks = append(locks, client.Lock("rlock-example:quorum"))
	}
	hold, err := rlock.Quorum(locks...).Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("held:", hold.Name())
	fmt.Println(hold.Unlock(context.Background()))
	// Output:
	// held: rlock-example:quorum
	// <nil>
}
