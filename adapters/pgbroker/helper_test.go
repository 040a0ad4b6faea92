package pgbroker

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/tablequeue"
	"github.com/onceq/onceq/internal/testserver/testpg"
)

// openPool opens a pool on a database of the test's own.
func openPool(tb testing.TB, settings ...func(*pgxpool.Config)) *pgxpool.Pool {
	tb.Helper()
	return poolOn(tb, testpg.New(tb).URL, settings...)
}

func poolOn(tb testing.TB, url string, settings ...func(*pgxpool.Config)) *pgxpool.Pool {
	tb.Helper()
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		tb.Fatal(err)
	}
	c.MaxConns = 10
	for _, set := range settings {
		set(c)
	}
	pool, err := pgxpool.NewWithConfig(tb.Context(), c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// newQueue makes a queue with its table, which may be there already.
func newQueue(tb testing.TB, db DB, name string, o *Options) *Queue {
	tb.Helper()
	q, err := New(db, name, o)
	if err != nil {
		tb.Fatal(err)
	}
	if err := q.Migrate(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := q.Close(); err != nil {
			tb.Error(err)
		}
	})
	return q
}

var queues atomic.Int64

// newName is a queue's name that no other test of the process has.
func newName() string { return fmt.Sprintf("queue-%d", queues.Add(1)) }

func exec(tb testing.TB, db interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}, sql string, args ...any,
) {
	tb.Helper()
	if _, err := db.Exec(tb.Context(), sql, args...); err != nil {
		tb.Fatal(err)
	}
}

// scan reads one value.
func scan[T any](tb testing.TB, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, sql string, args ...any,
) (v T) {
	tb.Helper()
	if err := db.QueryRow(tb.Context(), sql, args...).Scan(&v); err != nil {
		tb.Fatal(err)
	}
	return v
}

// bodies are messages with these bodies, in a group or none.
func bodies(group string, of ...string) []broker.Outgoing {
	ms := make([]broker.Outgoing, len(of))
	for i, b := range of {
		ms[i] = broker.Outgoing{Body: []byte(b), Group: group}
	}
	return ms
}

func send(tb testing.TB, s broker.Sender, ms ...broker.Outgoing) []string {
	tb.Helper()
	ids, err := s.Send(tb.Context(), ms)
	if err != nil {
		tb.Fatal(err)
	}
	return ids
}

// take brings n messages, in as many receives as it needs.
func take(tb testing.TB, r broker.Receiver, n int) []*broker.Message {
	tb.Helper()
	var all []*broker.Message
	for end := time.Now().Add(20 * time.Second); len(all) < n; {
		ms, err := r.Receive(tb.Context(), broker.ReceiveOptions{Max: min(n-len(all), tablequeue.ReceiveBatch), Wait: time.Second})
		if err != nil {
			tb.Fatal(err)
		}
		if all = append(all, ms...); time.Now().After(end) {
			tb.Fatalf("%d of %d messages came", len(all), n)
		}
	}
	return all
}

// none fails where something is there.
func none(tb testing.TB, r broker.Receiver, why string) {
	tb.Helper()
	ms, err := r.Receive(tb.Context(), broker.ReceiveOptions{Max: 1})
	if err != nil {
		tb.Fatal(err)
	}
	if len(ms) > 0 {
		tb.Fatalf("%s: %q came", why, ms[0].Body)
	}
}

func ack(tb testing.TB, r broker.Receiver, ms ...*broker.Message) {
	tb.Helper()
	rs := make([]broker.Receipt, len(ms))
	for i, m := range ms {
		rs[i] = m.Receipt
	}
	if err := r.Ack(tb.Context(), rs); err != nil {
		tb.Fatal(err)
	}
}

// until waits for what another goroutine, or the server, does.
func until(tb testing.TB, what string, done func() bool) {
	tb.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(60 * time.Second); !done(); <-tick.C {
		if time.Now().After(end) {
			tb.Fatalf("%s did not come", what)
		}
	}
}

func contextFor(tb testing.TB, d time.Duration) (context.Context, context.CancelFunc) {
	tb.Helper()
	return context.WithTimeout(tb.Context(), d)
}
