package pgstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/pgkit"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
)

// TestCommitPanics: a panic goes on, Goexit too, and neither keeps the connection.
func TestCommitPanics(t *testing.T) {
	onEachPool(t, func(b *business) {
		j := b.claim("1")
		for name, end := range map[string]func(){"panic": func() { panic("broken") }, "Goexit": runtime.Goexit} {
			var left pgx.Tx
			returned := make(chan any, 1)
			go func() {
				answer := any("it went on")
				defer func() {
					if v := recover(); v != nil {
						answer = v
					}
					returned <- answer
				}()
				answer = "gone"
				b.pay(j, nil, func(tx pgx.Tx) error {
					left = tx
					end()
					return nil
				})
				answer = "it went on"
			}()
			if got, want := <-returned, map[string]any{"panic": "broken", "Goexit": "gone"}[name]; got != want {
				b.Errorf("%s: %v, want %v", name, got, want)
			}
			if _, err := left.Exec(b.Context(), "SELECT 1"); !errors.Is(err, pgx.ErrTxClosed) {
				b.Errorf("%s: the transaction that is left: %v, want ErrTxClosed", name, err)
			}
			b.want(j.Of.Key, dedupe.Claimed, 0)
			b.nothingIsOpen()
		}
	})
}

// TestCommitLeavesNoTx: what f has left behind cannot write on the next user's connection.
func TestCommitLeavesNoTx(t *testing.T) {
	b := newBusiness(t)
	var left []pgx.Tx
	commit := func(f func(tx pgx.Tx) (any, error)) {
		t.Helper()
		b.s.Commit(t.Context(), b.claim(fmt.Sprint(len(left))), func(tx pgx.Tx) (any, error) {
			inner, err := tx.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			left = append(left, tx, inner)
			return f(tx)
		})
	}
	commit(func(pgx.Tx) (any, error) { return nil, nil })
	commit(func(pgx.Tx) (any, error) { return nil, errors.New("refused") })
	commit(func(pgx.Tx) (any, error) { return func() {}, nil })
	commit(func(tx pgx.Tx) (any, error) { return nil, tx.Rollback(t.Context()) })
	ctx := t.Context()
	for i, tx := range left {
		for name, call := range map[string]func() error{
			"Begin":    func() error { _, err := tx.Begin(ctx); return err },
			"Commit":   func() error { return tx.Commit(ctx) },
			"Rollback": func() error { return tx.Rollback(ctx) },
			"Exec":     func() error { _, err := tx.Exec(ctx, "INSERT INTO ledger VALUES ('late')"); return err },
			"Prepare":  func() error { _, err := tx.Prepare(ctx, "late", "SELECT 1"); return err },
			"QueryRow": func() error { return tx.QueryRow(ctx, "SELECT 1").Scan(nil) },
			"Query": func() error {
				rows, err := tx.Query(ctx, "SELECT 1")
				if rows.Next() || !errors.Is(rows.Err(), err) {
					t.Error("Query answers rows")
				}
				return err
			},
			"CopyFrom": func() error {
				_, err := tx.CopyFrom(ctx, pgx.Identifier{"ledger"}, []string{"line"}, pgx.CopyFromRows([][]any{{"late"}}))
				return err
			},
			"SendBatch": func() error {
				var q pgx.Batch
				q.Queue("INSERT INTO ledger VALUES ('late')")
				return tx.SendBatch(ctx, &q).Close()
			},
		} {
			if err := call(); !errors.Is(err, pgx.ErrTxClosed) {
				t.Errorf("%s of transaction %d: %v, want ErrTxClosed", name, i, err)
			}
		}
	}
	if n := b.lines(); n != 0 {
		t.Errorf("%d lines", n)
	}
}

