package pgstore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	defaultTable = "onceq_dedupe"
	maxTable     = 48
	// version is that of the table that this package makes and reads.
	version = 1
	// mark begins the table's comment, before its version.
	mark = "onceq dedupe records, version "
)

// splitTable finds names that cannot stand in a statement as they are.
func splitTable(name string) (schema, table string, err error) {
	table = name
	if before, after, ok := strings.Cut(name, "."); ok {
		schema, table = before, after
		if err := checkName("schema", schema); err != nil {
			return "", "", err
		}
		if strings.HasPrefix(schema, "pg_") || schema == "information_schema" {
			return "", "", fmt.Errorf("pgstore: Options.Table is %q; the schema %s is PostgreSQL's own", name, schema)
		}
	}
	return schema, table, checkName("table", table)
}

func checkName(part, s string) error {
	if s == "" {
		return fmt.Errorf("pgstore: Options.Table: the name of the %s is empty", part)
	}
	if len(s) > maxTable {
		return fmt.Errorf("pgstore: Options.Table: the name of the %s has %d bytes, the limit is %d", part, len(s), maxTable)
	}
	for i, c := range []byte(s) {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return fmt.Errorf("pgstore: Options.Table: the name of the %s is %q; letters, digits and underscores may be used, and no digit first", part, s)
		}
	}
	return nil
}

// statements is the SQL of one table.
type statements struct {
	schema, name                                                        string // as people write them
	table, fence, index                                                 string // as statements do
	insert, read, readState, change, renew, lock, settle, remove, sweep string
	finish, commit                                                      [plans]string // the same, but for a comment
}

func newStatements(schema, table string) statements {
	quote := func(name string) string {
		if schema == "" {
			return `"` + name + `"`
		}
		return `"` + schema + `"."` + name + `"`
	}
	st := statements{schema: schema, name: table, table: quote(table), fence: quote(table + "_fence"), index: quote(table + "_expires")}
	if schema != "" {
		st.name = schema + "." + table
	}
	fill := strings.NewReplacer("{table}", st.table, "{fence}", st.fence, "{columns}", columns).Replace
	st.insert = fill(insertFresh)
	st.read = fill(readGiven)
	st.readState = fill(readState)
	st.change = fill(changeRead)
	st.renew = fill(renewOwn)
	st.lock = fill(lockRow)
	st.settle = fill(settleOwn)
	st.remove = fill(removeRead)
	st.sweep = fill(sweepRows)
	for n := range st.finish {
		st.finish[n] = fmt.Sprintf("%s /* plan %d */", fill(finishOwn), n)
		st.commit[n] = fmt.Sprintf("%s /* plan %d */", fill(commitOwn), n)
	}
	return st
}

// step is what leads from one version of the table to the next; steps[0] makes version 1.
var steps = [version][]string{{
	`CREATE TABLE {table} (
	scope text COLLATE "C" NOT NULL,
	key text COLLATE "C" NOT NULL,
	status text NOT NULL CHECK (status IN ('claimed', 'released', 'done', 'failed', 'parked')),
	fence bigint NOT NULL,
	token uuid NOT NULL,
	attempt integer NOT NULL,
	started boolean NOT NULL,
	policy text NOT NULL CHECK (policy IN ('rerun', 'park')),
	owner text NOT NULL,
	message_id text NOT NULL,
	lease_until timestamptz,
	fingerprint bytea,
	result bytea,
	state bytea,
	error_class text NOT NULL,
	first_error text NOT NULL,
	last_error text NOT NULL,
	created timestamptz NOT NULL,
	claimed_at timestamptz NOT NULL,
	updated timestamptz NOT NULL,
	finished timestamptz,
	expires timestamptz,
	PRIMARY KEY (scope, key)
)`,
}}

// wanted are the columns of this version and their types.
var wanted = map[string]string{
	"scope": "text", "key": "text", "status": "text", "fence": "bigint", "token": "uuid", "attempt": "integer", "started": "boolean",
	"policy": "text", "owner": "text", "message_id": "text", "lease_until": "timestamp with time zone", "fingerprint": "bytea",
	"result": "bytea", "state": "bytea", "error_class": "text", "first_error": "text", "last_error": "text",
	"created": "timestamp with time zone", "claimed_at": "timestamp with time zone", "updated": "timestamp with time zone",
	"finished": "timestamp with time zone", "expires": "timestamp with time zone",
}

