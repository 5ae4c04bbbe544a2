// Writebehind counts in a cache and writes to an SQL database behind it, under a
// lock whose holds carry a fencing token. The first writer is stopped for longer
// than its lease (a long pause of the machine, say), the second takes over and
// writes, and then the first one's write arrives. No lock can prevent that; the
// row refuses it, because it has seen a larger token.
//
//	go run ./examples/writebehind
//	go run ./examples/writebehind -without-fence   loses the newer value, and says so
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"time"

	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/examples/internal/stage"
	"github.com/holdfast-go/holdfast/fence"
)

var withoutFence = flag.Bool("without-fence", false, "show what happens without")

func main() {
	flag.Parse()
	stage.Main(run)
}

func run(ctx context.Context, s *stage.Stage) error {
	pods, stop, err := s.Pods(2)
	if err != nil {
		return err
	}
	defer stop()
	c, err := newCounters()
	if err != nil {
		return err
	}
	defer c.db.Close()

	first, err := pods[0].FencedLock("counter:7").Lock(ctx, holdfast.Lease(300*time.Millisecond))
	if err != nil {
		return err
	}
	stage.Say("pod 1", "has token %d, is about to write 10, and is stopped", first.Token())

	second, err := pods[1].FencedLock("counter:7").Lock(ctx) // when the lease of the first is over
	if err != nil {
		return err
	}
	stage.Say("pod 2", "has token %d", second.Token())
	if err := c.write(second.Context(), second.Token(), 11); err != nil {
		return err
	}
	stage.Say("pod 2", "writes 11")
	if err := second.Unlock(ctx); err != nil {
		return err
	}

	// The first goes on where it was. A look at first.Context() would tell it that
	// the lock is lost; but it could just as well be stopped right after the look.
	err = c.write(ctx, first.Token(), 10)
	switch {
	case errors.Is(err, fence.ErrStale):
		stage.Say("pod 1", "writes 10, too late: %v", err)
	case err != nil:
		return err
	default:
		stage.Say("pod 1", "writes 10")
	}

	value, err := c.read(ctx)
	if err != nil {
		return err
	}
	stage.Say("", "the counter is %d", value)
	if value != 11 {
		return fmt.Errorf("the counter is %d, though 11 was written by a newer holder", value)
	}
	return nil
}

// counters is the table behind the cache.
type counters struct {
	db    *sql.DB
	table *fence.Table
}

func newCounters() (*counters, error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // a database in memory lives in its connection
	table, err := fence.NewTable(fence.SQLite, fence.Names{Table: "counters", Key: "id", Fence: "fence"})
	if err == nil {
		_, err = db.Exec(`CREATE TABLE counters (id INTEGER PRIMARY KEY, value INTEGER, fence INTEGER)`)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &counters{db, table}, nil
}

// write stores the value, unless a newer holder has written.
func (c *counters) write(ctx context.Context, token int64, value int) error {
	if *withoutFence {
		_, err := c.db.ExecContext(ctx, `INSERT INTO counters (id, value) VALUES (7, ?) ON CONFLICT (id) DO UPDATE SET value = excluded.value`, value)
		return err
	}
	return c.table.Put(ctx, c.db, token, 7, fence.Set("value", value))
}

func (c *counters) read(ctx context.Context) (value int, err error) {
	err = c.db.QueryRowContext(ctx, `SELECT value FROM counters WHERE id = 7`).Scan(&value)
	return value, err
}