// TestCommitGate: until then it is a transaction like any other.
func TestCommitGate(t *testing.T) {
	onEachPool(t, func(b *business) {
		ctx := b.Context()
		j := b.claim("1")
		err := b.s.Commit(ctx, j, func(tx pgx.Tx) (any, error) {
			var q pgx.Batch
			q.Queue("INSERT INTO ledger VALUES ('batch')")
			_, copied := tx.CopyFrom(ctx, pgx.Identifier{"ledger"}, []string{"line"}, pgx.CopyFromRows([][]any{{"copy"}}))
			_, prepared := tx.Prepare(ctx, "charge", "INSERT INTO ledger VALUES ($1)")
			_, executed := tx.Exec(ctx, "charge", "prepared")
			objects := tx.LargeObjects()
			_, object := objects.Create(ctx, 0)
			if err := errors.Join(tx.SendBatch(ctx, &q).Close(), copied, prepared, executed, object); err != nil {
				return nil, err
			}
			for _, keep := range []bool{true, false} {
				point, err := tx.Begin(ctx)
				if err != nil {
					return nil, err
				}
				_, err = point.Exec(ctx, "INSERT INTO ledger VALUES ($1)", fmt.Sprint("savepoint ", keep))
				if keep {
					err = errors.Join(err, point.Commit(ctx))
				} else {
					err = errors.Join(err, point.Rollback(ctx))
				}
				if err != nil {
					return nil, err
				}
			}
			open, err := tx.Begin(ctx)
			if err != nil {
				return nil, err
			}
			if _, err := open.Exec(ctx, "INSERT INTO ledger VALUES ('savepoint left open')"); err != nil {
				return nil, err
			}
			rows, err := tx.Query(ctx, "SELECT line FROM ledger")
			if err != nil {
				return nil, err
			}
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				return nil, err
			}
			var n int
			return lines, tx.QueryRow(ctx, "SELECT count(*) FROM ledger").Scan(&n)
		})
		if err != nil {
			b.Fatal(err)
		}
		if got, want := string(b.want(j.Of.Key, dedupe.Done, 5).Result), `["copy","prepared","batch","savepoint true","savepoint left open"]`; got != want {
			b.Errorf("result %s, want %s", got, want)
		}
	})
}

// TestCommitCancelled: ctx may end in f, or while the completion waits; both is rolled back, and
// the second is not known.
func TestCommitCancelled(t *testing.T) {
	onEachPool(t, func(b *business) {
		j := b.claim("1")
		ctx, cancel := context.WithCancel(b.Context())
		err := b.s.Commit(ctx, j, func(tx pgx.Tx) (any, error) {
			_, err := tx.Exec(ctx, "INSERT INTO ledger VALUES ('charged')")
			cancel()
			return nil, err
		})
		if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "Commit: rolled back") {
			b.Errorf("cancelled in f: %v", err)
		}
		b.nothingIsOpen()
		b.want(j.Of.Key, dedupe.Claimed, 0)

		ctx, cancel = context.WithCancel(b.Context())
		blocker := completing(b.T, b.s, b.pool, j.Of)
		result := make(chan error, 1)
		go func() {
			result <- b.s.Commit(ctx, j, func(tx pgx.Tx) (any, error) {
				_, err := tx.Exec(ctx, "INSERT INTO ledger VALUES ('charged')")
				return nil, err
			})
		}()
		until(b.T, "the wait of the completion", func() bool { return waiting(b.T, b.pool) == 1 })
		cancel()
		err = <-result
		_, together := b.s.db.(*pgxpool.Pool)
		if open := strings.Contains(err.Error(), "may be committed"); !errors.Is(err, context.Canceled) || errors.Is(err, dedupe.ErrLeaseLost) || open != together {
			b.Errorf("cancelled while it waits: %v", err)
		}
		until(b.T, "the end of the wait on the server", func() bool { return waiting(b.T, b.pool) == 0 }) // else it may be committed
		blocker.Rollback(b.Context())
		b.nothingIsOpen()
		b.want(j.Of.Key, dedupe.Claimed, 0)
	})
}

// wire is a pool's connections, of which one breaks when it sends the COMMIT.
type wire struct {
	// breaks is called in the connection's stead.
	breaks atomic.Pointer[func(send func() error)]
}

func (w *wire) wrap(c net.Conn) net.Conn { return &link{Conn: c, w: w} }

type link struct {
	net.Conn
	w *wire
	// broken connections bring no answer, also not to who reads while the call to Write goes on, as
	// pgx does.
	broken atomic.Bool
}

func (l *link) Write(p []byte) (int, error) {
	breaks := l.w.breaks.Load()
	if breaks == nil || !isCommit(p) || !l.w.breaks.CompareAndSwap(breaks, nil) {
		return l.Conn.Write(p)
	}
	l.broken.Store(true)
	(*breaks)(func() error { _, err := l.Conn.Write(p); return err })
	l.Close()
	return len(p), nil
}

