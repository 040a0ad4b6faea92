package sqlitebroker

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/sqlitewriter"
	"github.com/onceq/onceq/internal/storetest"
	"github.com/onceq/onceq/internal/tablequeue/tabletest"
)

// TestOneCommit: a send, a claim and an ack that come together are one transaction.
func TestOneCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFile(t, tempFile(t))
		q := f.queue("orders", nil)
		send(t, q, bodies("", "a")...)
		m := one(t, q)
		tx := f.begin()
		var seen []*sqlitewriter.Txn
		probe := func() error {
			return sqlitewriter.Of(f.store).Do(t.Context(), &sqlitewriter.Call{Wait: time.Minute, Apply: func(x *sqlitewriter.Txn) error {
				seen = append(seen, x)
				return nil
			}})
		}
		var wg sync.WaitGroup
		for _, call := range []func() error{
			probe,
			func() error { _, err := q.Send(t.Context(), bodies("", "b")); return err },
			func() error {
				_, err := f.store.Claim(t.Context(), []dedupe.ClaimRequest{storetest.Request("1")})
				return err
			},
			func() error { return q.Ack(t.Context(), []broker.Receipt{m.Receipt}) },
			probe,
		} {
			wg.Go(func() {
				if err := call(); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if len(seen) != 2 || seen[0] != seen[1] {
			t.Errorf("what came together took several transactions: %v", seen)
		}
		if m := one(t, q); string(m.Body) != "b" {
			t.Errorf("%q is there, want b alone", m.Body)
		}
	})
}

// TestMissingTable: a queue without its table takes no claim of the store with it.
func TestMissingTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFile(t, tempFile(t))
		q := must.Get(New(f.store, "orders", nil))
		tx := f.begin()
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := q.Send(t.Context(), bodies("", "a")); !errors.Is(err, broker.ErrNotFound) || !strings.Contains(err.Error(), "Migrate") {
				t.Errorf("a send without its table: %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() { storetest.Claim(t, f.store, storetest.Request("1")) })
		synctest.Wait()
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
	})
}

// TestTwoProcesses: two handles on one file, each with a writer of its own, share the queue, and
// what one sends the other finds by its poll.
func TestTwoProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := tempFile(t)
		a, b := openFile(t, path).queue("orders", nil), openFile(t, path).queue("orders", nil)
		begun := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			ms, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Wait: 20 * time.Second})
			if err != nil || len(ms) != 1 {
				t.Errorf("the other process received %v, %v", ms, err)
			} else if took := time.Since(begun) - time.Second; took > 100*time.Millisecond {
				t.Errorf("it came after %v, Poll is 100 ms", took)
			}
		})
		pass(t.Context(), time.Second)
		send(t, a, bodies("", "a")...)
		wg.Wait()
		none(t, a, "the other process has it")
		ms := make([]string, 0, 200)
		for n := range 200 {
			ms = append(ms, fmt.Sprint(n))
		}
		send(t, a, bodies("", ms...)...)
		var mu sync.Mutex
		seen := map[string]int{}
		for _, q := range []*Queue{a, b, a, b} {
			wg.Go(func() {
				for {
					ms, err := q.Receive(t.Context(), broker.ReceiveOptions{Max: 7})
					if err != nil {
						t.Error(err)
						return
					}
					if len(ms) == 0 {
						return
					}
					mu.Lock()
					for _, m := range ms {
						seen[string(m.Body)]++
					}
					mu.Unlock()
					ack(t, q, ms...)
				}
			})
		}
		wg.Wait()
		for body, n := range seen {
			if n != 1 {
				t.Errorf("%q came %d times", body, n)
			}
		}
		if len(seen) != 200 {
			t.Errorf("%d messages came, want 200", len(seen))
		}
	})
}

