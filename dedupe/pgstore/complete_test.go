package pgstore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
	"github.com/onceq/onceq/internal/storetest"
)

// business is a user's database: records and a ledger.
type business struct {
	*testing.T
	s    *Store
	pool *pgxpool.Pool
}

func newBusiness(t *testing.T) *business {
	pool := openPool(t)
	b := &business{T: t, s: newStore(t, pool, ""), pool: pool}
	exec(t, pool, "CREATE TABLE ledger (line text NOT NULL)")
	return b
}

func (b *business) begin(level pgx.TxIsoLevel) pgx.Tx {
	b.Helper()
	tx, err := b.pool.BeginTx(b.Context(), pgx.TxOptions{IsoLevel: level})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { tx.Rollback(context.Background()) })
	return tx
}

// charge does a job's work in a transaction: a line in the ledger and the completion.
func (b *business) charge(j *job, result any) (pgx.Tx, error) {
	b.Helper()
	tx := b.begin(pgx.ReadCommitted)
	if _, err := tx.Exec(b.Context(), "INSERT INTO ledger VALUES ('charged')"); err != nil {
		b.Fatal(err)
	}
	return tx, b.s.CompleteTx(b.Context(), tx, j, result)
}

func (b *business) lines() int { return pgtest.Scan[int](b, b.pool, "SELECT count(*) FROM ledger") }

func (b *business) want(k dedupe.Key, st dedupe.Status, lines int) *dedupe.Record {
	b.Helper()
	r := get(b, b.s, k)
	if n := b.lines(); r.Status != st || n != lines {
		b.Errorf("the record is %v with %d lines in the ledger, want %v with %d", r.Status, n, st, lines)
	}
	return r
}

func TestCompleteTxCommit(t *testing.T) {
	b := newBusiness(t)
	q := request("1")
	j := &job{Of: claimOne(b, b.s, q), Keep: time.Hour}
	exec(b, b.pool, "UPDATE onceq_dedupe SET error_class = 'a', first_error = 'b', last_error = 'c', updated = updated - interval '1 hour'")
	tx, err := b.charge(j, map[string]int{"row": 7})
	if err := errors.Join(err, tx.Commit(b.Context())); err != nil {
		t.Fatal(err)
	}
	now := pgtest.Scan[time.Time](b, b.pool, "SELECT clock_timestamp()")
	got := b.want(q.Key, dedupe.Done, 1)
	switch {
	case !j.Joined():
		b.Error("the job was not joined")
	case string(got.Result) != `{"row":7}`:
		b.Errorf("result %q", got.Result)
	case now.Sub(got.Finished).Abs() > time.Minute, !got.Updated.Equal(got.Finished), !got.Expires.Equal(got.Finished.Add(time.Hour)), !got.LeaseUntil.IsZero():
		b.Errorf("times: %+v at %v", got, now)
	case got.ErrClass+got.FirstErr+got.LastErr != "":
		b.Errorf("a done record with an error: %+v", got)
	case got.Fence != j.Of.Fence || got.Attempt != 1 || got.Owner != q.Owner:
		b.Errorf("record %+v", got)
	}
}

func TestResults(t *testing.T) {
	b := newBusiness(t)
	db := stdlib.OpenDBFromPool(b.pool)
	t.Cleanup(func() { db.Close() })
	results := storetest.Results()
	results["largest"] = storetest.Result{Given: make([]byte, maxResult), Kept: make([]byte, maxResult)}
	for name, c := range results {
		for way, complete := range map[string]func(j *job) error{
			"CompleteTx": func(j *job) error {
				tx, err := b.charge(j, c.Given)
				return errors.Join(err, tx.Commit(t.Context()))
			},
			"CompleteSQL": func(j *job) error {
				tx, err := db.BeginTx(t.Context(), nil)
				return errors.Join(err, b.s.CompleteSQL(t.Context(), tx, j, c.Given), tx.Commit())
			},
			"Commit": func(j *job) error { return b.pay(j, c.Given, nil) },
		} {
			j := b.claim(name + way)
			if err := complete(j); err != nil {
				b.Fatal(err)
			}
			r := get(b, b.s, j.Of.Key)
			if (r.Result == nil) != (c.Kept == nil) || !bytes.Equal(r.Result, c.Kept) {
				b.Errorf("%s, %s: stored %.20q (nil: %v), want %.20q", way, name, r.Result, r.Result == nil, c.Kept)
			}
			if kept := r.Expires.Sub(r.Finished); kept != dedupe.DefaultRetention {
				b.Errorf("%s, %s: kept for %v, want %v", way, name, kept, dedupe.DefaultRetention)
			}
		}
	}
}