func (l *link) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if l.broken.Load() {
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// isCommit knows the packet: a simple COMMIT, alone or after the completion, or both prepared.
func isCommit(p []byte) bool {
	return p[0] == 'Q' && strings.Contains(strings.ToLower(string(p)), "commit") || p[0] == 'B' && strings.Count(string(p), "E\x00\x00\x00") > 1
}

// TestCommitLostReply: the network ends before the COMMIT arrives, or before its answer does.
// Nobody knows which, and to try again is right: what was committed is committed once.
func TestCommitLostReply(t *testing.T) {
	for name, c := range map[string]struct {
		wrap func(DB) DB
		mode pgx.QueryExecMode
	}{
		"pool":                      {func(db DB) DB { return db }, pgx.QueryExecModeCacheStatement},
		"pool, the simple protocol": {func(db DB) DB { return db }, pgx.QueryExecModeSimpleProtocol},
		"wrapped":                   {func(db DB) DB { return wrapped{db} }, pgx.QueryExecModeCacheStatement},
	} {
		for _, arrives := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, it arrives: %v", name, arrives), func(t *testing.T) {
				b := newBusiness(t)
				w := new(wire)
				b.s = newStore(t, c.wrap(poolOn(t, b.pool.Config().ConnString(), dialled(w.wrap), func(pc *pgxpool.Config) {
					pc.MaxConns, pc.ConnConfig.DefaultQueryExecMode = 1, c.mode
				})), "")
				if err := b.pay(b.claim("0"), nil, nil); err != nil { // prepares the statements
					t.Fatal(err)
				}
				j := b.claim("1")
				cut := func(send func() error) {
					if !arrives {
						return
					}
					if err := send(); err != nil {
						t.Error(err)
					}
					until(t, "the commit on the server", func() bool { return b.lines() == 2 })
				}
				w.breaks.Store(&cut)
				err := b.pay(j, "first", nil)
				if w.breaks.Load() != nil {
					t.Fatal("no COMMIT was seen")
				}
				if err == nil || !strings.Contains(err.Error(), "may be committed") || errors.Is(err, dedupe.ErrLeaseLost) || errors.Is(err, dedupe.ErrBusy) {
					t.Errorf("the first Commit: %v, want that it is open", err)
				}
				b.nothingIsOpen()
				if err := b.pay(j, "second", nil); arrives && !errors.Is(err, dedupe.ErrLeaseLost) || !arrives && err != nil {
					t.Errorf("the second Commit: %v", err)
				}
				want := map[bool]string{true: `"first"`, false: `"second"`}[arrives]
				if r := b.want(j.Of.Key, dedupe.Done, 2); string(r.Result) != want {
					t.Errorf("result %s, want %s", r.Result, want)
				}
			})
		}
	}
}

// TestCommitKilled: the server's process dies between f and COMMIT, and where the completion waits
// for another.
func TestCommitKilled(t *testing.T) {
	onEachPool(t, func(b *business) {
		j := b.claim("1")
		err := b.pay(j, nil, func(tx pgx.Tx) error {
			var pid int
			err := tx.QueryRow(b.Context(), "SELECT pg_backend_pid()").Scan(&pid)
			terminate(b.T, b.pool, pid)
			return err
		})
		if err == nil || errors.Is(err, dedupe.ErrLeaseLost) || errors.Is(err, dedupe.ErrBusy) {
			b.Errorf("killed before COMMIT: %v", err)
		}
		blocker := completing(b.T, b.s, b.pool, j.Of)
		result := make(chan error, 1)
		go func() { result <- b.pay(j, nil, nil) }()
		until(b.T, "the wait of the completion", func() bool { return waiting(b.T, b.pool) == 1 })
		exec(b, b.pool, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
		err = <-result
		_, together := b.s.db.(*pgxpool.Pool) // a pooler may say the same after the COMMIT
		if open := strings.Contains(err.Error(), "may be committed"); open != together || errors.Is(err, dedupe.ErrLeaseLost) || errors.Is(err, dedupe.ErrBusy) {
			b.Errorf("killed in the completion: %v", err)
		}
		blocker.Rollback(b.Context())
		b.nothingIsOpen()
		b.want(j.Of.Key, dedupe.Claimed, 0)
	})
}

// TestCommitAnswered: the network ends after the answer to COMMIT, and before the server is ready
// for more.
func TestCommitAnswered(t *testing.T) {
	b := newBusiness(t)
	cut := new(atomic.Bool)
	pool := poolOn(t, b.pool.Config().ConnString(), dialled(func(c net.Conn) net.Conn { return receiver{c, cut} }), func(c *pgxpool.Config) { c.MaxConns = 1 })
	b.s = newStore(t, pool, "")
	for i := range 3 {
		j := b.claim(fmt.Sprint(i))
		cut.Store(i > 0) // the first prepares the statements
		if err := b.pay(j, nil, nil); err != nil {
			t.Errorf("committed, and answered: %v", err)
		}
		b.want(j.Of.Key, dedupe.Done, i+1)
	}
	if n := pool.Stat().NewConnsCount(); n != 3 {
		t.Errorf("%d connections, want 3: none was cut off", n)
	}
}

// receiver ends after an answer to COMMIT.
type receiver struct {
	net.Conn
	cut *atomic.Bool
}

func (r receiver) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	const ready = "Z\x00\x00\x00\x05I"
	if at := strings.Index(string(p[:n]), "COMMIT\x00"+ready); at >= 0 && r.cut.CompareAndSwap(true, false) {
		r.Close()
		n = at + len("COMMIT\x00")
	}
	return n, err
}

