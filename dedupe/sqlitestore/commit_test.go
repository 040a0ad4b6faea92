package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// charged is what a handler gives to Commit: a line in the ledger, and a result.
func charged(b *business, result any, err error) func(*sql.Tx) (any, error) {
	return func(tx *sql.Tx) (any, error) {
		if _, err := tx.ExecContext(b.Context(), "INSERT INTO ledger (line) VALUES ('charged')"); err != nil {
			b.Fatal(err)
		}
		return result, err
	}
}

// TestCommit: f's effects and the job's completion are there together, with the result, and the
// completion counts from the end of f.
func TestCommit(t *testing.T) {
	inBusiness(t, func(b *business) {
		q := request("1")
		j := &job{Of: claim(b, b.s, q), Keep: time.Hour}
		err := b.s.Commit(b.Context(), j, func(tx *sql.Tx) (any, error) {
			<-time.After(2 * time.Second)
			return charged(b, map[string]int{"row": 7}, nil)(tx)
		})
		if err != nil {
			b.Fatal(err)
		}
		r := b.want(q.Key, dedupe.Done, 1)
		if string(r.Result) != `{"row":7}` || !r.Finished.Equal(time.Now()) || !r.Expires.Equal(time.Now().Add(time.Hour)) || !j.Joined() {
			b.Errorf("joined %t, the record is %+v", j.Joined(), r)
		}
		if err := b.s.Commit(b.Context(), j, charged(b, nil, nil)); !errors.Is(err, dedupe.ErrLeaseLost) {
			b.Errorf("a second Commit: %v", err)
		}
		b.want(q.Key, dedupe.Done, 1)
	})
}

// TestCommitUndone: whatever fails, all of it is undone, and the job is still claimed.
func TestCommitUndone(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		f    func(b *business) func(*sql.Tx) (any, error)
		want error
	}{
		"error":    {func(b *business) func(*sql.Tx) (any, error) { return charged(b, nil, boom) }, boom},
		"too long": {func(b *business) func(*sql.Tx) (any, error) { return charged(b, make([]byte, maxResult+1), nil) }, dedupe.ErrResultSize},
		"rolled back": {func(b *business) func(*sql.Tx) (any, error) {
			return func(tx *sql.Tx) (any, error) {
				_, err := charged(b, nil, nil)(tx)
				return nil, errors.Join(err, tx.Rollback())
			}
		}, sql.ErrTxDone},
		"savepoint": {func(b *business) func(*sql.Tx) (any, error) {
			return func(tx *sql.Tx) (any, error) {
				for _, q := range []string{"SAVEPOINT mine", "INSERT INTO ledger (line) VALUES ('charged')", "ROLLBACK TO mine"} {
					if _, err := tx.Exec(q); err != nil {
						b.Error(err)
					}
				}
				return nil, boom
			}
		}, boom},
	} {
		t.Run(name, func(t *testing.T) {
			inBusiness(t, func(b *business) {
				q := request("1")
				err := b.s.Commit(b.Context(), &job{Of: claim(b, b.s, q)}, c.f(b))
				if !errors.Is(err, c.want) || c.want == boom && err != boom {
					b.Errorf("answered %v, want %v", err, c.want)
				}
				b.want(q.Key, dedupe.Claimed, 0)
			})
		})
	}
}

// TestCommitCommittedByF: f has committed the transaction itself. The completion was in it, so the
// effect is there once, and the job is not run again.
func TestCommitCommittedByF(t *testing.T) {
	inBusiness(t, func(b *business) {
		q := request("1")
		err := b.s.Commit(b.Context(), &job{Of: claim(b, b.s, q)}, func(tx *sql.Tx) (any, error) {
			_, err := charged(b, nil, nil)(tx)
			return "result", errors.Join(err, tx.Commit())
		})
		if !errors.Is(err, sql.ErrTxDone) {
			b.Errorf("answered %v", err)
		}
		b.want(q.Key, dedupe.Done, 1)
	})
}

// TestCommitRefused: f does not run, and nothing is written.
func TestCommitRefused(t *testing.T) {
	inBusiness(t, func(b *business) {
		never := func(*sql.Tx) (any, error) {
			b.Error("f has run")
			return nil, nil
		}
		q := request("1")
		lease := claim(b, b.s, q)
		stranger := lease
		stranger.Token[0]++
		ended, cancel := context.WithCancel(b.Context())
		cancel()
		for name, c := range map[string]struct {
			ctx  context.Context
			job  dedupe.Owned
			f    func(*sql.Tx) (any, error)
			want error
		}{
			"another claim": {b.Context(), &job{Of: stranger}, never, dedupe.ErrLeaseLost},
			"no claim":      {b.Context(), &job{}, never, dedupe.ErrBadRequest},
			"no job":        {b.Context(), (*job)(nil), never, dedupe.ErrBadRequest},
			"no f":          {b.Context(), &job{Of: lease}, nil, dedupe.ErrBadRequest},
			"ended":         {ended, &job{Of: lease}, never, context.Canceled},
		} {
			if err := b.s.Commit(c.ctx, c.job, c.f); !errors.Is(err, c.want) {
				b.Errorf("%s: %v, want %v", name, err, c.want)
			}
		}
		if err := b.s.Write(b.Context(), nil); !errors.Is(err, dedupe.ErrBadRequest) {
			b.Errorf("Write without f: %v", err)
		}
		tx, err := b.db.BeginTx(b.Context(), nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := b.s.Commit(b.Context(), &job{Of: lease}, never); !errors.Is(err, dedupe.ErrBusy) || !strings.Contains(err.Error(), "nothing was written") {
			b.Errorf("beside another transaction: %v", err)
		}
		if err := tx.Rollback(); err != nil {
			b.Fatal(err)
		}
		b.want(q.Key, dedupe.Claimed, 0)
		b.s.Close()
		if err := b.s.Commit(b.Context(), &job{Of: lease}, never); !errors.Is(err, dedupe.ErrClosed) {
			b.Errorf("of a closed store: %v", err)
		}
	})
}

// TestManyTurns: transactions of the user's and calls of the store share the file without an error,
// many more at once than SQLite's busy handler would let through.
func TestManyTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db := newStore(t, tempFile(t), nil)
		if _, err := db.Exec("CREATE TABLE ledger (line TEXT NOT NULL)"); err != nil {
			t.Fatal(err)
		}
		b := &business{T: t, s: s, db: db}
		var wg sync.WaitGroup
		const jobs = 40
		for i := range jobs {
			wg.Go(func() {
				q := request(strings.Repeat("k", i+1))
				if err := s.Commit(t.Context(), &job{Of: claim(t, s, q)}, charged(b, nil, nil)); err != nil {
					t.Error(err)
				}
				if err := s.Write(t.Context(), func(tx *sql.Tx) error {
					<-time.After(5 * time.Millisecond)
					_, err := charged(b, nil, nil)(tx)
					return err
				}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := len(ledger(t, db)); n != 2*jobs {
			t.Errorf("%d lines in the ledger, want %d", n, 2*jobs)
		}
	})
}