// TestWoken: a waiting receive needs no poll for what is sent in its process, whichever Queue sends
// it, for what was committed before a Wake, and for what becomes due.
func TestWoken(t *testing.T) {
	for name, put := range map[string]func(f *file, q, other *Queue) time.Duration{
		"send":          func(f *file, q, _ *Queue) time.Duration { send(f, q, bodies("", "a")...); return 0 },
		"another Queue": func(f *file, _, other *Queue) time.Duration { send(f, other, bodies("", "a")...); return 0 },
		"delay": func(f *file, _, other *Queue) time.Duration {
			send(f, other, broker.Outgoing{Delay: 3 * time.Second})
			return 3 * time.Second
		},
		"transaction": func(f *file, q, _ *Queue) time.Duration {
			tx := f.begin()
			send(f, q.Tx(tx), bodies("", "a")...)
			if err := tx.Commit(); err != nil {
				f.Fatal(err)
			}
			q.Wake()
			return 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := openFile(t, tempFile(t))
				q, other := f.queue("orders", &Options{Poll: 10 * time.Second}), f.queue("orders", nil)
				var came time.Time
				var wg sync.WaitGroup
				wg.Go(func() {
					if ms, err := q.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Wait: 20 * time.Second}); err != nil || len(ms) != 1 {
						t.Errorf("received %v, %v", ms, err)
					}
					came = time.Now()
				})
				pass(t.Context(), time.Second)
				want := time.Now()
				want = want.Add(put(f, q, other))
				wg.Wait()
				if late := came.Sub(want); late < 0 || late > time.Millisecond {
					t.Errorf("it came %v late", late)
				}
			})
		})
	}
}

// TestCrash: a process that dies with messages in its hands, and in a transaction, leaves them for
// the next one.
func TestCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := tempFile(t)
		f := openFile(t, path)
		q := f.queue("orders", &Options{Visibility: time.Minute})
		send(t, q, append(bodies("g", "1", "2"), bodies("", "3")...)...)
		if ms := take(t, q, 10); len(ms) != 2 {
			t.Fatalf("%d messages came, want the group's head and the other one", len(ms))
		}
		tx := f.begin()
		send(t, q.Tx(tx), bodies("", "never committed")...)
		// Nothing is drained: the writer and the pool go as they are.
		go f.store.Close()
		if err := tx.Rollback(); err != nil { // which SQLite does for a process that is gone
			t.Fatal(err)
		}
		synctest.Wait()
		f.db.Close()

		again := openFile(t, path).queue("orders", &Options{Visibility: time.Minute})
		none(t, again, "what the dead process held is hidden until its deadline")
		pass(t.Context(), time.Minute)
		ms := take(t, again, 10)
		if len(ms) != 2 || string(ms[0].Body) != "1" || string(ms[1].Body) != "3" || ms[0].Attempt != 2 {
			t.Fatalf("after the crash: %+v", ms)
		}
		ack(t, again, ms...)
		if m := one(t, again); string(m.Body) != "2" {
			t.Errorf("%q came behind its group's head", m.Body)
		}
	})
}

