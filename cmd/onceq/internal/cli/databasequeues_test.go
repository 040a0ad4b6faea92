package cli

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/pgbroker"
	"github.com/onceq/onceq/adapters/sqlitebroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/testserver/testpg"
)

// databaseQueue is a kind of queue that is a table of a database.
type databaseQueue struct {
	r    *rig
	url  func(name string) string
	open func(name string) broker.Broker // with its table
}

// test has the commands of queues and letters on two queues of the kind.
func (q *databaseQueue) test(t *testing.T) {
	t.Helper()
	r, outbox, dead := q.r, q.open("outbox"), q.open("outbox-dead")
	ms := []broker.Outgoing{onceq.Message("ship", "order-7", []byte("to Rome")), onceq.Message("ship", "order-8", nil)}
	ms[0].Group, ms[1].Group = "customer-1", "customer-1"
	if err := onceq.Send(t.Context(), outbox, ms); err != nil {
		t.Fatal(err)
	}
	letter := broker.Outgoing{Body: []byte("x"), Meta: &broker.Meta{ID: "A-1", Key: "A-1", Type: "ship", Created: time.Now(), Dead: &broker.Letter{
		Class: "timeout", LastErr: "no answer", Fence: 1, At: time.Now(), Attempts: 6, Source: "outbox", Scope: "orders", Key: "A-1",
	}}}
	if _, err := dead.Send(t.Context(), []broker.Outgoing{letter}); err != nil {
		t.Fatal(err)
	}
	r.config(fmt.Sprintf("profiles:\n  p:\n    store: %s\n    queues:\n      outbox:\n        url: %q\n        dead: %q\n", r.storeURL, q.url("outbox"), q.url("outbox-dead")))
	r.run("queue", "ls").want(0, "outbox", "2")
	held, err := outbox.Receive(t.Context(), broker.ReceiveOptions{Max: 1}) // a worker has the head
	if err != nil || len(held) != 1 {
		t.Fatal(held, err)
	}
	r.run("queue", "peek", "outbox").want(0, "order-7", "to Rome", "read 1 of outbox, in its database; nothing was received").not("order-8", "receive more", "given back")
	if err := outbox.Ack(t.Context(), []broker.Receipt{held[0].Receipt}); err != nil {
		t.Errorf("after a look: %v", err)
	}
	r.run("queue", "peek", "outbox").want(0, "order-8")
	r.run("dlq", "ls", "outbox").want(0, "A-1", "timeout")
	r.run("queue", "ls", q.url("outbox")).want(0, "outbox")
}

// TestPostgresQueue: the commands of queues and letters on queues in a table of PostgreSQL.
func TestPostgresQueue(t *testing.T) {
	r := postgresRig(t)
	db := testpg.New(t)
	pool := must.Get(pgxpool.New(t.Context(), db.URL))
	t.Cleanup(pool.Close)
	url := func(name string) string {
		before, query, _ := strings.Cut(db.URL, "?")
		return "postgres-queue" + strings.TrimPrefix(strings.TrimPrefix(before, "postgresql"), "postgres") + "/" + name + "?" + query
	}
	r.run("queue", "peek", url("outbox")).want(exitReach, "its table is not there: call Migrate")

	q := &databaseQueue{r, url, func(name string) broker.Broker {
		q, err := pgbroker.New(pool, name, nil)
		if err == nil {
			err = q.Migrate(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		return q
	}}
	q.test(t)
	if _, err := pool.Exec(t.Context(), "COMMENT ON TABLE onceq_messages IS 'onceq messages, version 2'"); err != nil {
		t.Fatal(err)
	}
	r.run("queue", "peek", "outbox").want(exitReach, "made by a newer pgbroker")
}

// TestSQLiteQueue: the commands of queues and letters on queues in a SQLite file.
func TestSQLiteQueue(t *testing.T) {
	r := newRig(t)
	path := filepath.Join(t.TempDir(), "jobs.db")
	url := func(name string) string { return "sqlite-queue://" + filepath.ToSlash(path) + "/" + name }
	r.run("queue", "peek", url("outbox")).want(exitReach, "no such file")
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Fatal("a look has made the file: ", err)
	}
	db := must.Get(sql.Open("sqlite", sqlitestore.DSN(path)))
	store := must.Get(sqlitestore.New(db, nil))
	t.Cleanup(func() {
		_ = store.Close()
		_ = db.Close()
	})
	exec := func(s string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	exec("CREATE TABLE orders (id TEXT)")
	for range 2 { // the first makes nothing that the second would find
		r.run("queue", "peek", url("outbox")).want(exitReach, "its table is not there: call Migrate")
	}

	q := &databaseQueue{r, url, func(name string) broker.Broker {
		q, err := sqlitebroker.New(store, name, nil)
		if err == nil {
			err = q.Migrate(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		return q
	}}
	q.test(t)
	r.run("queue", "ls", url("outbox")+"?onceq.table=a-b").want(exitReach, "Options.Table")
	exec("UPDATE onceq_messages_version SET version = 2")
	r.run("queue", "peek", "outbox").want(exitReach, "made by a newer sqlitebroker")
}
