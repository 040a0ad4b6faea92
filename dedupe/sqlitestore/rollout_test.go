package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/sqlitewriter"
	"github.com/onceq/onceq/internal/storetest"
)

// This file has the tests of a rollout on one file. A worker of version 1 is played by its own
// statements (testdata/v1), in a transaction of its own for each call.

type version1 struct {
	db          *sql.DB
	read, write string
	fence       *atomic.Int64
}

func statement(t testing.TB, name string) string {
	t.Helper()
	b := must.Get(os.ReadFile(filepath.Join("testdata", "v1", name+".sql")))
	return string(b)
}

// newVersion1 makes the tables as version 1 did.
func newVersion1(t *testing.T, path string) *version1 {
	t.Helper()
	db := openFile(t, path)
	for q := range strings.SplitSeq(statement(t, "create"), ";\n") {
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.ExecContext(t.Context(), "INSERT OR IGNORE INTO onceq_dedupe_fence (id, fence) VALUES (1, ?)", time.Now().UnixMicro()); err != nil {
		t.Fatal(err)
	}
	v := &version1{db: db, read: statement(t, "read"), write: statement(t, "write"), fence: new(atomic.Int64)}
	v.fence.Store(time.Now().Add(-time.Hour).UnixMicro())
	return v
}

// change does what version 1 did for each entry: it reads the row and writes the whole of it. It
// knew neither the columns that came later nor the fields.
func (v *version1) change(k dedupe.Key, apply func(r *dedupe.Record) bool) error {
	tx, err := v.db.BeginTx(context.Background(), nil) // immediate, by the DSN
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after Commit it does nothing
	var r dedupe.Record
	targets := columnTargets(&r)[:22]
	err = tx.QueryRowContext(context.Background(), v.read, k.Scope, k.Key).Scan(targets...)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if !apply(&r) {
		return nil
	}
	if _, err := tx.ExecContext(context.Background(), v.write, columnValues(&r)[:22]...); err != nil {
		return err
	}
	return tx.Commit()
}

func (v *version1) claim(q dedupe.ClaimRequest) (won bool, err error) {
	err = v.change(q.Key, func(r *dedupe.Record) bool {
		c, changed := machine.ApplyClaim(r, &q, time.Now(), func() uint64 { return uint64(v.fence.Add(1)) })
		won = c.Outcome == dedupe.Won
		return changed
	})
	return won, err
}

func (v *version1) settle(q dedupe.ClaimRequest, to dedupe.Status) error {
	return v.change(q.Key, func(r *dedupe.Record) bool {
		was := r.MessageID
		_, changed := machine.ApplySettle(r, &dedupe.Settlement{Key: q.Key, Token: q.Token, To: to, Result: []byte("result"), ErrClass: "timeout", ErrText: "slow"}, time.Now())
		r.MessageID = was // which version 1 kept
		return changed
	})
}

// TestMigrateVersion1: records of every state stay as they were and go on under the new version.
func TestMigrateVersion1(t *testing.T) {
	path := tempFile(t)
	v1 := newVersion1(t, path)
	qs := make(map[dedupe.Status]dedupe.ClaimRequest)
	for st := dedupe.Claimed; st <= dedupe.Parked; st++ {
		q := request(st.String())
		q.Owner = "old"
		if won, err := v1.claim(q); !won || err != nil {
			t.Fatal(won, err)
		}
		if st != dedupe.Claimed {
			if err := v1.settle(q, st); err != nil {
				t.Fatal(err)
			}
		}
		qs[st] = q
	}
	dead := request("dead")
	dead.Owner, dead.TTL = "old", time.Nanosecond
	if won, err := v1.claim(dead); !won || err != nil {
		t.Fatal(won, err)
	}
	s := must.Get(New(openFile(t, path), nil))
	defer s.Close()
	_, claimed := s.Claim(t.Context(), []dedupe.ClaimRequest{request("k")})
	_, read := s.Get(t.Context(), []dedupe.Key{dead.Key})
	for _, err := range []error{claimed, read} {
		if err == nil || !strings.Contains(err.Error(), "older version") || !strings.Contains(err.Error(), "Migrate") {
			t.Errorf("before the migration: %v, want an error that says what to do", err)
		}
	}
	for range 2 {
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for st, q := range qs {
		if r := get(t, s, q.Key); r.Status != st || r.Token != q.Token || r.Owner != "old" || r.MessageID != q.MessageID || r.Past != nil || !r.Sent.IsZero() {
			t.Errorf("%v: %+v", st, r)
		}
	}
	for st, want := range map[dedupe.Status]dedupe.Outcome{
		dedupe.Claimed: dedupe.InProgress, dedupe.Released: dedupe.Won, dedupe.Done: dedupe.AlreadyDone, dedupe.Failed: dedupe.Won, dedupe.Parked: dedupe.Won,
	} {
		q := request(st.String())
		q.Reopen, q.Sent = get(t, s, q.Key).Fence, time.Now()
		cs, err := s.Claim(t.Context(), []dedupe.ClaimRequest{q})
		if err != nil || cs[0].Outcome != want || want == dedupe.Won && cs[0].ErrClass != "timeout" {
			t.Errorf("a claim of what version 1 left %v is answered %+v, %v; want %v", st, cs, err, want)
		}
		if r := get(t, s, q.Key); want == dedupe.Won && (len(r.Past) != 1 || r.Past[0].Owner != "old" || r.Past[0].End != st || r.Sent.IsZero()) {
			t.Errorf("the Past of what version 1 left %v is %+v, sent %v", st, r.Past, r.Sent)
		}
	}
	cs, err := s.Claim(t.Context(), []dedupe.ClaimRequest{request("dead")})
	if err != nil || cs[0].Outcome != dedupe.Won || cs[0].From != "old" || cs[0].DeadFor <= 0 {
		t.Errorf("a takeover from version 1 is answered %+v, %v", cs, err)
	}
	// A worker of version 1 leaves the new columns as they are, and what it makes anew has nothing
	// of the record before.
	if err := v1.settle(dedupe.ClaimRequest{Key: dead.Key, Token: cs[0].Lease.Token}, dedupe.Released); err != nil {
		t.Fatal(err)
	}
	if r := get(t, s, dead.Key); r.Status != dedupe.Released || len(r.Past) != 1 {
		t.Errorf("after version 1's release: %v, Past %+v", r.Status, r.Past)
	}
	if _, err := v1.db.ExecContext(t.Context(), "UPDATE onceq_dedupe SET expires = updated WHERE key = 'dead'"); err != nil {
		t.Fatal(err)
	}
	if won, err := v1.claim(request("dead")); !won || err != nil {
		t.Fatal(won, err)
	}
	if r := get(t, s, dead.Key); r.Past != nil || r.Attempt != 1 {
		t.Errorf("a record that version 1 made anew: attempt %d, Past %+v", r.Attempt, r.Past)
	}
}

// TestMigrateAtWork: starters migrate while workers of version 1 are at work, and workers of the
// new version join them on the same keys. Every key is done once, and no call fails.
func TestMigrateAtWork(t *testing.T) {
	path := tempFile(t)
	v1 := newVersion1(t, path)
	const keys = 120
	done := make(storetest.Done, keys)
	busy := func(do func() error) error { // as every caller repeats it
		for {
			if err := do(); !sqlitewriter.IsBusy(err) && !errors.Is(err, dedupe.ErrBusy) {
				return err
			}
		}
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			done.Work(t, request, func(q dedupe.ClaimRequest) (won bool, err error) {
				err = busy(func() (err error) { won, err = v1.claim(q); return err })
				return won, err
			}, func(q dedupe.ClaimRequest, to dedupe.Status) error {
				return busy(func() error { return v1.settle(q, to) })
			})
		})
	}
	for i := range 4 {
		s := must.Get(New(openFile(t, path), nil))
		t.Cleanup(func() { s.Close() })
		wg.Go(func() {
			if err := busy(func() error { return s.Migrate(t.Context()) }); err != nil {
				t.Errorf("starter %d: %v", i, err)
				return
			}
			done.Work(t, request, func(q dedupe.ClaimRequest) (won bool, err error) {
				err = busy(func() error {
					cs, err := s.Claim(t.Context(), []dedupe.ClaimRequest{q})
					if err != nil {
						return err
					}
					won = cs[0].Outcome == dedupe.Won
					return cs[0].Err
				})
				return won, err
			}, func(q dedupe.ClaimRequest, to dedupe.Status) error {
				return busy(func() error {
					as, err := s.Settle(t.Context(), []dedupe.Settlement{{Key: q.Key, Token: q.Token, To: to, ErrClass: "timeout"}})
					if err != nil {
						return err
					}
					return as[0].Err
				})
			})
		})
	}
	wg.Wait()
	done.WantOnce(t)
}

