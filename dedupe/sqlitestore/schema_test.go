package sqlitestore

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/must"
)

func TestNewRefuses(t *testing.T) {
	db := openFile(t, tempFile(t))
	for _, c := range []struct {
		db   *sql.DB
		o    Options
		says string
	}{
		{nil, Options{}, "db is nil"},
		{db, Options{BusyTimeout: -1}, "Options.BusyTimeout"},
		{db, Options{BusyTimeout: 1}, "Options.BusyTimeout: 1ns is below 1ms; is its unit missing?"},
		{db, Options{Table: "a b"}, "Options.Table"},
		{db, Options{Table: `a"b`}, "Options.Table"},
		{db, Options{Table: "1a"}, "Options.Table"},
		{db, Options{Table: "tablé"}, "Options.Table"},
		{db, Options{Table: "main.a"}, "Options.Table"},
		{db, Options{Table: "SQLite_a"}, "SQLite's own"},
		{db, Options{Table: strings.Repeat("a", 49)}, "49 bytes"},
	} {
		if _, err := New(c.db, &c.o); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("New with %+v: %v, want an error with %q", c.o, err, c.says)
		}
	}
}

func TestNoTables(t *testing.T) {
	db := openFile(t, tempFile(t))
	s, err := New(db, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, claim := s.Claim(t.Context(), []dedupe.ClaimRequest{request("1")})
	_, get := s.Get(t.Context(), []dedupe.Key{{Scope: "a", Key: "b"}})
	for _, err := range []error{claim, get} {
		if err == nil || !strings.Contains(err.Error(), "Migrate") {
			t.Errorf("%v, want a hint at Migrate", err)
		}
	}
}

// TestNoFile: a database that each connection has for itself is refused before anything is made in
// it.
func TestNoFile(t *testing.T) {
	for _, dsn := range []string{":memory:", "", "file::memory:", "file::memory:?cache=shared", "file:a?mode=memory", DSN(":memory:"), DSN("")} {
		db, err := sql.Open("sqlite", dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		s, err := New(db, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		err = s.Migrate(t.Context())
		if err == nil || !strings.Contains(err.Error(), "no file") || !strings.Contains(err.Error(), "each connection") {
			t.Errorf("Migrate of %q: %v, want the reason", dsn, err)
		}
	}
}

// TestLostFence: without the fence's row no claim is won, for its number might repeat.
func TestLostFence(t *testing.T) {
	s, db := newStore(t, tempFile(t), nil)
	if _, err := db.ExecContext(t.Context(), "DELETE FROM onceq_dedupe_fence"); err != nil {
		t.Fatal(err)
	}
	cs, err := s.Claim(t.Context(), []dedupe.ClaimRequest{request("1")})
	if err == nil || !strings.Contains(err.Error(), "onceq_dedupe_fence") {
		t.Errorf("claim: %+v, %v; want an error that names the table", cs, err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	claim(t, s, request("1"))
}

// TestTwoTables: stores with tables of their own share a file and nothing else.
func TestTwoTables(t *testing.T) {
	path := tempFile(t)
	a, _ := newStore(t, path, nil)
	b, _ := newStore(t, path, &Options{Table: "Select"})
	q := request("1")
	claim(t, a, q)
	q.Token = newToken()
	claim(t, b, q)
	if get(t, a, q.Key).Token == get(t, b, q.Key).Token {
		t.Error("the tables share a record")
	}
}

// TestManyStarters: all make the tables at once, and none of them finds a claim or a fence undone
// by another.
func TestManyStarters(t *testing.T) {
	path := tempFile(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var fences []uint64
	for i := range 8 {
		db := openFile(t, path)
		wg.Go(func() {
			s, err := New(db, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			if err := s.Migrate(t.Context()); err != nil {
				t.Error(err)
				return
			}
			cs, err := s.Claim(t.Context(), []dedupe.ClaimRequest{request(fmt.Sprint(i))})
			if err != nil || cs[0].Outcome != dedupe.Won {
				t.Errorf("claim: %+v, %v", cs, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			fences = append(fences, cs[0].Lease.Fence)
		})
	}
	wg.Wait()
	slices.Sort(fences)
	if len(slices.Compact(fences)) != 8 {
		t.Errorf("fences %v, want 8 different ones", fences)
	}
}

// TestFence: it rises by one with every claim that is won, also over Forget and in another process,
// and a new file starts above an old one.
func TestFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := tempFile(t)
		s, _ := newStore(t, path, nil)
		l := claim(t, s, request("1"))
		if l.Fence != uint64(time.Now().UnixMicro())+1 {
			t.Errorf("the first fence is %d", l.Fence)
		}
		errs, err := s.Forget(t.Context(), []dedupe.Forgotten{{Key: l.Key, Fence: l.Fence, Force: true}})
		if err := errors.Join(err, errs[0]); err != nil {
			t.Fatal(err)
		}
		second, _ := newStore(t, path, nil)
		cs, err := second.Claim(t.Context(), []dedupe.ClaimRequest{request("1"), request("2")})
		if err != nil || cs[0].Lease.Fence != l.Fence+1 || cs[1].Lease.Fence != l.Fence+2 {
			t.Errorf("claims %+v, %v; want the fences %d and %d", cs, err, l.Fence+1, l.Fence+2)
		}
		pass(time.Second)
		fresh, _ := newStore(t, tempFile(t), nil)
		if f := claim(t, fresh, request("1")).Fence; f <= l.Fence+2 {
			t.Errorf("a new file begins at %d, the old one was at %d", f, l.Fence+2)
		}
	})
}

func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db := newStore(t, tempFile(t), nil)
		ctx := t.Context()
		end := func(name string, to dedupe.Status, retain time.Duration) {
			l := claim(t, s, request(name))
			as, err := s.Settle(ctx, []dedupe.Settlement{{Key: l.Key, Token: l.Token, To: to, Retain: retain}})
			if err := errors.Join(err, as[0].Err); err != nil {
				t.Fatal(err)
			}
		}
		left := func() (keys []string) {
			rows, err := db.QueryContext(ctx, "SELECT key FROM onceq_dedupe ORDER BY key")
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			for rows.Next() {
				var k string
				if err := rows.Scan(&k); err != nil {
					t.Fatal(err)
				}
				keys = append(keys, k)
			}
			return keys
		}
		end("done-3h", dedupe.Done, 3*time.Hour)
		end("done-1h", dedupe.Done, time.Hour)
		end("failed-2h", dedupe.Failed, 2*time.Hour)
		end("released-2h", dedupe.Released, 2*time.Hour)
		end("done-9h", dedupe.Done, 9*time.Hour)
		end("parked", dedupe.Parked, time.Hour)
		claim(t, s, request("claimed"))
		claim(t, s, request("mended"))
		if _, err := db.ExecContext(ctx, "UPDATE onceq_dedupe SET expires = updated WHERE key = 'mended'"); err != nil {
			t.Fatal(err)
		}
		sweep := func(limit, want int, keys ...string) {
			t.Helper()
			n, err := s.Sweep(ctx, limit)
			if err != nil || n != want {
				t.Errorf("swept %d, %v; want %d", n, err, want)
			}
			if got := left(); !slices.Equal(got, keys) {
				t.Errorf("left %v, want %v", got, keys)
			}
		}
		sweep(0, 0, "claimed", "done-1h", "done-3h", "done-9h", "failed-2h", "mended", "parked", "released-2h")
		pass(3 * time.Hour)
		sweep(1, 1, "claimed", "done-3h", "done-9h", "failed-2h", "mended", "parked", "released-2h")
		sweep(-1, 3, "claimed", "done-9h", "mended", "parked")
	})
}

// TestSweepInBatches: more than one transaction's worth.
func TestSweepInBatches(t *testing.T) {
	s, db := newStore(t, tempFile(t), nil)
	l := claim(t, s, request("1"))
	settle(t, s, l, dedupe.Done)
	names := strings.Join(columns[2:], ", ")
	copies := "INSERT INTO onceq_dedupe (scope, key, " + names + ") SELECT scope, n.value, " + names +
		" FROM onceq_dedupe, (WITH RECURSIVE n(value) AS (SELECT 2 UNION ALL SELECT value + 1 FROM n LIMIT ?) SELECT value FROM n) n"
	if _, err := db.ExecContext(t.Context(), copies, sweepBatch+20); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "UPDATE onceq_dedupe SET expires = updated"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ limit, want int }{{sweepBatch + 10, sweepBatch + 10}, {0, 11}, {0, 0}} {
		if n, err := s.Sweep(t.Context(), c.limit); n != c.want || err != nil {
			t.Errorf("Sweep(%d) = %d, %v; want %d", c.limit, n, err, c.want)
		}
	}
}

// openWith opens a pool and a store with a longer DSN.
func openWith(t *testing.T, path, more string) *Store {
	t.Helper()
	db := must.Get(sql.Open("sqlite", DSN(path)+more))
	t.Cleanup(func() { db.Close() })
	s := must.Get(New(db, nil))
	t.Cleanup(func() { s.Close() })
	return s
}

func TestReadOnlyFile(t *testing.T) {
	path := tempFile(t)
	w, _ := newStore(t, path, nil)
	l := claim(t, w, request("1"))
	s := openWith(t, path, "&_query_only=1")
	for range 2 {
		_, err := s.Claim(t.Context(), []dedupe.ClaimRequest{request("2")})
		if err == nil || errors.Is(err, dedupe.ErrBusy) || !strings.Contains(err.Error(), "readonly") {
			t.Errorf("claim: %v, want an error of a read-only file", err)
		}
	}
	get(t, s, l.Key)
	claim(t, w, request("2"))
}

func TestFullDisk(t *testing.T) {
	path := tempFile(t)
	s := openWith(t, path, "&_pragma=max_page_count(40)")
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	won := 0
	for range 1000 {
		q := request(fmt.Sprint(won))
		q.Fingerprint = make([]byte, 1000)
		cs, err := s.Claim(t.Context(), []dedupe.ClaimRequest{q})
		if err == nil && cs[0].Outcome == dedupe.Won {
			won++
			continue
		}
		if err == nil || errors.Is(err, dedupe.ErrBusy) || !strings.Contains(err.Error(), "full") {
			t.Errorf("claim on a full disk: %+v, %v", cs, err)
		}
		break
	}
	if won == 0 || won == 1000 {
		t.Fatalf("%d claims were won", won)
	}
	n := 0
	for _, err := range s.List(t.Context(), dedupe.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != won {
		t.Errorf("%d claims were won, %d are stored", won, n)
	}
	// what makes room goes on
	rs, err := s.Get(t.Context(), []dedupe.Key{{Scope: "orders", Key: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	errs, err := s.Forget(t.Context(), []dedupe.Forgotten{{Key: rs[0].Key, Fence: rs[0].Fence, Force: true}})
	if err := errors.Join(err, errs[0]); err != nil {
		t.Fatal(err)
	}
	claim(t, s, request("0"))
}

func TestDSNOddPath(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a ?b#c%41&d=e.db")
	s, _ := newStore(t, path, nil)
	claim(t, s, request("1"))
	names, err := filepath.Glob(filepath.Join(dir, "*.db"))
	if err != nil || !slices.Equal(names, []string{path}) {
		t.Errorf("files %q, %v", names, err)
	}
}

func TestBatchLimits(t *testing.T) {
	s, _ := newStore(t, tempFile(t), nil)
	ctx := t.Context()
	n := s.Limits().MaxBatch
	rs := make([]dedupe.ClaimRequest, n+1)
	for i := range rs {
		rs[i] = request(fmt.Sprintf("%04d", i))
	}
	if _, err := s.Claim(ctx, rs); !errors.Is(err, dedupe.ErrBadRequest) {
		t.Errorf("%d claims at once: %v, want ErrBadRequest", n+1, err)
	}
	if _, err := s.Get(ctx, make([]dedupe.Key, n+1)); !errors.Is(err, dedupe.ErrBadRequest) {
		t.Errorf("%d reads at once: %v, want ErrBadRequest", n+1, err)
	}
	cs, err := s.Claim(ctx, rs[:n])
	if err != nil {
		t.Fatal(err)
	}
	for i := range cs {
		if cs[i].Outcome != dedupe.Won {
			t.Fatalf("claim %d: %+v", i, cs[i])
		}
	}
	seen := 0
	for r, err := range s.List(ctx, dedupe.Query{}) {
		if err != nil || r.Key != rs[seen].Key {
			t.Fatalf("record %d of the list: %+v, %v", seen, r, err)
		}
		seen++
	}
	if seen != n {
		t.Errorf("listed %d of %d", seen, n)
	}
}

// TestFenceOfARestoredFile: an older state of the file does not give out a fence a second time,
// also of a key without a record.
func TestFenceOfARestoredFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := tempFile(t)
		s, db := newStore(t, path, nil)
		if _, err := db.ExecContext(t.Context(), "VACUUM INTO ?", path+".backup"); err != nil {
			t.Fatal(err)
		}
		l := claim(t, s, request("1"))
		<-time.After(time.Second)
		restored, db := newStore(t, path+".backup", nil) // which migrates
		again := claim(t, restored, request("1"))
		if again.Fence <= l.Fence {
			t.Errorf("the fence went from %d to %d", l.Fence, again.Fence)
		}
		// A file that is restored under a worker is raised, also where it is ahead of the clock.
		high := again.Fence + 100_000_000
		if back, err := restored.RaiseFence(t.Context(), high); err != nil || !back {
			t.Error(back, err)
		}
		if l := claim(t, restored, request("raised")); l.Fence <= high {
			t.Errorf("after RaiseFence(%d) the next fence is %d", high, l.Fence)
		}
		// One that is ahead of the clock stays.
		ahead := time.Now().AddDate(1, 0, 0).UnixMicro()
		if _, err := db.ExecContext(t.Context(), "UPDATE onceq_dedupe_fence SET fence = ?", ahead); err != nil {
			t.Fatal(err)
		}
		if err := restored.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if l := claim(t, restored, request("2")); l.Fence != uint64(ahead)+1 {
			t.Errorf("fence %d, want %d", l.Fence, ahead+1)
		}
	})
}

// TestMigrateFails: where one of its statements fails, Migrate says why.
func TestMigrateFails(t *testing.T) {
	for statement, says := range map[string]string{
		"CREATE VIEW onceq_dedupe AS SELECT 1 AS scope":                                                             "views may not be indexed",
		"CREATE TRIGGER no BEFORE INSERT ON onceq_dedupe_fence BEGIN SELECT RAISE(ABORT, 'no fence is given'); END": "no fence is given",
		"CREATE TRIGGER no BEFORE UPDATE ON onceq_dedupe_fence BEGIN SELECT RAISE(ABORT, 'none is raised'); END":    "none is raised",
	} {
		db := openFile(t, tempFile(t))
		s := must.Get(New(db, nil))
		defer s.Close()
		if strings.Contains(statement, "TRIGGER") {
			if err := s.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
		if err := s.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("after %s: %v, want an error with %q", statement, err, says)
		}
	}
}
