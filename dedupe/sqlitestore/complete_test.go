package sqlitestore

import (
	"bytes"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/must"
)

// business is a user's file: records and a ledger.
type business struct {
	*testing.T
	s    *Store
	db   *sql.DB
	path string
}

// inBusiness runs f on a fresh file in virtual time.
func inBusiness(t *testing.T, f func(*business)) {
	synctest.Test(t, func(t *testing.T) {
		path := tempFile(t)
		s, db := newStore(t, path, nil)
		b := &business{T: t, s: s, db: db, path: path}
		b.exec("CREATE TABLE ledger (line TEXT NOT NULL)")
		f(b)
	})
}

func (b *business) exec(q string, args ...any) {
	b.Helper()
	if _, err := b.db.ExecContext(b.Context(), q, args...); err != nil {
		b.Fatal(err)
	}
}

// charge does a job's work in a transaction: a line in the ledger and the completion.
func (b *business) charge(j *job, result any) (*sql.Tx, error) {
	b.Helper()
	tx, err := b.db.BeginTx(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := tx.ExecContext(b.Context(), "INSERT INTO ledger (line) VALUES ('charged')"); err != nil {
		b.Fatal(err)
	}
	return tx, b.s.CompleteTx(b.Context(), tx, j, result)
}

func (b *business) want(k dedupe.Key, st dedupe.Status, lines int) *dedupe.Record {
	b.Helper()
	r := get(b, b.s, k)
	if n := len(ledger(b, b.db)); r.Status != st || n != lines {
		b.Errorf("the record is %v with %d lines in the ledger, want %v with %d", r.Status, n, st, lines)
	}
	return r
}

// joinedSettle asks, as the worker does after a handler that has joined.
func (b *business) joinedSettle(l dedupe.Lease) dedupe.Status {
	b.Helper()
	as, err := b.s.Settle(b.Context(), []dedupe.Settlement{{Key: l.Key, Token: l.Token, To: dedupe.Done, Joined: true}})
	if err := errors.Join(err, as[0].Err); err != nil {
		b.Fatal(err)
	}
	return as[0].Status
}

func TestCompleteTxCommit(t *testing.T) {
	inBusiness(t, func(b *business) {
		q := request("1")
		j := &job{Of: claim(b, b.s, q), Keep: time.Hour}
		b.exec("UPDATE onceq_dedupe SET error_class = 'a', first_error = 'b', last_error = 'c'")
		<-time.After(time.Second)
		tx, err := b.charge(j, map[string]int{"row": 7})
		if err != nil {
			t.Fatal(err)
		}
		if !j.Joined() {
			b.Error("the job was not joined")
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		got := b.want(q.Key, dedupe.Done, 1)
		switch {
		case string(got.Result) != `{"row":7}`:
			b.Errorf("result %q", got.Result)
		case !got.Finished.Equal(now), !got.Updated.Equal(now), !got.Expires.Equal(now.Add(time.Hour)), !got.LeaseUntil.IsZero():
			b.Errorf("times: %+v at %v", got, now)
		case got.ErrClass+got.FirstErr+got.LastErr != "":
			b.Errorf("a done record with an error: %+v", got)
		case got.Fence != j.Of.Fence || got.Attempt != 1 || got.Owner != q.Owner:
			b.Errorf("record %+v", got)
		}
		if st := b.joinedSettle(j.Of); st != dedupe.Done {
			b.Errorf("the worker's settlement says %v, want done", st)
		}
	})
}

func TestCompleteTxResults(t *testing.T) {
	inBusiness(t, func(b *business) {
		for name, c := range map[string]struct {
			result any
			want   []byte
		}{
			"none":       {nil, nil},
			"empty":      {[]byte{}, []byte{}},
			"bytes":      {[]byte("\x00raw"), []byte("\x00raw")},
			"json null":  {(*int)(nil), []byte("null")},
			"json zero":  {0, []byte("0")},
			"json empty": {"", []byte(`""`)},
		} {
			j := &job{Of: claim(b, b.s, request(name))}
			tx, err := b.charge(j, c.result)
			if err := errors.Join(err, tx.Commit()); err != nil {
				b.Fatal(err)
			}
			r := get(b, b.s, j.Of.Key)
			if (r.Result == nil) != (c.want == nil) || !bytes.Equal(r.Result, c.want) {
				b.Errorf("%s: stored %q (nil: %v), want %q", name, r.Result, r.Result == nil, c.want)
			}
			if left := time.Until(r.Expires); left != dedupe.DefaultRetention {
				b.Errorf("%s: kept for %v, want %v", name, left, dedupe.DefaultRetention)
			}
		}
	})
}

func TestCompleteTxRollback(t *testing.T) {
	inBusiness(t, func(b *business) {
		j := &job{Of: claim(b, b.s, request("1"))}
		tx, err := b.charge(j, nil)
		if err := errors.Join(err, tx.Rollback()); err != nil {
			b.Fatal(err)
		}
		b.want(j.Of.Key, dedupe.Claimed, 0)
		if st := b.joinedSettle(j.Of); st != dedupe.Claimed {
			b.Errorf("the worker's settlement says %v, want claimed", st)
		}
	})
}

func TestCompleteTxCrash(t *testing.T) {
	inBusiness(t, func(b *business) {
		j := &job{Of: claim(b, b.s, request("1"))}
		conn, err := b.db.Conn(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		for _, q := range []string{"BEGIN IMMEDIATE", "INSERT INTO ledger (line) VALUES ('charged')"} {
			if _, err := conn.ExecContext(b.Context(), q); err != nil {
				b.Fatal(err)
			}
		}
		if err := b.s.CompleteTx(b.Context(), conn, j, nil); err != nil {
			b.Fatal(err)
		}
		conn.Raw(func(any) error { return driver.ErrBadConn })
		b.want(j.Of.Key, dedupe.Claimed, 0)
	})
}

func TestCompleteTxStale(t *testing.T) {
	inBusiness(t, func(b *business) {
		late := &job{Of: claim(b, b.s, request("1"))}
		<-time.After(31 * time.Second)
		now := claim(b, b.s, request("1"))
		tx, err := b.charge(late, "late")
		if !errors.Is(err, dedupe.ErrLeaseLost) || errors.Is(err, dedupe.ErrBusy) {
			b.Errorf("CompleteTx: %v, want ErrLeaseLost", err)
		}
		tx.Rollback()
		if r := b.want(now.Key, dedupe.Claimed, 0); r.Token != now.Token || r.Result != nil {
			b.Errorf("record %+v", r)
		}
	})
}

// TestCompleteTxOtherStore: a job that was claimed elsewhere is unknown here, and the error says
// that as well.
func TestCompleteTxOtherStore(t *testing.T) {
	inBusiness(t, func(b *business) {
		other, _ := newStore(b, tempFile(b), nil)
		tx, err := b.charge(&job{Of: claim(b, other, request("1"))}, nil)
		if !errors.Is(err, dedupe.ErrLeaseLost) || !strings.Contains(err.Error(), "not the worker's store") {
			b.Errorf("CompleteTx: %v, want ErrLeaseLost with a word on the store", err)
		}
		tx.Rollback()
		if n := len(ledger(b, b.db)); n != 0 {
			b.Errorf("%d lines in the ledger", n)
		}
	})
}

// TestCompleteTxRepeated: a transaction that is tried again after a commit in doubt must not commit
// its effects twice.
func TestCompleteTxRepeated(t *testing.T) {
	inBusiness(t, func(b *business) {
		j := &job{Of: claim(b, b.s, request("1"))}
		tx, err := b.charge(j, "first")
		if err := errors.Join(err, tx.Commit()); err != nil {
			b.Fatal(err)
		}
		tx, err = b.charge(j, "second")
		if !errors.Is(err, dedupe.ErrLeaseLost) {
			b.Errorf("second CompleteTx: %v, want ErrLeaseLost", err)
		}
		if err := tx.Rollback(); err != nil {
			b.Fatal(err)
		}
		if r := b.want(j.Of.Key, dedupe.Done, 1); string(r.Result) != `"first"` {
			b.Errorf("result %q", r.Result)
		}
	})
}

// TestCompleteTxParked: the handler that was thought dead has its say after all.
func TestCompleteTxParked(t *testing.T) {
	inBusiness(t, func(b *business) {
		q := request("1")
		q.Policy = dedupe.Park
		j := &job{Of: claim(b, b.s, q)}
		if _, err := b.s.Renew(b.Context(), []dedupe.Renewal{{Key: q.Key, Token: q.Token, TTL: q.TTL, Started: true}}); err != nil {
			b.Fatal(err)
		}
		<-time.After(31 * time.Second)
		cs, err := b.s.Claim(b.Context(), []dedupe.ClaimRequest{request("1")})
		if err != nil || cs[0].Outcome != dedupe.IsParked {
			b.Fatalf("takeover: %+v, %v", cs, err)
		}
		tx, err := b.charge(j, nil)
		if err := errors.Join(err, tx.Commit()); err != nil {
			b.Fatal(err)
		}
		if r := b.want(q.Key, dedupe.Done, 1); r.ErrClass != "" {
			b.Errorf("class %q", r.ErrClass)
		}
	})
}

func TestCompleteTxSettledOtherwise(t *testing.T) {
	inBusiness(t, func(b *business) {
		for _, to := range []dedupe.Status{dedupe.Released, dedupe.Failed} {
			j := &job{Of: claim(b, b.s, request(to.String()))}
			settle(b, b.s, j.Of, to)
			tx, err := b.charge(j, nil)
			if !errors.Is(err, dedupe.ErrLeaseLost) {
				b.Errorf("%v: CompleteTx: %v, want ErrLeaseLost", to, err)
			}
			tx.Rollback()
			b.want(j.Of.Key, to, 0)
		}
		j := &job{Of: claim(b, b.s, request("forgotten"))}
		b.exec("DELETE FROM onceq_dedupe")
		tx, err := b.charge(j, nil)
		if !errors.Is(err, dedupe.ErrLeaseLost) {
			b.Errorf("no record: CompleteTx: %v, want ErrLeaseLost", err)
		}
		tx.Rollback()
	})
}

// TestCompleteTxNeighbours: a token that was wrongly used for several keys completes one of them.
func TestCompleteTxNeighbours(t *testing.T) {
	inBusiness(t, func(b *business) {
		q := request("1")
		keys := []dedupe.Key{q.Key, {Scope: q.Key.Scope, Key: "2"}, {Scope: "other", Key: q.Key.Key}}
		leases := make([]dedupe.Lease, len(keys))
		for i, k := range keys {
			q.Key = k
			leases[i] = claim(b, b.s, q)
		}
		tx, err := b.charge(&job{Of: leases[0]}, nil)
		if err := errors.Join(err, tx.Commit()); err != nil {
			b.Fatal(err)
		}
		b.want(keys[0], dedupe.Done, 1)
		b.want(keys[1], dedupe.Claimed, 1)
		b.want(keys[2], dedupe.Claimed, 1)
		// nor does it pass another one's done for its own
		settle(b, b.s, leases[1], dedupe.Released)
		tx, err = b.charge(&job{Of: leases[1]}, nil)
		tx.Rollback()
		if !errors.Is(err, dedupe.ErrLeaseLost) {
			b.Errorf("a released neighbour of a done record: %v, want ErrLeaseLost", err)
		}
		for _, k := range []dedupe.Key{{Scope: q.Key.Scope, Key: "absent"}, {Scope: "absent", Key: "1"}} {
			lease := leases[0]
			lease.Key = k
			tx, err = b.charge(&job{Of: lease}, nil)
			tx.Rollback()
			if !errors.Is(err, dedupe.ErrLeaseLost) {
				b.Errorf("%v: %v, want ErrLeaseLost", k, err)
			}
		}
	})
}

// TestCompleteTxDeferred: a transaction that read before somebody else wrote cannot write any more.
func TestCompleteTxDeferred(t *testing.T) {
	inBusiness(t, func(b *business) {
		j := &job{Of: claim(b, b.s, request("1"))}
		deferred := must.Get(sql.Open("sqlite", strings.Replace(DSN(b.path), "immediate", "deferred", 1)))
		defer deferred.Close()
		tx, err := deferred.BeginTx(b.Context(), nil)
		if err != nil {
			b.Fatal(err)
		}
		defer tx.Rollback()
		if err := tx.QueryRowContext(b.Context(), "SELECT count(*) FROM ledger").Scan(new(int)); err != nil {
			b.Fatal(err)
		}
		claim(b, b.s, request("2"))
		err = b.s.CompleteTx(b.Context(), tx, j, nil)
		if !errors.Is(err, dedupe.ErrBusy) || !strings.Contains(err.Error(), "IMMEDIATE") {
			b.Errorf("CompleteTx: %v, want ErrBusy and the rule", err)
		}
	})
}

// nothing is a transaction that must not be touched.
type nothing struct{ Execer }

// houseDB is what other packages have, sqlx.DB and bun.DB among them.
type houseDB struct{ *sql.DB }

func TestCompleteTxRefuses(t *testing.T) {
	inBusiness(t, func(b *business) {
		ctx := b.Context()
		l := claim(b, b.s, request("1"))
		conn, err := b.db.Conn(ctx)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		for _, c := range []struct {
			name   string
			tx     Execer
			job    *job
			result any
			is     error
			says   string
			joins  bool
		}{
			{"no transaction", nil, &job{Of: l}, nil, dedupe.ErrBadRequest, "tx is nil", true},
			{"nil *sql.Tx", (*sql.Tx)(nil), &job{Of: l}, nil, dedupe.ErrBadRequest, "tx is nil", true},
			{"nil *sql.Conn", (*sql.Conn)(nil), &job{Of: l}, nil, dedupe.ErrBadRequest, "tx is nil", true},
			{"a pool", b.db, &job{Of: l}, nil, dedupe.ErrBadRequest, "*sql.DB", true},
			{"another package's pool", houseDB{b.db}, &job{Of: l}, nil, dedupe.ErrBadRequest, "sqlitestore.houseDB", true},
			{"a pointer to one", &houseDB{b.db}, &job{Of: l}, nil, dedupe.ErrBadRequest, "*sqlitestore.houseDB", true},
			{"a conn without BEGIN", conn, &job{Of: l}, nil, dedupe.ErrBadRequest, "BEGIN IMMEDIATE", true},
			{"no store", nothing{}, &job{Of: dedupe.Lease{Key: l.Key}}, nil, dedupe.ErrBadRequest, "not claimed", false},
			{"bytes too large", nothing{}, &job{Of: l}, make([]byte, maxResult+1), dedupe.ErrResultSize, "1048577", true},
			{"json too large", nothing{}, &job{Of: l}, strings.Repeat("a", maxResult), dedupe.ErrResultSize, "1048578", true},
			{"not json", nothing{}, &job{Of: l}, make(chan int), nil, "JSON", true},
		} {
			err := b.s.CompleteTx(ctx, c.tx, c.job, c.result)
			if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
				b.Errorf("%s: %v, want %v with %q", c.name, err, c.is, c.says)
			}
			if c.job.Joined() != c.joins {
				b.Errorf("%s: joined is %v, want %v", c.name, c.job.Joined(), c.joins)
			}
		}
		if err := b.s.CompleteTx(ctx, nothing{}, nil, nil); !errors.Is(err, dedupe.ErrBadRequest) {
			b.Errorf("nil job: %v", err)
		}
		b.want(l.Key, dedupe.Claimed, 0)
		if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
			b.Errorf("the conn that was refused: %v", err)
		}
		if err := b.s.CompleteTx(ctx, conn, &job{Of: l}, nil); err != nil {
			b.Errorf("a conn after its BEGIN: %v", err)
		}
		if _, err := conn.ExecContext(ctx, "ROLLBACK"); err != nil {
			b.Errorf("its transaction did not go on: %v", err)
		}
		b.want(l.Key, dedupe.Claimed, 0)
		tx, err := b.charge(&job{Of: l}, make([]byte, maxResult))
		if err := errors.Join(err, tx.Commit()); err != nil {
			b.Errorf("a result of just the limit: %v", err)
		}
	})
}