// TestAttentionPlans: a list and a count of what failed, was parked or released reads the index of
// these alone.
func TestAttentionPlans(t *testing.T) {
	s, db := newStore(t, tempFile(t), nil)
	names := strings.Join(columns[2:], ", ")
	l := claim(t, s, request("1"))
	settle(t, s, l, dedupe.Done)
	copies := "INSERT INTO onceq_dedupe (scope, key, " + names + ") SELECT scope, n.value, " + names +
		" FROM onceq_dedupe, (WITH RECURSIVE n(value) AS (SELECT 2 UNION ALL SELECT value + 1 FROM n LIMIT 5000) SELECT value FROM n) n"
	if _, err := db.ExecContext(t.Context(), copies); err != nil {
		t.Fatal(err)
	}
	for n, st := range []dedupe.Status{dedupe.Failed, dedupe.Parked, dedupe.Released} {
		if _, err := db.ExecContext(t.Context(), "UPDATE onceq_dedupe SET status = ? WHERE key % 1000 = ?", st.String(), n); err != nil {
			t.Fatal(err)
		}
	}
	explain := func(q dedupe.Query, statement string) {
		t.Helper()
		b, args := s.where(&q)
		rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+fmt.Sprintf(statement, b.String()), args...)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		var plan []string
		for rows.Next() {
			var id, parent, unused int
			var what string
			if err := rows.Scan(&id, &parent, &unused, &what); err != nil {
				t.Fatal(err)
			}
			plan = append(plan, what)
		}
		if !slices.ContainsFunc(plan, func(s string) bool { return strings.Contains(s, "onceq_dedupe_attention") }) ||
			slices.ContainsFunc(plan, func(s string) bool { return strings.Contains(s, "SORTER") || strings.Contains(s, "B-TREE FOR ORDER") }) {
			t.Errorf("%+v: %q", q, plan)
		}
	}
	for _, analyze := range []bool{false, true} {
		if analyze {
			if _, err := db.ExecContext(t.Context(), "ANALYZE"); err != nil {
				t.Fatal(err)
			}
		}
		for _, st := range []dedupe.Status{dedupe.Failed, dedupe.Parked, dedupe.Released} {
			for _, q := range []dedupe.Query{{Status: st}, {Status: st, Scope: "orders"}, {Status: st, Before: time.Now()}} {
				explain(q, s.sql.list+"%s AND (scope, key) > ('orders', '1') ORDER BY scope, key LIMIT 200")
				explain(q, s.sql.count+"%s GROUP BY scope, status")
			}
		}
	}
	n := 0
	for r, err := range s.List(t.Context(), dedupe.Query{Status: dedupe.Parked}) {
		if err != nil || r.Status != dedupe.Parked {
			t.Fatal(r, err)
		}
		n++
	}
	if n != 6 {
		t.Errorf("%d parked records, want 6", n)
	}
}
