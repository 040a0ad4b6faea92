package pgbroker

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
	"github.com/onceq/onceq/internal/testserver/testpg"
)

func begin(tb testing.TB, pool *pgxpool.Pool, o pgx.TxOptions) pgx.Tx {
	tb.Helper()
	tx, err := pool.BeginTx(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	// A test that failed must not keep the pool from closing.
	tb.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func commit(tb testing.TB, tx pgx.Tx) {
	tb.Helper()
	if err := tx.Commit(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

// TestTx: a message is there when its transaction is committed, at every isolation level, and not
// before.
func TestTx(t *testing.T) {
	pool := openPool(t)
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			q := newQueue(t, pool, newName(), nil)
			tx := begin(t, pool, pgx.TxOptions{IsoLevel: level})
			if n := pgtest.Scan[int](t, tx, "SELECT 1"); n != 1 { // under REPEATABLE READ the snapshot is taken here
				t.Fatal(n)
			}
			send(t, q, bodies("", "before")...)
			ids := send(t, q.Tx(tx), broker.Outgoing{Body: []byte("of tx"), Meta: &broker.Meta{ID: "j-1"}, Attributes: map[string]string{"a": "ü"}, Group: "größe"})
			ack(t, q, take(t, q, 1)...)
			none(t, q, "before the commit")
			commit(t, tx)
			q.Wake()
			m := take(t, q, 1)[0]
			if m.ID != ids[0] || string(m.Body) != "of tx" || m.Meta == nil || m.Meta.ID != "j-1" || m.Attributes["a"] != "ü" || m.Group != "größe" {
				t.Errorf("%+v came, sent under id %s", m, ids[0])
			}
			ack(t, q, m)
		})
	}
}

// TestTxRolledBack: nothing is left of a transaction, or a savepoint, that was rolled back.
func TestTxRolledBack(t *testing.T) {
	pool := openPool(t)
	q := newQueue(t, pool, newName(), nil)
	tx := begin(t, pool, pgx.TxOptions{})
	send(t, q.Tx(tx), bodies("", "gone")...)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	tx = begin(t, pool, pgx.TxOptions{})
	send(t, q.Tx(tx), bodies("", "kept")...)
	point, err := tx.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	send(t, q.Tx(point), bodies("", "gone with the savepoint")...)
	if err := point.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	commit(t, tx)
	m := take(t, q, 1)[0]
	if string(m.Body) != "kept" {
		t.Errorf("%q came", m.Body)
	}
	ack(t, q, m)
	none(t, q, "after the one message")
	if n := pgtest.Scan[int](t, pool, "SELECT count(*) FROM onceq_messages"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// TestTxSQL: the same with database/sql, whose placeholders are texts.
func TestTxSQL(t *testing.T) {
	pool := openPool(t)
	q := newQueue(t, pool, newName(), nil)
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { db.Close() })
	for _, commits := range []bool{true, false} {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		many := make([]broker.Outgoing, 250)
		for i := range many {
			many[i].Body = []byte{byte(i), 0, '\\', '"'}
		}
		ids := send(t, q.TxSQL(tx), many...)
		if !commits {
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			none(t, q, "after the rollback")
			continue
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		for i, m := range take(t, q, len(many)) {
			if m.ID != ids[i] || string(m.Body) != string(many[i].Body) {
				t.Fatalf("message %d is %s, %q; want %s, %q", i, m.ID, m.Body, ids[i], many[i].Body)
			}
			ack(t, q, m)
		}
	}
	// A connection of database/sql on which BEGIN was run.
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "BEGIN"); err != nil {
		t.Fatal(err)
	}
	send(t, q.TxSQL(conn), bodies("", "on a conn")...)
	if _, err := conn.ExecContext(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	ack(t, q, take(t, q, 1)...)
}

// embedded are what people have in place of a transaction.
type (
	embeddedPool struct{ *pgxpool.Pool }
	embeddedDB   struct{ *sql.DB }
)

// TestTxRefused: what is no transaction of the queue's database is refused with the reason, and
// nothing is sent.
func TestTxRefused(t *testing.T) {
	pool := openPool(t)
	q := newQueue(t, pool, newName(), nil)
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { db.Close() })
	over, failed := begin(t, pool, pgx.TxOptions{}), begin(t, pool, pgx.TxOptions{})
	commit(t, over)
	if _, err := failed.Exec(t.Context(), "SELECT 1/0"); err == nil {
		t.Fatal("no error")
	}
	sqlOver, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := sqlOver.Rollback(); err != nil {
		t.Fatal(err)
	}
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	sqlConn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer sqlConn.Close()
	bare := poolOn(t, testpg.New(t).URL)
	other := poolOn(t, testpg.New(t).URL)
	newQueue(t, other, q.name, nil)
	var noTx pgx.Tx
	var noSQL *sql.Tx
	for _, c := range []struct {
		name string
		s    broker.Sender
		want string
		is   error
	}{
		{name: "nil", s: q.Tx(noTx), want: "tx is nil"},
		{name: "a nil *sql.Tx", s: q.TxSQL(noSQL), want: "tx is nil"},
		{name: "a pool", s: q.Tx(pool), want: "commits each statement by itself"},
		{name: "what has a pool embedded", s: q.Tx(embeddedPool{pool}), want: "commits each statement by itself"},
		{name: "a *sql.DB", s: q.TxSQL(db), want: "commits each statement by itself"},
		{name: "what has a *sql.DB embedded", s: q.TxSQL(embeddedDB{db}), want: "commits each statement by itself"},
		{name: "a connection without BEGIN", s: q.Tx(conn.Conn()), want: "BEGIN first"},
		{name: "a pool's connection without BEGIN", s: q.Tx(conn), want: "BEGIN first"},
		{name: "a *sql.Conn without BEGIN", s: q.TxSQL(sqlConn), want: "BEGIN first"},
		{name: "after its COMMIT", s: q.Tx(over), want: "it is over"},
		{name: "after its rollback, in database/sql", s: q.TxSQL(sqlOver), want: "the transaction is over", is: sql.ErrTxDone},
		{name: "in a failed transaction", s: q.Tx(failed), want: "a statement before it has failed"},
		{name: "in a database without the table", s: q.Tx(begin(t, bare, pgx.TxOptions{})), want: "is the transaction in the queue's database", is: broker.ErrNotFound},
		{name: "in another database", s: q.Tx(begin(t, other, pgx.TxOptions{})), want: "nothing was written: tx is not in the database"},
		{name: "in a transaction that may only read", s: q.Tx(begin(t, pool, pgx.TxOptions{AccessMode: pgx.ReadOnly})), want: "read-only"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ids, err := c.s.Send(t.Context(), bodies("", "x"))
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, broker.ErrThrottled) {
				t.Errorf("answered %q, %v; want %q", ids, err, c.want)
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%v is no %v", err, c.is)
			}
		})
	}
	none(t, q, "after refusals alone")
	if n := pgtest.Scan[int](t, other, "SELECT count(*) FROM onceq_messages"); n != 0 {
		t.Errorf("%d rows in the other database", n)
	}
}

