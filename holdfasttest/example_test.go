package holdfasttest_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
)

// Invoice is code under test: it bills an order once, whoever else tries.
func Invoice(ctx context.Context, client *holdfast.Client, order string) error {
	return client.Lock("invoice:"+order).Do(ctx, func(context.Context) error {
		fmt.Println("billed", order)
		return nil
	}, holdfast.Wait(0))
}

func ExampleNew() {
	inTest(func(t testing.TB) { // func TestInvoice(t *testing.T) {
		client := holdfasttest.New(t)

		if err := Invoice(t.Context(), client, "42"); err != nil {
			t.Fatal(err)
		}
	})
	// Output: billed 42
}

// Two clients of one server are two processes.
func ExampleServer_Client() {
	inTest(func(t testing.TB) { // func TestInvoiceOnlyOnce(t *testing.T) {
		server := holdfasttest.NewServer(t)
		ours, theirs := server.Client(), server.Client()

		if _, err := theirs.Lock("invoice:42").Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := Invoice(t.Context(), ours, "42")
		fmt.Println("taken:", errors.Is(err, holdfast.ErrNotAcquired))
	})
	// Output: taken: true
}

// A process that dies leaves its lock until the lease ends: here, now.
func ExampleServer_FastForward() {
	inTest(func(t testing.TB) { // func TestInvoiceAfterCrash(t *testing.T) {
		server := holdfasttest.NewServer(t)

		crashed := server.Client()
		if _, err := crashed.Lock("invoice:42").Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := crashed.Close(); err != nil { // no Unlock
			t.Fatal(err)
		}

		server.FastForward(30 * time.Second)
		if err := Invoice(t.Context(), server.Client(), "42"); err != nil {
			t.Fatal(err)
		}
	})
	// Output: billed 42
}

// A hold is lost when its key is deleted, or the server forgets it.
func ExampleServer_Redis() {
	inTest(func(t testing.TB) { // func TestLostHold(t *testing.T) {
		server := holdfasttest.NewServer(t)
		client := server.Client(holdfast.WithLease(100 * time.Millisecond))

		hold, err := client.Lock("invoice:42").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		server.Redis().Del(t.Context(), "invoice:42")
		<-hold.Context().Done()
		fmt.Println(errors.Is(context.Cause(hold.Context()), holdfast.ErrLost))
	})
	// Output: true
}

// In TestMain, so that the tests of a package share a server.
func ExampleStart() {
	server, err := holdfasttest.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close() // before os.Exit, which skips deferred calls

	fmt.Println(Invoice(context.Background(), server.Client(), "42"))
	// Output:
	// billed 42
	// <nil>
}

// inTest stands for the test function: examples have no testing.T.
func inTest(f func(testing.TB)) {
	t := &exampleT{}
	f(t)
	for _, clean := range t.cleanups {
		clean()
	}
}

type exampleT struct {
	testing.TB
	cleanups []func()
}

func (t *exampleT) Helper()                  {}
func (t *exampleT) Context() context.Context { return context.Background() }
func (t *exampleT) Cleanup(f func())         { t.cleanups = append(t.cleanups, f) }
func (t *exampleT) Fatal(args ...any)        { panic(fmt.Sprint(args...)) }
func (t *exampleT) Errorf(f string, a ...any) {
	fmt.Printf(f+"\n", a...)
}
