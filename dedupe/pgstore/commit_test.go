package pgstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
)

// wrapped is a pool with methods of its own, as a user's may be.
type wrapped struct{ DB }

// onEachPool runs a test on a pool, and on one that is wrapped.
func onEachPool(t *testing.T, test func(b *business)) {
	for name, wrap := range map[string]func(DB) DB{
		"pool":    func(db DB) DB { return db },
		"wrapped": func(db DB) DB { return wrapped{db} },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBusiness(t)
			b.s = newStore(t, wrap(b.pool), "")
			t.Cleanup(func() { b.nothingIsOpen() })
			test(b)
		})
	}
}

// nothingIsOpen: all connections are back, and the server has no transaction of theirs.
func (b *business) nothingIsOpen() {
	b.Helper()
	ctx := context.WithoutCancel(b.Context()) // it runs when the test has ended, too
	until(b.T, "the end of all transactions", func() bool {
		var n int
		if b.pool.Stat().AcquiredConns() != 0 {
			return false
		}
		err := b.pool.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'").Scan(&n)
		return err == nil && n == 0
	})
}

// pay does a job's work in a Commit: a line in the ledger, and what more does.
func (b *business) pay(j dedupe.Owned, result any, more func(tx pgx.Tx) error) error {
	b.Helper()
	return b.s.Commit(b.Context(), j, func(tx pgx.Tx) (any, error) {
		if _, err := tx.Exec(b.Context(), "INSERT INTO ledger VALUES ('charged')"); err != nil {
			return nil, err
		}
		if more != nil {
			if err := more(tx); err != nil {
				return "not this one", err
			}
		}
		return result, nil
	})
}

func (b *business) claim(key string) *job {
	b.Helper()
	return &job{Of: claimOne(b, b.s, request(key))}
}

func TestCommit(t *testing.T) {
	onEachPool(t, func(b *business) {
		j := b.claim("1")
		j.Keep = time.Hour
		exec(b, b.pool, "UPDATE onceq_dedupe SET error_class = 'a', first_error = 'b', last_error = 'c', updated = updated - interval '1 hour'")
		err := b.pay(j, map[string]int{"row": 7}, func(pgx.Tx) error {
			if !j.Joined() {
				b.Error("the job is not joined while f runs")
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
		now := pgtest.Scan[time.Time](b, b.pool, "SELECT clock_timestamp()")
		got := b.want(j.Of.Key, dedupe.Done, 1)
		switch {
		case string(got.Result) != `{"row":7}`:
			b.Errorf("result %q", got.Result)
		case now.Sub(got.Finished).Abs() > time.Minute, !got.Updated.Equal(got.Finished), !got.Expires.Equal(got.Finished.Add(time.Hour)), !got.LeaseUntil.IsZero():
			b.Errorf("times: %+v at %v", got, now)
		case got.ErrClass+got.FirstErr+got.LastErr != "":
			b.Errorf("a done record with an error: %+v", got)
		}
		if err := b.pay(j, "second", nil); !errors.Is(err, dedupe.ErrLeaseLost) {
			b.Errorf("tried again after a commit in doubt: %v, want ErrLeaseLost", err)
		}
		if r := b.want(j.Of.Key, dedupe.Done, 1); string(r.Result) != `{"row":7}` {
			b.Errorf("result %q", r.Result)
		}
	})
}

// packets counts what a pool sends.
func packets(n *atomic.Int64) func(*pgxpool.Config) {
	return dialled(func(c net.Conn) net.Conn {
		return sender{c, func(p []byte) (int, error) { n.Add(1); return c.Write(p) }}
	})
}

type sender struct {
	net.Conn
	write func(p []byte) (int, error)
}

func (s sender) Write(p []byte) (int, error) { return s.write(p) }

func dialled(wrap func(net.Conn) net.Conn) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return wrap(conn), nil
		}
	}
}

// TestCommitSavesATrip: the completion goes out with the COMMIT, and nothing after them.
func TestCommitSavesATrip(t *testing.T) {
	b := newBusiness(t)
	var sent atomic.Int64
	pool := poolOn(t, b.pool.Config().ConnString(), packets(&sent), func(c *pgxpool.Config) { c.MaxConns = 1 })
	s := newStore(t, pool, "")
	insert := func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "INSERT INTO ledger VALUES ('charged')")
		return err
	}
	for i := range 3 {
		apart, together := b.claim(fmt.Sprint("a", i)), b.claim(fmt.Sprint("b", i))
		sent.Store(0)
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			return errors.Join(insert(tx), s.CompleteTx(t.Context(), tx, apart, nil))
		})
		n := sent.Swap(0)
		err2 := s.Commit(t.Context(), together, func(tx pgx.Tx) (any, error) { return nil, insert(tx) })
		m := sent.Load()
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		if i > 0 && (n != 4 || m != 3) { // the statements are prepared
			t.Errorf("CompleteTx took %d round trips and Commit %d, want 4 and 3", n, m)
		}
	}
}