// TestCompleteTxRefusals: each tells what is wrong, writes nothing and, where there is a job, has
// joined it: a worker that went on alone would write done for effects that were rolled back.
func TestCompleteTxRefusals(t *testing.T) {
	b := newBusiness(t)
	db := stdlib.OpenDBFromPool(b.pool)
	t.Cleanup(func() { db.Close() })
	conn, err := b.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	sqlConn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer sqlConn.Close()
	released, err := b.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	released.Release()
	over := b.begin(pgx.ReadCommitted)
	if err := over.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	overSQL, err := db.BeginTx(t.Context(), nil)
	if err := errors.Join(err, overSQL.Commit()); err != nil {
		t.Fatal(err)
	}
	open := b.begin(pgx.ReadCommitted)
	l := claimOne(b, b.s, request("1"))
	for name, c := range map[string]struct {
		tx     Execer
		sql    SQLExecer
		lease  dedupe.Lease
		result any
		want   error
		text   string
	}{
		"nil":                        {lease: l, want: dedupe.ErrBadRequest, text: "tx is nil"},
		"a nil transaction":          {tx: (*pgxpool.Tx)(nil), lease: l, want: dedupe.ErrBadRequest, text: "tx is nil"},
		"a pool":                     {tx: b.pool, lease: l, want: dedupe.ErrBadRequest, text: "*pgxpool.Pool"},
		"a conn":                     {tx: conn.Conn(), lease: l, want: dedupe.ErrBadRequest, text: "in no transaction"},
		"a conn of the pool":         {tx: conn, lease: l, want: dedupe.ErrBadRequest, text: "in no transaction"},
		"a conn that was released":   {tx: released, lease: l, want: dedupe.ErrBadRequest, text: "holds no connection"},
		"a struct without its Tx":    {tx: struct{ pgx.Tx }{}, lease: l, want: dedupe.ErrBadRequest, text: "holds no connection"},
		"a transaction that is over": {tx: over, lease: l, text: "clos"},
		"a *sql.DB":                  {sql: db, lease: l, want: dedupe.ErrBadRequest, text: "*sql.DB"},
		"another package's DB":       {sql: houseDB{db}, lease: l, want: dedupe.ErrBadRequest, text: "pgstore.houseDB"},
		"a pointer to one":           {sql: &houseDB{db}, lease: l, want: dedupe.ErrBadRequest, text: "*pgstore.houseDB"},
		"another package's pool":     {tx: housePool{b.pool}, lease: l, want: dedupe.ErrBadRequest, text: "pgstore.housePool"},
		"another package's conn":     {tx: houseConn{conn.Conn()}, lease: l, want: dedupe.ErrBadRequest, text: "in no transaction"},
		"another package's sql conn": {sql: houseSQLConn{sqlConn}, lease: l, want: dedupe.ErrBadRequest, text: "in no transaction"},
		"a nil *sql.Tx":              {sql: (*sql.Tx)(nil), lease: l, want: dedupe.ErrBadRequest, text: "tx is nil"},
		"a nil *sql.Conn":            {sql: (*sql.Conn)(nil), lease: l, want: dedupe.ErrBadRequest, text: "tx is nil"},
		"a *sql.Conn":                {sql: sqlConn, lease: l, want: dedupe.ErrBadRequest, text: "in no transaction"},
		"a *sql.Tx that is over":     {sql: overSQL, lease: l, want: sql.ErrTxDone},
		"no store":                   {tx: open, lease: dedupe.Lease{Key: l.Key, Token: l.Token}, want: dedupe.ErrBadRequest, text: "not claimed in a store"},
		"a bad key":                  {tx: open, lease: dedupe.Lease{Key: dedupe.Key{Scope: "s", Key: "\x00"}, Token: l.Token, Fence: 1}, want: dedupe.ErrBadKey},
		"too large":                  {tx: open, lease: l, result: make([]byte, maxResult+1), want: dedupe.ErrResultSize},
		"not JSON":                   {tx: open, lease: l, result: func() {}, text: "JSON"},
	} {
		j := &job{Of: c.lease}
		call := "CompleteTx"
		var err error
		if c.sql != nil {
			call = "CompleteSQL"
			err = b.s.CompleteSQL(t.Context(), c.sql, j, c.result)
		} else {
			err = b.s.CompleteTx(t.Context(), c.tx, j, c.result)
		}
		if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), call) {
			t.Errorf("%s: %v; want %v with %q", name, err, c.want, c.text)
		}
		if c.lease.Fence != 0 && !j.Joined() {
			t.Errorf("%s: not joined", name)
		}
	}
	if err := b.s.CompleteTx(t.Context(), open, nil, nil); !errors.Is(err, dedupe.ErrBadRequest) {
		t.Errorf("no job: %v", err)
	}
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.want(l.Key, dedupe.Claimed, 0)
	// BEGIN makes the same connections good.
	if _, err := sqlConn.ExecContext(t.Context(), "BEGIN"); err != nil {
		t.Fatal(err)
	}
	if err := b.s.CompleteSQL(t.Context(), sqlConn, &job{Of: l}, nil); err != nil {
		t.Errorf("a *sql.Conn after BEGIN: %v", err)
	}
	if _, err := sqlConn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "BEGIN"); err != nil {
		t.Fatal(err)
	}
	if err := b.s.CompleteTx(t.Context(), conn.Conn(), &job{Of: l}, nil); err != nil {
		t.Errorf("a *pgx.Conn after BEGIN: %v", err)
	}
	if _, err := conn.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	b.want(l.Key, dedupe.Done, 0)
}