func TestTx(t *testing.T) {
	f := openFile(t, tempFile(t))
	q := f.queue("orders", nil)
	f.exec("CREATE TABLE orders (id TEXT)")
	for _, commit := range []bool{false, true} {
		tx := f.begin()
		if _, err := tx.Exec("INSERT INTO orders VALUES ('A')"); err != nil {
			t.Fatal(err)
		}
		send(t, q.Tx(tx), bodies("g", "1", "2")...)
		none(t, q, "before the commit")
		if !commit {
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			none(t, q, "after a rollback")
			continue
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	if m := one(t, q); string(m.Body) != "1" || scan[int](f, "SELECT count(*) FROM orders") != 1 {
		t.Errorf("%q came first", m.Body)
	}
	conn, err := f.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, s := range []string{"BEGIN IMMEDIATE", "SAVEPOINT s"} {
		if _, err := conn.ExecContext(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	send(t, q.Tx(conn), bodies("", "of the savepoint")...)
	for _, s := range []string{"ROLLBACK TO s", "COMMIT"} {
		if _, err := conn.ExecContext(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	none(t, q, "after a rollback to a savepoint")
}

// houseDB is what other packages have.
type houseDB struct{ *sql.DB }

func TestTxRefused(t *testing.T) {
	f := openFile(t, tempFile(t))
	q := f.queue("orders", nil)
	other := openFile(t, tempFile(t))
	other.queue("orders", nil)
	foreign, over := other.begin(), f.begin()
	defer foreign.Rollback()
	if err := over.Commit(); err != nil {
		t.Fatal(err)
	}
	conn, err := f.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for name, c := range map[string]struct {
		tx   Execer
		want string
	}{
		"nil":                {nil, "tx is nil"},
		"nil *sql.Tx":        {(*sql.Tx)(nil), "tx is nil"},
		"a pool":             {f.db, "commits each statement by itself"},
		"a pool in a struct": {&houseDB{f.db}, "commits each statement by itself"},
		"no BEGIN":           {conn, "BEGIN IMMEDIATE first"},
		"after its COMMIT":   {over, "the transaction is over"},
		"another database":   {foreign, "nothing was written: tx is on the file"},
	} {
		ids, err := q.Tx(c.tx).Send(t.Context(), bodies("", "lost"))
		if err == nil || ids != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v; want %q", name, ids, err, c.want)
		}
	}
	if n := scan[int](f, "SELECT count(*) FROM onceq_messages") + scan[int](other, "SELECT count(*) FROM onceq_messages"); n != 0 {
		t.Errorf("%d messages were put by transactions that were refused", n)
	}
}

// owned is a job whose claim is l.
type owned struct{ l dedupe.Lease }

func (o owned) Lease() dedupe.Lease   { return o.l }
func (o owned) Retain() time.Duration { return time.Hour }
func (o owned) Join()                 {}

// TestCompleteAndSend: a job completes and sends the next one, or neither.
func TestCompleteAndSend(t *testing.T) {
	f := openFile(t, tempFile(t))
	q := f.queue("ship", nil)
	l := storetest.Claim(t, f.store, storetest.Request("1"))
	for _, commit := range []bool{false, true} {
		tx := f.begin()
		send(t, q.Tx(tx), bodies("", "next")...)
		err := f.store.CompleteTx(t.Context(), tx, owned{l}, nil)
		if err == nil && commit {
			err = tx.Commit()
		} else {
			err = errors.Join(err, tx.Rollback())
		}
		if err != nil {
			t.Fatal(err)
		}
		done := storetest.Get(t, f.store, l.Key).Status == dedupe.Done
		if sent := len(take(t, q, 10)) == 1; done != commit || sent != commit {
			t.Errorf("commit %v: done is %v, sent is %v", commit, done, sent)
		}
	}
	// The claim is over: nothing of a second one is committed.
	tx := f.begin()
	defer tx.Rollback()
	send(t, q.Tx(tx), bodies("", "twice")...)
	if err := f.store.CompleteTx(t.Context(), tx, owned{l}, nil); !errors.Is(err, dedupe.ErrLeaseLost) {
		t.Errorf("completed twice: %v", err)
	}
}

func TestSendRefuses(t *testing.T) {
	f := openFile(t, tempFile(t))
	q := f.queue("orders", &Options{MaxBody: tabletest.MaxBody})
	tabletest.SendRefuses(t, q)
	_, err := q.Send(t.Context(), []broker.Outgoing{{Group: "a\x00b"}})
	if at := broker.ErrAt(err, 0); at == nil || !strings.Contains(at.Error(), "has a NUL, which SQLite's text cannot hold") {
		t.Errorf("a group with a NUL: %v", at)
	}
}

func TestNewRefuses(t *testing.T) {
	f := openFile(t, tempFile(t))
	for _, c := range []struct {
		queue string
		o     Options
		want  string
	}{
		{"", Options{}, "the queue's name is empty"},
		{"a\x00", Options{}, "a NUL"},
		{"q", Options{Table: "a.b"}, "Options.Table"},
		{"q", Options{Table: "sqlite_x"}, "SQLite's own"},
		{"q", Options{Visibility: 30}, "Options.Visibility: 30ns is not within 100ms and 12h0m0s; is its unit missing?"},
		{"q", Options{Poll: time.Hour}, "Options.Poll"},
		{"q", Options{MaxBody: -1}, "Options.MaxBody"},
		{"q", Options{MaxReceives: 3}, "Options.DeadLetters: empty"},
		{"q", Options{DeadLetters: "d"}, "Options.MaxReceives: 0"},
		{"q", Options{MaxReceives: 3, DeadLetters: "q"}, "is the queue itself"},
	} {
		if _, err := New(f.store, c.queue, &c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q, %+v: %v, want %q", c.queue, c.o, err, c.want)
		}
	}
	if _, err := New(nil, "q", nil); err == nil {
		t.Error("no store was taken")
	}
}

func TestMigrateRefuses(t *testing.T) {
	f := openFile(t, tempFile(t))
	q := f.queue("orders", nil)
	f.exec("UPDATE onceq_messages_version SET version = 2")
	if err := q.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "table onceq_messages is of version 2, made by a newer sqlitebroker") {
		t.Errorf("a newer table: %v", err)
	}
	other := must.Get(New(f.store, "orders", &Options{Table: "onceq_dedupe"}))
	if err := other.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "is no table of messages") {
		t.Errorf("another table: %v", err)
	}
	if n := scan[int](f, "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'onceq_dedupe_version%'"); n != 0 {
		t.Error("a Migrate that refused has left something")
	}
}

func TestDepthAndPeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFile(t, tempFile(t))
		q := f.queue("orders", nil)
		sent := time.Now().UTC()
		send(t, q, append(bodies("g", "1", "2"), bodies("", "3")...)...)
		send(t, q, broker.Outgoing{Body: []byte("late"), Delay: time.Hour})
		pass(t.Context(), time.Second)
		if d, err := q.Depth(t.Context()); err != nil || d != (broker.Depth{Visible: 3, Delayed: 1, Oldest: sent}) {
			t.Errorf("depth %+v, %v", d, err)
		}
		take(t, q, 1)
		d, err := q.Depth(t.Context())
		if err != nil || d != (broker.Depth{Visible: 2, InFlight: 1, Delayed: 1, Oldest: sent}) {
			t.Errorf("depth with one in flight %+v, %v", d, err)
		}
		var seen []string
		for m, err := range q.Peek(t.Context(), 10) {
			if err != nil {
				t.Fatal(err)
			}
			seen = append(seen, fmt.Sprintf("%s %v", m.Body, !m.Deadline.IsZero()))
			if m.Receipt != "" {
				t.Errorf("a receipt was shown: %s", m.Receipt)
			}
		}
		if got := strings.Join(seen, ", "); got != "3 false, 1 true, late true" {
			t.Errorf("peek showed %s", got)
		}
		for _, err := range q.Peek(t.Context(), 0) {
			if !errors.Is(err, broker.ErrUnsupported) {
				t.Errorf("a peek of nothing: %v", err)
			}
		}
	})
}

