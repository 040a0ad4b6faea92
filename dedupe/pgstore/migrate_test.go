package pgstore

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/pgkit"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
)

// TestFenceAfterACopy: where the rows of a database came along and the sequence did not, or an
// older state of it, Migrate raises it above all that was given out, also of keys that have no
// record any more. Each case moves the original first, then makes the copy.
func TestFenceAfterACopy(t *testing.T) {
	const (
		clock = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
		anew  = "DO $$ BEGIN DROP SEQUENCE {t}_fence; EXECUTE format('CREATE SEQUENCE {t}_fence START WITH %s', {start}); END $$"
	)
	for name, c := range map[string]struct{ moved, lost string }{
		"begun anew":           {"", anew},
		"begun and used":       {"", anew + "; SELECT nextval('{t}_fence')"},
		"as of long ago":       {"", "SELECT setval('{t}_fence', {start})"},
		"as of a year ago":     {"", "SELECT setval('{t}_fence', {start} - 31536000000000)"},
		"after many claims":    {"SELECT setval('{t}_fence', {clock} + 71000000)", anew},
		"after a start":        {"SELECT setval('{t}_fence', {clock} + 69000000)", anew},
		"without its sequence": {"SELECT setval('{t}_fence', {clock} + 69000000)", "DROP SEQUENCE {t}_fence"},
		"as of a moment ago":   {"SELECT setval('{t}_fence', {clock} + 59000000)", "SELECT setval('{t}_fence', {clock} + 58000000)"},
	} {
		t.Run(name, func(t *testing.T) {
			pool := openPool(t)
			s := newStore(t, pool, "records")
			run := func(sql string) {
				start := pgtest.Scan[int64](t, pool, "SELECT seqstart FROM pg_sequence WHERE seqrelid = 'records_fence'::regclass")
				exec(t, pool, strings.NewReplacer("{t}", "records", "{start}", fmt.Sprint(start), "{clock}", clock).Replace(sql))
			}
			run(c.moved)
			l := claimOne(t, s, request("k"))
			settleOne(t, s, l, dedupe.Failed)
			if errs, err := s.Forget(t.Context(), []dedupe.Forgotten{{Key: l.Key, Fence: l.Fence}}); err != nil || errs[0] != nil {
				t.Fatal(errs, err)
			}
			run(c.lost)
			var wg sync.WaitGroup
			for range 8 { // many starters, each of which claims when it has started
				other, err := New(pool, &Options{Table: "records"})
				if err != nil {
					t.Fatal(err)
				}
				wg.Go(func() {
					if err := other.Migrate(t.Context()); err != nil {
						t.Error(err)
						return
					}
					cs, err := other.Claim(t.Context(), []dedupe.ClaimRequest{request("k")})
					if err != nil || cs[0].Err != nil {
						t.Error(cs, err)
					} else if now := cs[0].Lease.Fence; cs[0].Outcome == dedupe.Won && now <= l.Fence {
						t.Errorf("the fence has fallen by %d", l.Fence-now)
					}
				})
			}
			wg.Wait()
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

// TestFenceIsLeft: a sequence that is ahead of the clock as a start leaves it, or farther, and one
// that the role may not set, stay as they are.
func TestFenceIsLeft(t *testing.T) {
	pool := openPool(t)
	s := newStore(t, pool, "records")
	for name, at := range map[string]time.Time{"a year ahead": time.Now().AddDate(1, 0, 0), "just started": time.Now().Add(ahead + gap)} {
		exec(t, pool, "SELECT setval('records_fence', $1)", at.UnixMicro())
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := pgtest.Scan[int64](t, pool, "SELECT last_value FROM records_fence"); n != at.UnixMicro() {
			t.Errorf("%s: the sequence went from %d to %d", name, at.UnixMicro(), n)
		}
	}
	far := time.Now().AddDate(1, 0, 0).UnixMicro()
	exec(t, pool, fmt.Sprintf("ALTER SEQUENCE records_fence RESTART WITH %d", far))
	if s = newStore(t, pool, "records"); claimOne(t, s, request("k")).Fence < uint64(far) {
		t.Error("a sequence that was restarted ahead of the clock was set back")
	}
	for right, want := range map[string]bool{"USAGE": false, "UPDATE": false, "USAGE, UPDATE": true} {
		worker := newRole(t, pool, "work_mem = '4MB'")
		role := worker.Config().ConnConfig.User
		exec(t, pool, fmt.Sprintf("ALTER ROLE %[1]s NOSUPERUSER; GRANT USAGE ON SCHEMA public TO %[1]s; GRANT SELECT ON records TO %[1]s; GRANT %s ON SEQUENCE records_fence TO %[1]s", role, right))
		exec(t, pool, "SELECT setval('records_fence', 7)")
		newStore(t, worker, "records")
		if n := pgtest.Scan[int64](t, pool, "SELECT last_value FROM records_fence"); (n != 7) != want {
			t.Errorf("a role with %s has left the sequence at %d; may it raise it: %v", right, n, want)
		}
	}
	exec(t, pool, "SELECT setval('records_fence', 7)")
	newStore(t, newRole(t, pool, "default_transaction_read_only = on"), "records") // as on a replica
}

// TestFenceTurns: a starter waits for one that is raising the sequence, and does not go on without.
func TestFenceTurns(t *testing.T) {
	pool := openPool(t)
	s := newStore(t, pool, "records")
	const before = int64(7)
	exec(t, pool, "SELECT setval('records_fence', $1)", before)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }() // after Commit it does nothing
	const mine = "SELECT pg_advisory_xact_lock($1 + 'records_fence'::regclass::oid::bigint)"
	if _, err := tx.Exec(t.Context(), mine, pgkit.Turn); err != nil {
		t.Fatal(err)
	}
	started := make(chan error)
	go func() { started <- s.Migrate(t.Context()) }()
	until(t, "the second starter", func() bool { return waiting(t, pool) == 1 })
	high := time.Now().AddDate(1, 0, 0).UnixMicro()
	if _, err := tx.Exec(t.Context(), "SELECT setval('records_fence', $1)", high); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	if n := pgtest.Scan[int64](t, pool, "SELECT last_value FROM records_fence"); n < high {
		t.Errorf("the second starter has set the sequence back by %d", high-n)
	}
}

// TestMigrateAsks: what hinders every call is known at the start.
func TestMigrateAsks(t *testing.T) {
	admin := openPool(t)
	newStore(t, admin, "records")
	pool := newRole(t, admin, "client_encoding = 'LATIN1'", func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol })
	s, err := New(pool, &Options{Table: "records"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "client_encoding") {
		t.Errorf("Migrate: %v, want an error that names client_encoding", err)
	}
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
		if err := pgkit.CheckServer("pgstore", "key", c.number, c.name, c.encoding); (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d: %v, want %q", c.number, err, c.want)
		}
	}
}

// TestThisServer: what the server is decides whether Migrate takes it.
func TestThisServer(t *testing.T) {
	pool := openPool(t)
	number, name := pgtest.Scan[int](t, pool, "SELECT current_setting('server_version_num')::int"), pgtest.Scan[string](t, pool, "SELECT current_setting('server_version')")
	s, err := New(pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = s.Migrate(t.Context())
	t.Logf("PostgreSQL %s: %v", name, err)
	if tooOld := number < pgkit.Oldest*10000; (err != nil) != tooOld || tooOld && !strings.Contains(err.Error(), "PostgreSQL "+name) {
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
		if n := pgtest.Scan[int](t, pool, "SELECT count(*) FROM "+quoted+".onceq_dedupe"); n != 2 {
			t.Errorf("schema %s has %d records", name, n)
		}
	}
	nowhere := poolOn(t, pool.Config().ConnString(), func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["search_path"] = "nowhere" })
	s := must.Get(New(nowhere, nil))
	if err := s.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "GRANT USAGE ON SCHEMA") {
		t.Errorf("Migrate: %v", err)
	}
}

// TestRaiseFence: after a restore under running workers the sequence goes above all that was given
// out, also where it is ahead of the clock. A sequence with a CACHE is no sign of a restore. Who
// may not raise it is told so.
func TestRaiseFence(t *testing.T) {
	pool := openPool(t)
	s := newStore(t, pool, "records")
	l := claimOne(t, s, request("k"))
	for name, before := range map[string]int64{"a moment ago": int64(l.Fence) - 3, "long ago": 5} {
		exec(t, pool, "SELECT setval('records_fence', $1)", before)
		if back, err := s.RaiseFence(t.Context(), l.Fence); err != nil || !back {
			t.Fatal(name, back, err)
		}
		next := claimOne(t, s, request("k "+name))
		if next.Fence < l.Fence+9_000_000 {
			t.Errorf("%s: the next fence is %d above the highest known", name, int64(next.Fence-l.Fence))
		}
		if _, err := s.RaiseFence(t.Context(), l.Fence); err != nil {
			t.Fatal(err)
		}
		if again := claimOne(t, s, request("k again "+name)); again.Fence > next.Fence+10 || again.Fence <= next.Fence {
			t.Errorf("%s: a second raise moved the fence by %d", name, int64(again.Fence-next.Fence))
		}
	}
	exec(t, pool, "ALTER SEQUENCE records_fence CACHE 20")
	if back, err := s.RaiseFence(t.Context(), l.Fence); err != nil || back {
		t.Errorf("with a CACHE: %t, %v", back, err)
	}
	exec(t, pool, "ALTER SEQUENCE records_fence CACHE 1; REVOKE ALL ON SEQUENCE records_fence FROM PUBLIC")
	role := fmt.Sprintf("raiser_%d", time.Now().UnixNano())
	exec(t, pool, "CREATE ROLE "+role+" LOGIN; GRANT USAGE ON SCHEMA public TO "+role+"; GRANT SELECT ON records TO "+role+"; GRANT USAGE ON SEQUENCE records_fence TO "+role)
	t.Cleanup(func() {
		_, _ = pool.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role)
	})
	theirs := poolOn(t, pool.Config().ConnString(), func(c *pgxpool.Config) {
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "SET ROLE "+role)
			return err
		}
	})
	other := must.Get(New(theirs, &Options{Table: "public.records"}))
	if back, err := other.RaiseFence(t.Context(), math.MaxInt64>>2); err == nil || back {
		t.Errorf("without the right: %t, %v", back, err)
	}
}

// TestMigrateNamesThePooler: through a pooler that knows nothing of prepared statements one
// connection meets those of another. Migrate says so at the start, with what to set.
func TestMigrateNamesThePooler(t *testing.T) {
	pool := openPool(t, pgtest.MeetsPrepared(pgkit.AskSQL))
	pgtest.Connect(t, pool, 2) // a busy machine may take longer for one than Migrate waits
	s := must.Get(New(pool, nil))
	if err := s.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "QueryExecModeExec") {
		t.Errorf("Migrate: %v, want an error that names the pooler and the mode", err)
	}
	one := poolOn(t, pool.Config().ConnString(), func(c *pgxpool.Config) { c.MaxConns = 1 })
	newStore(t, one, "onceq_dedupe") // a pool of one connection is asked on that
}