// What other packages have, sqlx.DB and bun.DB among them.
type (
	houseDB      struct{ *sql.DB }
	housePool    struct{ *pgxpool.Pool }
	houseConn    struct{ *pgx.Conn }
	houseSQLConn struct{ *sql.Conn }
)

// TestCompleteTxLost names the three causes.
func TestCompleteTxLost(t *testing.T) {
	b := newBusiness(t)
	late := &job{Of: claimOne(b, b.s, request("1"))}
	age(t, b.pool, b.s, late.Of.Key, time.Hour)
	now := claimOne(b, b.s, request("1"))
	tx, err := b.charge(late, "late")
	for _, cause := range []string{"claimed anew", "settled already", "not the worker's store", "roll back"} {
		if !errors.Is(err, dedupe.ErrLeaseLost) || !strings.Contains(err.Error(), cause) {
			b.Errorf("CompleteTx: %v, want ErrLeaseLost with %q", err, cause)
		}
	}
	tx.Rollback(t.Context())
	if r := b.want(now.Key, dedupe.Claimed, 0); r.Token != now.Token || r.Result != nil {
		b.Errorf("record %+v", r)
	}
}

// TestCompleteTxRepeated: a transaction that is tried again after a commit in doubt must not commit
// its effects twice.
func TestCompleteTxRepeated(t *testing.T) {
	b := newBusiness(t)
	j := &job{Of: claimOne(b, b.s, request("1"))}
	tx, err := b.charge(j, "first")
	if err := errors.Join(err, tx.Commit(t.Context())); err != nil {
		b.Fatal(err)
	}
	tx, err = b.charge(j, "second")
	if !errors.Is(err, dedupe.ErrLeaseLost) {
		b.Errorf("second CompleteTx: %v, want ErrLeaseLost", err)
	}
	tx.Rollback(t.Context())
	if r := b.want(j.Of.Key, dedupe.Done, 1); string(r.Result) != `"first"` {
		b.Errorf("result %q", r.Result)
	}
}

// TestCompleteTxSavepoint: a completion within a savepoint is undone with it, while the outer
// transaction's effects are committed. So a savepoint of pgx is refused, wherever it was begun; one
// that was made by SQL cannot be seen.
func TestCompleteTxSavepoint(t *testing.T) {
	b := newBusiness(t)
	l := claimOne(b, b.s, request("1"))
	tx := b.begin(pgx.ReadCommitted)
	inner, err := tx.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	innermost, err := inner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, sp := range []pgx.Tx{inner, innermost} {
		if err := b.s.CompleteTx(t.Context(), sp, &job{Of: l}, nil); !errors.Is(err, dedupe.ErrBadRequest) || !strings.Contains(err.Error(), "outermost") {
			t.Errorf("a savepoint of pgx: %v", err)
		}
	}
	other := claimOne(b, b.s, request("2"))
	err = b.s.Commit(t.Context(), &job{Of: other}, func(tx pgx.Tx) (any, error) {
		sp, err := tx.Begin(t.Context())
		if err != nil {
			return nil, err
		}
		return nil, b.s.CompleteTx(t.Context(), sp, &job{Of: l}, nil)
	})
	if !errors.Is(err, dedupe.ErrBadRequest) {
		t.Errorf("a savepoint within Commit: %v", err)
	}
	if err := inner.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SAVEPOINT mine"); err != nil {
		t.Fatal(err)
	}
	if err := b.s.CompleteTx(t.Context(), tx, &job{Of: l}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "ROLLBACK TO SAVEPOINT mine"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.want(l.Key, dedupe.Claimed, 0)
}

