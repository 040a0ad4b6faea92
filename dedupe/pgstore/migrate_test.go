package pgstore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/dedupe"
)

// TestFenceAfterACopy: where the rows of a database came along and the sequence did not, or an older state of it, Migrate raises it above all
// that was given out, also of keys that have no record any more.
func TestFenceAfterACopy(t *testing.T) {
	for name, lost := range map[string]string{
		"begun anew":        "DROP SEQUENCE {t}_fence; CREATE SEQUENCE {t}_fence START WITH %d",
		"begun and used":    "DROP SEQUENCE {t}_fence; CREATE SEQUENCE {t}_fence START WITH %d; SELECT nextval('{t}_fence')",
		"as of long ago":    "SELECT setval('{t}_fence', %d)",
		"as of a day later": "SELECT setval('{t}_fence', %d + 86400000000)",
	} {
		t.Run(name, func(t *testing.T) {
			pool := openPool(t)
			s := newStore(t, pool, "records")
			start := time.Now().AddDate(-1, 0, 0).UnixMicro()
			l := claimOne(t, s, request("k"))
			settleOne(t, s, l, dedupe.Failed)
			if errs, err := s.Forget(t.Context(), []dedupe.Forgotten{{Key: l.Key, Fence: l.Fence}}); err != nil || errs[0] != nil {
				t.Fatal(errs, err)
			}
			exec(t, pool, fmt.Sprintf(strings.ReplaceAll(lost, "{t}", "records"), start))
			var wg sync.WaitGroup
			for range 8 { // many starters, beside a running worker
				other, err := New(pool, &Options{Table: "records"})
				if err != nil {
					t.Fatal(err)
				}
				wg.Go(func() {
					if err := other.Migrate(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if again := claimOne(t, s, request("k")); again.Fence <= l.Fence {
				t.Errorf("the fence has fallen by %d", l.Fence-again.Fence)
			}
		})
	}
}

// TestFenceBesideStarters: fences only rise while starters raise the sequence.
func TestFenceBesideStarters(t *testing.T) {
	pool := openPool(t, func(c *pgxpool.Config) { c.MaxConns = 20 })
	s := newStore(t, pool, "records")
	exec(t, pool, "SELECT setval('records_fence', 1)")
	ctx, cancel := context.WithCancel(t.Context())
	var starters, workers sync.WaitGroup
	for range 4 {
		starters.Go(func() {
			for ctx.Err() == nil {
				if err := s.Migrate(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	seen := make([][]uint64, 4)
	for w := range seen {
		workers.Go(func() {
			for n := range 100 {
				seen[w] = append(seen[w], claimOne(t, s, request(fmt.Sprint(w, "-", n))).Fence)
			}
		})
	}
	workers.Wait()
	cancel()
	starters.Wait()
	all := make(map[uint64]bool)
	for _, fences := range seen {
		for i, f := range fences {
			if all[f] {
				t.Errorf("fence %d was given twice", f)
			}
			if all[f] = true; i > 0 && f <= fences[i-1] {
				t.Errorf("fence %d behind %d", f, fences[i-1])
			}
		}
	}
}

// TestFenceIsLeft: a sequence that is ahead of the clock, or only just behind it, and one that the role may not set, stay as they are.
func TestFenceIsLeft(t *testing.T) {
	pool := openPool(t)
	s := newStore(t, pool, "records")
	for name, at := range map[string]time.Time{"ahead": time.Now().AddDate(1, 0, 0), "just behind": time.Now().Add(-behind / 2)} {
		exec(t, pool, "SELECT setval('records_fence', $1)", at.UnixMicro())
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := scan[int64](t, pool, "SELECT last_value FROM records_fence"); n != at.UnixMicro() {
			t.Errorf("%s: the sequence went from %d to %d", name, at.UnixMicro(), n)
		}
	}
	exec(t, pool, "SELECT setval('records_fence', 7)")
	for right, want := range map[string]bool{"USAGE": false, "UPDATE": false, "USAGE, UPDATE": true} {
		worker := newRole(t, pool, "work_mem = '4MB'")
		role := worker.Config().ConnConfig.User
		exec(t, pool, fmt.Sprintf("ALTER ROLE %[1]s NOSUPERUSER; GRANT USAGE ON SCHEMA public TO %[1]s; GRANT SELECT ON records TO %[1]s; GRANT %s ON SEQUENCE records_fence TO %[1]s", role, right))
		exec(t, pool, "SELECT setval('records_fence', 7)")
		newStore(t, worker, "records")
		if n := scan[int64](t, pool, "SELECT last_value FROM records_fence"); (n != 7) != want {
			t.Errorf("a role with %s has left the sequence at %d; may it raise it: %v", right, n, want)
		}
	}
	exec(t, pool, "SELECT setval('records_fence', 7)")
	newStore(t, newRole(t, pool, "default_transaction_read_only = on"), "records") // as on a replica
}

// TestServers: what the statements cannot run on is named.
func TestServers(t *testing.T) {
	for _, c := range []struct {
		number         int
		name, encoding string
		want           string
	}{
		{120022, "12.22", "UTF8", "PostgreSQL 12.22; pgstore needs 13 or later"},
		{90624, "9.6.24", "UTF8", "9.6.24"},
		{130000, "13.0", "UTF8", ""},
		{180000, "18.0", "LATIN1", "encoding is LATIN1"},
	} {
		if err := checkServer(c.number, c.name, c.encoding); (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d: %v, want %q", c.number, err, c.want)
		}
	}
}

// TestThisServer: what the server is decides whether Migrate takes it.
func TestThisServer(t *testing.T) {
	pool := openPool(t)
	number, name := scan[int](t, pool, "SELECT current_setting('server_version_num')::int"), scan[string](t, pool, "SELECT current_setting('server_version')")
	s, err := New(pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = s.Migrate(t.Context())
	t.Logf("PostgreSQL %s: %v", name, err)
	if tooOld := number < oldest*10000; (err != nil) != tooOld || tooOld && !strings.Contains(err.Error(), "PostgreSQL "+name) {
		t.Errorf("Migrate: %v; too old: %v", err, tooOld)
	}
}

// TestMigrateRefusesKeys: a key that is no key by byte, or one that ON CONFLICT cannot use.
func TestMigrateRefusesKeys(t *testing.T) {
	pool := openPool(t)
	_, err := pool.Exec(t.Context(), `CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level1', deterministic = false)`)
	if err != nil { // there are builds without ICU
		t.Logf("in place of a collation in which keys that differ are equal, one of another order is tried: %v", err)
		exec(t, pool, `CREATE COLLATION loose (locale = 'C.UTF-8')`)
	}
	for name, c := range map[string]struct{ sql, text string }{
		"a loose collation":       {`ALTER TABLE {t} ALTER COLUMN key TYPE text COLLATE loose`, `column key is not compared byte by byte; it needs COLLATE "C"`},
		"the database's":          {`ALTER TABLE {t} ALTER COLUMN scope TYPE text COLLATE "default"`, `column scope is not compared byte by byte`},
		"deferrable":              {`ALTER TABLE {t} DROP CONSTRAINT {t}_pkey; ALTER TABLE {t} ADD UNIQUE (key, scope) DEFERRABLE`, "DEFERRABLE"},
		"one more, deferrable":    {`ALTER TABLE {t} ADD UNIQUE (scope, key) DEFERRABLE INITIALLY DEFERRED`, "DEFERRABLE"},
		"an index of another one": {`ALTER TABLE {t} DROP CONSTRAINT {t}_pkey; CREATE UNIQUE INDEX ON {t} (scope, key COLLATE loose)`, "no valid primary key"},
		"invalid":                 {`UPDATE pg_index SET indisvalid = false WHERE indexrelid = '{t}_pkey'::regclass`, "no valid primary key"},
		"partial":                 {`ALTER TABLE {t} DROP CONSTRAINT {t}_pkey; CREATE UNIQUE INDEX ON {t} (scope, key) WHERE status = 'done'`, "no valid primary key"},
		"three columns":           {`ALTER TABLE {t} DROP CONSTRAINT {t}_pkey; CREATE UNIQUE INDEX ON {t} (scope, key, fence)`, "no valid primary key"},
		"the other order":         {`ALTER TABLE {t} DROP CONSTRAINT {t}_pkey; CREATE UNIQUE INDEX ON {t} (key, scope)`, ""},
		"POSIX":                   {`ALTER TABLE {t} ALTER COLUMN key TYPE text COLLATE "POSIX"`, ""},
	} {
		table := newTable()
		s := newStore(t, pool, table)
		exec(t, pool, strings.ReplaceAll(c.sql, "{t}", table))
		err := s.Migrate(t.Context())
		if (err != nil) != (c.text != "") || err != nil && (!strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), table)) {
			t.Errorf("%s: %v, want %q", name, err, c.text)
		}
		if err == nil {
			claimOne(t, s, request("k"))
		}
	}
}

// TestOddSchemas: the schema that the search_path leads to may have any name.
func TestOddSchemas(t *testing.T) {
	pool := openPool(t)
	for _, name := range []string{`o'clock`, `two words`, `quo"te`, `{table}`} {
		quoted := `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
		exec(t, pool, "CREATE SCHEMA "+quoted)
		own := poolOn(t, pool.Config().ConnString(), func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["search_path"] = quoted })
		for range 2 {
			s := newStore(t, own, "")
			settleOne(t, s, claimOne(t, s, request(fmt.Sprint(newToken()))), dedupe.Done)
		}
		if n := scan[int](t, pool, "SELECT count(*) FROM "+quoted+".onceq_dedupe"); n != 2 {
			t.Errorf("schema %s has %d records", name, n)
		}
	}
	nowhere := poolOn(t, pool.Config().ConnString(), func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["search_path"] = "nowhere" })
	s, err := New(nowhere, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "no schema of the search_path") {
		t.Errorf("Migrate: %v", err)
	}
}
