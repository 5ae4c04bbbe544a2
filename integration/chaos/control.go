package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/internal/history"
	"github.com/holdfast-go/holdfast/integration/internal/topology"
	"github.com/holdfast-go/holdfast/integration/internal/worker"
)

// Roles that this program plays when it is started again by itself.
const (
	roleEnv = "HOLDFAST_CHAOS_ROLE"

	clientRole = "client"
	// Controls: clients that are broken on purpose. A run with one must fail.
	trespasser = "trespasser" // enters without the lock
	deaf       = "deaf"       // stays inside though its hold is lost
)

// clientMain is the main of a client process.
func clientMain(role string) int {
	switch role {
	case clientRole:
		return worker.Main(os.Stdin, os.Stderr)
	case trespasser, deaf:
		if err := control(role, os.Stdin); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", role, err)
			return 1
		}
		return 0
	}
	fmt.Fprintln(os.Stderr, "nobody plays the role", role)
	return 2
}

// control is a broken client: until in is closed it says of the locks in use that
// it holds them, wrongly.
func control(role string, in io.Reader) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	lines := bufio.NewReader(in)
	text, err := lines.ReadBytes('\n')
	if err != nil {
		return err
	}
	var c worker.Config
	if err := json.Unmarshal(text, &c); err != nil {
		return err
	}
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, lines)
		stop()
	}()
	w, err := history.Create(c.History, c.Process)
	if err != nil {
		return err
	}
	// Not through the proxies: it fails by itself.
	rdb := topology.Endpoint{Kind: topology.Kind(c.Topology), Addrs: c.Addrs, MasterName: c.MasterName}.Client(
		func(o *topology.ClientOptions) { o.Username, o.Password = c.Username, c.Password })
	defer rdb.Close()
	client, err := holdfast.New(rdb)
	if err != nil {
		return errors.Join(err, w.Close())
	}
	for ctx.Err() == nil {
		if err := claim(ctx, role, c, w, client, rdb); err != nil && ctx.Err() == nil {
			return errors.Join(err, client.Close(), w.Close())
		}
	}
	return errors.Join(client.Close(), w.Close())
}

// claim says for a second that the process holds a lock.
func claim(ctx context.Context, role string, c worker.Config, w *history.Writer, client *holdfast.Client, rdb redis.UniversalClient) error {
	name := worker.NameOf(c.Prefix, history.Lock, 0, (history.Now()-c.Epoch)/int64(c.Generation))
	ctx = holdfast.WithOwner(ctx)
	owner, _ := holdfast.OwnerID(ctx)
	op := history.Op{Kind: history.Lock, Flavor: role, Name: name, Call: history.Acquire, Owner: owner, Lease: lease}
	id := w.Begin(op)
	if role == deaf {
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := client.Lock(name).Lock(bounded, holdfast.Lease(lease)); err != nil {
			w.End(id, history.Result{Outcome: history.Unknown, Left: bounded.Err() != nil, Error: err.Error()})
			return nil // another time
		}
		if err := rdb.Del(ctx, name).Err(); err != nil { // the loss
			return err
		}
	}
	w.End(id, history.Result{Outcome: history.Done})
	sleepUntil(ctx, time.Now().Add(time.Second))
	w.Seen(id, history.Now())
	op.Call, op.Hold = history.Release, id
	id = w.Begin(op)
	w.End(id, history.Result{Outcome: history.Done}) // as if all were well: nothing else shall be found
	return nil
}