// Migrate makes the table, its index and the sequence of fences where they are missing, and the schema if
// [Options].Table names one. It may run at every start, and by several starters at once: they take turns. Where all
// is there it writes nothing, and needs no right to create. A table of that name that is not the store's, or of a
// newer version, is refused with the reason, and so is a database whose encoding is not UTF8.
func (s *Store) Migrate(ctx context.Context) error {
	if err := s.ready(ctx, 0); err != nil {
		return err
	}
	complete, err := s.transact(ctx, s.inspected)
	if err == nil && !complete {
		_, err = s.transact(ctx, s.migrate)
	}
	if err != nil {
		return s.explain(ctx, "Migrate", err)
	}
	return nil
}

func (s *Store) transact(ctx context.Context, do func(context.Context, pgx.Tx) (bool, error)) (done bool, err error) {
	tx, err := s.db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after Commit it does nothing
	if done, err = do(ctx, tx); err != nil {
		return false, err
	}
	return done, tx.Commit(ctx)
}

func (s *Store) inspected(ctx context.Context, tx pgx.Tx) (complete bool, err error) {
	have, err := s.inspect(ctx, tx)
	return err == nil && have.complete(), err
}

// present is what is there of the store's.
type present struct {
	version       int // of the table; 0 = none
	fence, expiry bool
}

func (p *present) complete() bool { return p.version == version && p.fence && p.expiry }

// inspect looks without changing anything. The error tells why the table cannot be the store's.
func (s *Store) inspect(ctx context.Context, tx pgx.Tx) (*present, error) {
	var encoding, comment string
	var oid uint32
	p := new(present)
	// An own column order would not matter: statements name their columns.
	const look = `SELECT current_setting('server_encoding'), coalesce(to_regclass($1)::oid, 0),
		coalesce(obj_description(to_regclass($1), 'pg_class'), ''), to_regclass($2) IS NOT NULL, to_regclass($3) IS NOT NULL`
	if err := tx.QueryRow(ctx, look, s.sql.table, s.sql.fence, s.sql.index).Scan(&encoding, &oid, &comment, &p.fence, &p.expiry); err != nil {
		return nil, err
	}
	if encoding != "UTF8" {
		return nil, fmt.Errorf("the database's encoding is %s, which cannot hold every key; it must be UTF8 (CREATE DATABASE … ENCODING 'UTF8')", encoding)
	}
	if oid == 0 {
		return p, nil
	}
	p.version = version // where people have written a comment of their own, the columns tell
	if number, ok := strings.CutPrefix(comment, mark); ok {
		if _, err := fmt.Sscan(number, &p.version); err != nil || p.version < 1 {
			return nil, fmt.Errorf("table %s has the comment %q, want a number after %q", s.sql.name, comment, mark)
		}
	}
	if p.version > version {
		return nil, fmt.Errorf("table %s is of version %d, made by a newer pgstore; this one knows up to %d: update this program", s.sql.name, p.version, version)
	}
	return p, s.checkColumns(ctx, tx, oid)
}

// checkColumns finds the table that only has the name of ours.
func (s *Store) checkColumns(ctx context.Context, tx pgx.Tx, oid uint32) error {
	rows, err := tx.Query(ctx, `SELECT attname::text, format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped`, oid)
	if err != nil {
		return err
	}
	have := make(map[string]string)
	var name, kind string
	if _, err := pgx.ForEachRow(rows, []any{&name, &kind}, func() error { have[name] = kind; return nil }); err != nil {
		return err
	}
	var wrong []string
	for name, kind := range wanted {
		switch got := have[name]; got {
		case kind:
		case "":
			wrong = append(wrong, "no column "+name)
		default:
			wrong = append(wrong, fmt.Sprintf("column %s is %s, want %s", name, got, kind))
		}
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		return fmt.Errorf("table %s is not this store's: %s; choose another Options.Table", s.sql.name, strings.Join(wrong, "; "))
	}
	var unique bool
	const key = `SELECT EXISTS (SELECT FROM pg_index WHERE indrelid = $1 AND indisunique AND indpred IS NULL AND indnkeyatts = 2 AND
		(SELECT array_agg(a.attname::text ORDER BY a.attname) FROM pg_attribute a WHERE a.attrelid = indrelid AND a.attnum = ANY (indkey)) = '{key,scope}')`
	if err := tx.QueryRow(ctx, key, oid).Scan(&unique); err != nil {
		return err
	}
	if !unique {
		return fmt.Errorf("table %s has no primary key on (scope, key), without which two claims could win one key", s.sql.name)
	}
	return nil
}