// TestCommitNoBegin: a connection on which no transaction can begin is not kept.
func TestCommitNoBegin(t *testing.T) {
	b := newBusiness(t)
	pool := poolOn(t, b.pool.Config().ConnString(), func(c *pgxpool.Config) { c.MaxConns = 1 })
	s := newStore(t, pool, "")
	j := b.claim("1")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	commit := func() error { return s.Commit(ctx, j, func(pgx.Tx) (any, error) { return nil, nil }) }
	terminate(t, b.pool, pgtest.Scan[int](t, pool, "SELECT pg_backend_pid()"))
	if err := commit(); err == nil || !strings.Contains(err.Error(), "nothing was begun") {
		t.Errorf("Commit on a dead connection: %v", err)
	}
	if err := commit(); err != nil {
		t.Errorf("and again: %v", err)
	}
}

// TestCommitConstraints: what a deferred constraint or trigger says at COMMIT, or a trigger of the
// store's table, is the user's error and no lost lease, whatever its code.
func TestCommitConstraints(t *testing.T) {
	onEachPool(t, func(b *business) {
		exec(b, b.pool, `ALTER TABLE ledger ADD UNIQUE (line) DEFERRABLE INITIALLY DEFERRED;
			CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'the books are closed' USING ERRCODE = '22P02'; END $$;
			CREATE CONSTRAINT TRIGGER late AFTER INSERT ON ledger DEFERRABLE INITIALLY DEFERRED
				FOR EACH ROW WHEN (NEW.line = 'another') EXECUTE FUNCTION refuse();
			CREATE TRIGGER own BEFORE UPDATE ON onceq_dedupe FOR EACH ROW WHEN (NEW.key = 'own trigger') EXECUTE FUNCTION refuse()`)
		for name, line := range map[string]string{"unique": "charged", "trigger": "another", "own trigger": "a third one"} {
			j := b.claim(name)
			conns := b.pool.Stat().NewConnsCount()
			err := b.pay(j, nil, func(tx pgx.Tx) error {
				_, err := tx.Exec(b.Context(), "INSERT INTO ledger VALUES ($1)", line)
				return err
			})
			code := notAnInteger
			if name == "unique" {
				code = "23505"
			}
			if pgkit.State(err) != code || errors.Is(err, dedupe.ErrLeaseLost) || errors.Is(err, dedupe.ErrBusy) || !strings.Contains(err.Error(), "Commit: rolled back") {
				b.Errorf("%s: %v; want SQLSTATE %s, rolled back", name, err, code)
			}
			b.want(j.Of.Key, dedupe.Claimed, 0)
			if n := b.pool.Stat().NewConnsCount() - conns; n != 0 {
				b.Errorf("%s: cost %d connections", name, n)
			}
		}
	})
}