// TestCompleteTxIsolation: with its own snapshot a transaction must complete first, since a renewal
// after the snapshot changes the row.
func TestCompleteTxIsolation(t *testing.T) {
	b := newBusiness(t)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		renew := func(l dedupe.Lease) error {
			rs, err := b.s.Renew(t.Context(), []dedupe.Renewal{{Key: l.Key, Token: l.Token, TTL: time.Minute}})
			return errors.Join(err, rs[0].Err)
		}
		l := claimOne(b, b.s, request("late "+string(level)))
		tx := b.begin(level)
		if _, err := tx.Exec(t.Context(), "SELECT count(*) FROM ledger"); err != nil { // takes the snapshot
			t.Fatal(err)
		}
		if err := renew(l); err != nil {
			t.Fatal(err)
		}
		err := b.s.CompleteTx(t.Context(), tx, &job{Of: l}, nil)
		pe := (*pgconn.PgError)(nil)
		if !errors.As(err, &pe) || pe.Code != "40001" || !strings.Contains(err.Error(), "first statement") || errors.Is(err, dedupe.ErrLeaseLost) {
			t.Errorf("%s, after a renewal: %v; want 40001 and the rule", level, err)
		}
		if err := b.s.CompleteTx(t.Context(), tx, &job{Of: l}, nil); err == nil || !strings.Contains(err.Error(), "a statement before it has failed") {
			t.Errorf("%s, in the failed transaction: %v", level, err)
		}
		tx.Rollback(t.Context())

		tx = b.begin(level)
		if err := b.s.CompleteTx(t.Context(), tx, &job{Of: l}, nil); err != nil {
			t.Errorf("%s, as the first statement: %v", level, err)
		}
		if err := renew(l); !errors.Is(err, dedupe.ErrBusy) {
			t.Errorf("%s: a renewal beside it: %v, want ErrBusy", level, err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Errorf("%s: commit: %v", level, err)
		}
		b.want(l.Key, dedupe.Done, 0)
	}
}

// TestCompleteTxBusy: what the server gave up on can be tried again, and says so.
func TestCompleteTxBusy(t *testing.T) {
	b := newBusiness(t)
	l := claimOne(b, b.s, request("1"))
	tx := completing(t, b.s, b.pool, l)
	for _, setting := range []string{"lock_timeout", "statement_timeout"} {
		other := b.begin(pgx.ReadCommitted)
		if _, err := other.Exec(t.Context(), "SET LOCAL "+setting+" = '50ms'"); err != nil {
			t.Fatal(err)
		}
		err := b.s.CompleteTx(t.Context(), other, &job{Of: l}, nil)
		if pe := (*pgconn.PgError)(nil); !errors.Is(err, dedupe.ErrBusy) || !errors.As(err, &pe) || !strings.Contains(err.Error(), "roll back") {
			t.Errorf("%s: %v, want ErrBusy", setting, err)
		}
		other.Rollback(t.Context())
	}
	tx.Rollback(t.Context())

	// Two transactions that complete two jobs in opposite orders: one is sacrificed.
	m := claimOne(b, b.s, request("2"))
	one, two := completing(t, b.s, b.pool, l), completing(t, b.s, b.pool, m)
	first := make(chan error, 1)
	go func() { first <- b.s.CompleteTx(t.Context(), one, &job{Of: m}, nil) }()
	until(t, "the wait of the first", func() bool { return waiting(t, b.pool) == 1 })
	err := b.s.CompleteTx(t.Context(), two, &job{Of: l}, nil)
	if err != nil {
		two.Rollback(t.Context())
	}
	err2 := <-first
	if (err == nil) == (err2 == nil) || !errors.Is(errors.Join(err, err2), dedupe.ErrBusy) {
		t.Errorf("a deadlock: %v and %v; want one ErrBusy", err, err2)
	}
}

// TestCompleteTxElsewhere: a transaction whose search_path leads elsewhere completes the job in the
// table that Migrate has found. A store that was not migrated cannot know it, and gives a hint.
func TestCompleteTxElsewhere(t *testing.T) {
	b := newBusiness(t)
	l := claimOne(b, b.s, request("1"))
	exec(b, b.pool, "CREATE SCHEMA elsewhere")
	unmigrated := must.Get(New(b.pool, nil))
	for s, hint := range map[*Store]bool{unmigrated: true, b.s: false} {
		tx := b.begin(pgx.ReadCommitted)
		if _, err := tx.Exec(t.Context(), "SET LOCAL search_path = elsewhere"); err != nil {
			t.Fatal(err)
		}
		err := s.CompleteTx(t.Context(), tx, &job{Of: l}, nil)
		if (err != nil) != hint || hint && !strings.Contains(err.Error(), "search_path") {
			t.Errorf("CompleteTx: %v; want a hint: %v", err, hint)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