// TestClosed: a queue ends by itself, and with its store.
func TestClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFile(t, tempFile(t))
		a, b := f.queue("orders", nil), f.queue("orders", nil)
		var wg sync.WaitGroup
		for _, q := range []*Queue{a, b} {
			wg.Go(func() {
				if _, err := q.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Wait: 20 * time.Second}); !errors.Is(err, broker.ErrClosed) {
					t.Errorf("a waiting receive: %v", err)
				}
			})
		}
		synctest.Wait()
		a.Close()
		f.store.Close()
		wg.Wait()
		if _, err := b.Send(context.Background(), bodies("", "a")); !errors.Is(err, broker.ErrClosed) {
			t.Errorf("a send after its store's end: %v", err)
		}
	})
}

// TestPlans: what runs all the time searches an index, and sorts nothing.
func TestPlans(t *testing.T) {
	f := openFile(t, tempFile(t))
	q := f.queue("orders", nil)
	for _, query := range []string{q.sql.first, q.sql.due, q.sql.take, q.sql.ack, q.sql.nack, q.sql.extend, q.sql.peek} {
		rows, err := f.db.Query("EXPLAIN QUERY PLAN "+query, 1, "2", 3, 4, 5)
		if err != nil {
			rows, err = f.db.Query("EXPLAIN QUERY PLAN "+query, []any{1, "2", 3, 4, 5}[:strings.Count(query, "?")]...)
		}
		if err != nil {
			t.Fatal(query, err)
		}
		defer rows.Close()
		for rows.Next() {
			var plan string
			if err := rows.Scan(new(int), new(int), new(int), &plan); err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(plan, "SEARCH") {
				t.Errorf("%s\n%s", query, plan)
			}
		}
	}
}