// TestCommitBusy: what the server gave up on can be tried again, says so, and costs no connection.
func TestCommitBusy(t *testing.T) {
	onEachPool(t, func(b *business) {
		j := b.claim("1")
		set := func(setting string) func(tx pgx.Tx) error {
			return func(tx pgx.Tx) error {
				_, err := tx.Exec(b.Context(), "SET LOCAL "+setting)
				return err
			}
		}
		busy := func(name string, err error) {
			b.Helper()
			if pe := (*pgconn.PgError)(nil); !errors.Is(err, dedupe.ErrBusy) || !errors.As(err, &pe) || !strings.Contains(err.Error(), "Commit: rolled back; try") {
				b.Errorf("%s: %v, want ErrBusy", name, err)
			}
		}
		blocker := completing(b.T, b.s, b.pool, j.Of)
		conns := b.pool.Stat().NewConnsCount()
		busy("lock_timeout", b.pay(j, nil, set("lock_timeout = '50ms'")))
		busy("statement_timeout", b.pay(j, nil, set("statement_timeout = '50ms'")))
		if n := b.pool.Stat().NewConnsCount() - conns; n > 1 { // beside the blocker's
			b.Errorf("it cost %d connections", n)
		}
		blocker.Rollback(b.Context())

		// Two that have done the work of both, in opposite orders: one is sacrificed.
		k := b.claim("2")
		var met sync.WaitGroup
		met.Add(2)
		both := func(mine *job, other string) error {
			return b.pay(mine, nil, func(tx pgx.Tx) error {
				_, err := tx.Exec(b.Context(), "SELECT FROM onceq_dedupe WHERE key = $1 FOR UPDATE", other)
				met.Done()
				met.Wait()
				return err
			})
		}
		var errs [2]error
		var wg sync.WaitGroup
		wg.Go(func() { errs[0] = both(j, "2") })
		wg.Go(func() { errs[1] = both(k, "1") })
		wg.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			b.Errorf("a deadlock: %v and %v; want one error", errs[0], errs[1])
		}
		busy("deadlock", errors.Join(errs[0], errs[1]))
		if n := b.lines(); n != 1 {
			b.Errorf("%d lines", n)
		}
	})
}

// TestCommitIsolation: it takes the default; a renewal within the transaction is then a conflict,
// and says so.
func TestCommitIsolation(t *testing.T) {
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		b := newBusiness(t)
		b.s = newStore(t, poolOn(t, b.pool.Config().ConnString(), func(c *pgxpool.Config) {
			c.ConnConfig.RuntimeParams["default_transaction_isolation"] = string(level)
		}), "")
		j := b.claim("1")
		renew := func(pgx.Tx) error {
			rs, err := b.s.Renew(t.Context(), []dedupe.Renewal{{Key: j.Of.Key, Token: j.Of.Token, TTL: time.Hour}})
			return errors.Join(err, rs[0].Err)
		}
		err := b.pay(j, nil, renew)
		if level == pgx.ReadCommitted {
			if err != nil {
				t.Errorf("%s: %v", level, err)
			}
			continue
		}
		if pgkit.State(err) != pgkit.SerializationFailure || !errors.Is(err, dedupe.ErrBusy) || !strings.Contains(err.Error(), "renewed") {
			t.Errorf("%s, with a renewal: %v", level, err)
		}
		b.want(j.Of.Key, dedupe.Claimed, 0)
		if err := b.pay(j, nil, nil); err != nil {
			t.Errorf("%s, without: %v", level, err)
		}
		b.want(j.Of.Key, dedupe.Done, 1)
	}
}

// TestCommitRaces: whoever tries at the same time, one transaction is committed: that of the claim
// that is the key's.
func TestCommitRaces(t *testing.T) {
	onEachPool(t, func(b *business) {
		for round := range 20 {
			old := b.claim(fmt.Sprint(round))
			js := []*job{old, old, old}
			if round%2 == 0 { // it is taken over meanwhile, by one that commits, too
				age(b, b.pool, b.s, old.Of.Key, time.Hour)
				js = append(js, nil)
			}
			var won atomic.Int64
			var wg sync.WaitGroup
			for _, j := range js {
				wg.Go(func() {
					if j == nil {
						cs, err := b.s.Claim(b.Context(), []dedupe.ClaimRequest{request(fmt.Sprint(round))})
						if err != nil || cs[0].Outcome != dedupe.Won {
							return
						}
						j = &job{Of: cs[0].Lease}
					}
					switch err := b.pay(j, nil, nil); {
					case err == nil:
						won.Add(1)
					case !errors.Is(err, dedupe.ErrLeaseLost):
						b.Error(err)
					}
				})
			}
			wg.Wait()
			if won.Load() != 1 {
				b.Errorf("round %d: %d have committed", round, won.Load())
			}
			b.want(old.Of.Key, dedupe.Done, round+1)
		}
	})
}