func TestCommitModes(t *testing.T) {
	b := newBusiness(t)
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		s := newStore(t, poolOn(t, b.pool.Config().ConnString(), func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode }), "")
		j := b.claim(mode.String())
		for _, want := range []error{nil, dedupe.ErrLeaseLost, dedupe.ErrLeaseLost} {
			err := s.Commit(t.Context(), j, func(pgx.Tx) (any, error) { return []byte("\x00'\\"), nil })
			if !errors.Is(err, want) || want == nil && err != nil {
				t.Errorf("%v: %v, want %v", mode, err, want)
			}
		}
		if r := get(t, s, j.Of.Key); r.Status != dedupe.Done || string(r.Result) != "\x00'\\" {
			t.Errorf("%v: %+v", mode, r)
		}
	}
}

// TestCommitRefusals: what can be known before BEGIN is said before it, and where there is a job it
// is joined.
func TestCommitRefusals(t *testing.T) {
	onEachPool(t, func(b *business) {
		l := b.claim("1").Of
		over, cancel := context.WithCancel(b.Context())
		cancel()
		closed := newStore(b, b.s.db, "")
		closed.Close()
		runs := 0
		answer := func(result any) func(pgx.Tx) (any, error) {
			return func(tx pgx.Tx) (any, error) {
				runs++
				_, err := tx.Exec(b.Context(), "INSERT INTO ledger VALUES ('charged')")
				return result, err
			}
		}
		for name, c := range map[string]struct {
			ctx   context.Context
			s     *Store
			lease dedupe.Lease
			f     func(pgx.Tx) (any, error)
			runs  int
			want  error
			text  string
		}{
			"no f":      {lease: l, want: dedupe.ErrBadRequest, text: "f is nil"},
			"no store":  {lease: dedupe.Lease{Key: l.Key, Token: l.Token}, f: answer(nil), want: dedupe.ErrBadRequest, text: "not claimed in a store"},
			"a bad key": {lease: dedupe.Lease{Key: dedupe.Key{Scope: "s", Key: "\x00"}, Token: l.Token, Fence: 1}, f: answer(nil), want: dedupe.ErrBadKey},
			"closed":    {s: closed, lease: l, f: answer(nil), want: dedupe.ErrClosed},
			"too late":  {ctx: over, lease: l, f: answer(nil), want: context.Canceled},
			"too large": {lease: l, f: answer(make([]byte, maxResult+1)), runs: 1, want: dedupe.ErrResultSize, text: "rolled back"},
			"not JSON":  {lease: l, f: answer(func() {}), runs: 1, text: "JSON"},
		} {
			if c.ctx == nil {
				c.ctx = b.Context()
			}
			if c.s == nil {
				c.s = b.s
			}
			runs = 0
			j := &job{Of: c.lease}
			before := b.pool.Stat().AcquireCount()
			err := c.s.Commit(c.ctx, j, c.f)
			if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), "pgstore") {
				b.Errorf("%s: %v; want %v with %q", name, err, c.want, c.text)
			}
			if asked := b.pool.Stat().AcquireCount() - before; runs != c.runs || asked != int64(c.runs) {
				b.Errorf("%s: f has run %d times, with %d connections, want %d", name, runs, asked, c.runs)
			}
			if c.lease.Fence != 0 && !j.Joined() {
				b.Errorf("%s: not joined", name)
			}
		}
		for _, j := range []dedupe.Owned{nil, (*job)(nil)} {
			if err := b.s.Commit(b.Context(), j, answer(nil)); !errors.Is(err, dedupe.ErrBadRequest) {
				b.Errorf("no job: %v", err)
			}
		}
		b.want(l.Key, dedupe.Claimed, 0)
	})
}