// TestTxByPosition: of a batch in a transaction, what is refused before the statement leaves the
// transaction whole.
func TestTxByPosition(t *testing.T) {
	pool := openPool(t)
	q := newQueue(t, pool, newName(), nil)
	tx := begin(t, pool, pgx.TxOptions{})
	ids, err := q.Tx(tx).Send(t.Context(), bodies("nul\x00", "bad"))
	if !errors.Is(broker.ErrAt(err, 0), broker.ErrUnsupported) || ids[0] != "" {
		t.Errorf("%q, %v", ids, err)
	}
	send(t, q.Tx(tx), bodies("", "good")...)
	commit(t, tx)
	ack(t, q, take(t, q, 1)...)
}

// TestNoNotification: nothing is notified in the user's transaction, also with Options.Notify,
// since a pending notification would hold a lock over all commits of the server.
func TestNoNotification(t *testing.T) {
	pool := openPool(t)
	q := newQueue(t, pool, newName(), &Options{Notify: true})
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), "LISTEN "+q.channel()); err != nil {
		t.Fatal(err)
	}
	tx := begin(t, pool, pgx.TxOptions{})
	send(t, q.Tx(tx), bodies("", "x")...)
	commit(t, tx)
	heard := func(d time.Duration) bool {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		_, err := conn.Conn().WaitForNotification(ctx)
		return err == nil
	}
	if heard(300 * time.Millisecond) {
		t.Error("the user's transaction notified")
	}
	q.Wake()
	if !heard(10 * time.Second) {
		t.Error("Wake did not notify: the test shows nothing")
	}
}