// turn is the number of the advisory lock under which starters take turns, whatever their tables: it ends with the
// transaction, so that it works through a pooler.
const turn = 0x6f6e636571 // "onceq"

func (s *Store) migrate(ctx context.Context, tx pgx.Tx) (bool, error) {
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, turn); err != nil {
		return false, err
	}
	if s.sql.schema != "" {
		// IF NOT EXISTS wants the right to create even where it is there.
		var there bool
		if err := tx.QueryRow(ctx, `SELECT to_regnamespace($1) IS NOT NULL`, `"`+s.sql.schema+`"`).Scan(&there); err != nil {
			return false, err
		}
		if !there {
			if _, err := tx.Exec(ctx, `CREATE SCHEMA "`+s.sql.schema+`"`); err != nil {
				return false, err
			}
		}
	}
	have, err := s.inspect(ctx, tx)
	if err != nil {
		return false, err
	}
	var todo []string
	for v := have.version; v < version; v++ {
		todo = append(todo, steps[v]...)
	}
	if have.version < version {
		todo = append(todo, fmt.Sprintf(`COMMENT ON TABLE {table} IS '%s%d'`, mark, version))
	}
	if !have.expiry {
		todo = append(todo, `CREATE INDEX {index} ON {table} (expires) WHERE expires IS NOT NULL`)
	}
	fill := strings.NewReplacer("{table}", s.sql.table, "{index}", s.sql.bare(s.sql.index))
	for _, q := range todo {
		if _, err := tx.Exec(ctx, fill.Replace(q)); err != nil {
			return false, err
		}
	}
	if have.fence {
		return true, nil
	}
	return true, s.makeFence(ctx, tx)
}

// bare is a name without its schema, which CREATE INDEX takes from the table.
func (st *statements) bare(name string) string { return name[strings.LastIndex(name, ".")+1:] }

// makeFence makes the sequence. It starts at the clock's microseconds, above all that an earlier table here gave out,
// so that no old dead letter names a new failure. The table does not own it: TRUNCATE … RESTART IDENTITY would
// begin it anew.
func (s *Store) makeFence(ctx context.Context, tx pgx.Tx) error {
	var start int64
	const first = `SELECT greatest((extract(epoch FROM clock_timestamp()) * 1000000)::bigint, (SELECT max(fence) + 1 FROM {table}))`
	if err := tx.QueryRow(ctx, strings.ReplaceAll(first, "{table}", s.sql.table)).Scan(&start); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, fmt.Sprintf(`CREATE SEQUENCE %s AS bigint MINVALUE 1 START WITH %d CACHE 1`, s.sql.fence, start))
	return err
}

// sweepRows names the statuses although the others have no expiry: a row that was mended by hand must not lose its
// claim. The clock stands in a subquery, which the index can be searched for.
const sweepRows = `WITH old AS MATERIALIZED (
	SELECT scope, key FROM {table}
	WHERE expires <= (SELECT clock_timestamp()) AND status IN ('done', 'failed', 'released')
	ORDER BY expires LIMIT $1 FOR UPDATE SKIP LOCKED
)
DELETE FROM {table} t USING old WHERE t.scope = old.scope AND t.key = old.key`

// sweepBatch keeps each transaction of a sweep short.
const sweepBatch = 1000

// Sweep deletes records whose retention has ended, the oldest first and at most limit of them (0 or less: all), and
// says how many. It works in transactions of 1,000 rows and waits for no row, so that any number of workers may
// sweep at once; on an error the count is of the transactions before it. Nothing depends on it but the size of the table: an
// expired record counts as absent.
func (s *Store) Sweep(ctx context.Context, limit int) (int, error) {
	total := 0
	for limit <= 0 || total < limit {
		if err := s.ready(ctx, 0); err != nil {
			return total, err
		}
		n := sweepBatch
		if limit > 0 {
			n = min(n, limit-total)
		}
		gone := 0
		p := newPipeline()
		p.b.Queue(s.sql.sweep, n).Exec(func(tag pgconn.CommandTag) error {
			gone = int(tag.RowsAffected())
			return nil
		})
		if err := p.run(ctx, s.db); err != nil {
			return total, s.explain(ctx, "Sweep", err)
		}
		total += gone
		if gone < n {
			break
		}
	}
	return total, nil
}