// TestCommitLost: who has lost the key commits nothing, whatever the cause, and costs no
// connection.
func TestCommitLost(t *testing.T) {
	onEachPool(t, func(b *business) {
		lost := func(cause string, s *Store, j *job, want dedupe.Status) {
			b.Helper()
			conns := b.pool.Stat().NewConnsCount()
			b.s, s = s, b.s
			err := b.pay(j, "late", nil)
			b.s = s
			for _, part := range []string{"claimed anew", "settled already", "not the worker's store", "Commit: rolled back"} {
				if !errors.Is(err, dedupe.ErrLeaseLost) || !strings.Contains(err.Error(), part) {
					b.Errorf("%s: %v, want ErrLeaseLost with %q", cause, err, part)
				}
			}
			if r := b.want(j.Of.Key, want, 0); string(r.Result) == `"late"` {
				b.Errorf("%s: record %+v", cause, r)
			}
			if n := b.pool.Stat().NewConnsCount() - conns; n != 0 {
				b.Errorf("%s: cost %d connections", cause, n)
			}
		}
		late := b.claim("taken")
		age(b, b.pool, b.s, late.Of.Key, time.Hour)
		now := b.claim("taken")
		lost("claimed anew", b.s, late, dedupe.Claimed)
		if r := get(b, b.s, now.Of.Key); r.Token != now.Of.Token {
			b.Errorf("record %+v", r)
		}
		for _, to := range []dedupe.Status{dedupe.Done, dedupe.Failed, dedupe.Released} {
			j := b.claim(to.String())
			settleOne(b, b.s, j.Of, to)
			lost("settled as "+to.String(), b.s, j, to)
		}
		lost("elsewhere", newStore(b, b.s.db, newTable()), b.claim("elsewhere"), dedupe.Claimed)
		gone := b.claim("gone")
		exec(b, b.pool, "DELETE FROM onceq_dedupe WHERE key = 'gone'")
		if err := b.pay(gone, nil, nil); !errors.Is(err, dedupe.ErrLeaseLost) || b.lines() != 0 {
			b.Errorf("forgotten: %v, %d lines", err, b.lines())
		}

		// A dead lease that nobody took, and a parked claim's late word, are still its own.
		own := b.claim("dead")
		age(b, b.pool, b.s, own.Of.Key, time.Hour)
		parked := b.claim("parked")
		settleOne(b, b.s, parked.Of, dedupe.Parked)
		for n, j := range []*job{own, parked} {
			if err := b.pay(j, nil, nil); err != nil {
				b.Error(err)
			}
			b.want(j.Of.Key, dedupe.Done, n+1)
		}
	})
}

// TestCommitFunction: however f ends, the effect is there when the job is done, and only then.
func TestCommitFunction(t *testing.T) {
	refused := errors.New("no such account")
	run := func(sql string) func(b *business, tx pgx.Tx) error {
		return func(b *business, tx pgx.Tx) error {
			_, err := tx.Exec(b.Context(), sql)
			return err
		}
	}
	swallowed := func(f func(b *business, tx pgx.Tx) error) func(b *business, tx pgx.Tx) error {
		return func(b *business, tx pgx.Tx) error {
			_ = f(b, tx)
			return nil
		}
	}
	for name, c := range map[string]struct {
		more  func(b *business, tx pgx.Tx) error
		want  error
		text  string
		lines int
	}{
		"an error":                     {more: func(*business, pgx.Tx) error { return refused }, want: refused, text: "no such account"},
		"a failed query":               {more: run("SELECT 1/0"), text: "22012"},
		"a failed query that it hides": {more: swallowed(run("SELECT 1/0")), text: "a statement before it has failed"},
		"its commit":                   {more: func(b *business, tx pgx.Tx) error { return tx.Commit(b.Context()) }, want: errOwnCommit},
		"its commit, hidden":           {more: swallowed(func(b *business, tx pgx.Tx) error { return tx.Commit(b.Context()) }), want: errOwnCommit},
		"its rollback":                 {more: func(b *business, tx pgx.Tx) error { return tx.Rollback(b.Context()) }, want: errOwnRollback},
		"its rollback, and more": {more: func(b *business, tx pgx.Tx) error {
			return errors.Join(tx.Rollback(b.Context()), run("SELECT 1")(b, tx))
		}, want: pgx.ErrTxClosed},
		"a deferred rollback":    {more: func(b *business, tx pgx.Tx) error { defer tx.Rollback(b.Context()); return refused }, want: refused},
		"a COMMIT":               {more: run("COMMIT"), want: errOwnEnd, lines: 1},
		"a COMMIT, and an error": {more: func(b *business, tx pgx.Tx) error { return errors.Join(run("COMMIT")(b, tx), refused) }, want: refused, lines: 1},
		"a ROLLBACK":             {more: run("ROLLBACK"), want: errOwnEnd},
		"rows that are left open": {more: func(b *business, tx pgx.Tx) error {
			_, err := tx.Query(b.Context(), "SELECT generate_series(1, 1000)")
			return err
		}, want: dedupe.ErrBadRequest, text: "rolled back: "},
		"a connection that it loses, and hides": {
			more: swallowed(run("SELECT pg_terminate_backend(pg_backend_pid())")), want: pgconn.ErrConnClosed, text: "rolled back: the connection was lost",
		},
		"a deadline that it has overrun": {more: run("SET LOCAL statement_timeout = '20ms'; SELECT pg_sleep(60)"), text: "57014"},
	} {
		t.Run(name, func(t *testing.T) {
			onEachPool(t, func(b *business) {
				j := b.claim("1")
				err := b.pay(j, nil, func(tx pgx.Tx) error { return c.more(b, tx) })
				if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
					b.Errorf("%v; want %v with %q", err, c.want, c.text)
				}
				if c.want == refused && c.text != "" && err != refused {
					b.Errorf("%#v is not f's error as it is", err)
				}
				b.want(j.Of.Key, dedupe.Claimed, c.lines)
				b.nothingIsOpen()
				if err := b.pay(j, nil, nil); err != nil {
					b.Errorf("tried again: %v", err)
				}
				b.want(j.Of.Key, dedupe.Done, c.lines+1)
			})
		})
	}
}
