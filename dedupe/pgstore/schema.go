package pgstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onceq/onceq/internal/records"
)

// This file owns the SQL of one table: its names, its versions, and Sweep. New and Migrate make the
// statements, which never change afterwards.

const (
	defaultTable = "onceq_dedupe"
	// version is that of the table that this package makes and reads.
	version = 2
	// oldestReader is the oldest version of this package that works on such a table. The older
	// ones leave alone what was added since, because their statements name their columns.
	oldestReader = 1
	// mark begins the table's comment, before oldestReader: a package refuses a table whose number
	// is above its own version.
	mark = "onceq dedupe records, version "
	// added goes behind the number.
	added = "; with what version 2 adds"
)

// splitTable finds names that cannot stand in a statement as they are.
func splitTable(name string) (schema, table string, err error) {
	table = name
	if before, after, ok := strings.Cut(name, "."); ok {
		schema, table = before, after
		if err := records.CheckName("pgstore: Options.Table: the name of the schema", schema); err != nil {
			return "", "", err
		}
		if strings.HasPrefix(schema, "pg_") || schema == "information_schema" {
			return "", "", fmt.Errorf("pgstore: Options.Table is %q; the schema %s is PostgreSQL's own", name, schema)
		}
	}
	return schema, table, records.CheckName("pgstore: Options.Table: the name of the table", table)
}

// statements is the SQL of one table. They name the schema of all functions, types and operators
// that the grammar does not name itself. So they mean PostgreSQL's own, whatever the search_path is
// and whoever may create in its schemas.
type statements struct {
	name                                                                string // as people write it
	table, fence                                                        string // as statements do
	insert, read, readState, change, renew, lock, settle, remove, sweep string
	word, note                                                          string
	finish, commit                                                      [plans]string // by plan
}

// operators are those of PostgreSQL, as {=}. All of them bind alike: parentheses must tell which
// comes first.
var operators = strings.NewReplacer("{=}", own("="), "{<>}", own("<>"), "{<}", own("<"), "{<=}", own("<="), "{>}", own(">"), "{>=}", own(">="),
	"{+}", own("+"), "{-}", own("-"), "{*}", own("*"))

func own(operator string) string { return "OPERATOR(pg_catalog." + operator + ")" }

func newStatements(schema, table string) *statements {
	quote := func(name string) string {
		if schema == "" {
			return pgx.Identifier{name}.Sanitize()
		}
		return pgx.Identifier{schema, name}.Sanitize()
	}
	st := &statements{name: table, table: quote(table), fence: quote(table + "_fence")}
	if schema != "" {
		st.name = schema + "." + table
	}
	fill := st.fill
	st.insert = fill(insertFresh)
	st.read = fill(readGiven)
	st.readState = fill(readState)
	st.change = fill(changeRead)
	st.renew = fill(renewOwn)
	st.lock = fill(lockRow)
	st.settle = fill(settleOwn)
	st.word = fill(settleWord)
	st.note = fill(noteLate)
	st.remove = fill(removeRead)
	st.sweep = fill(sweepRows)
	finish, commit := fill(finishOwn), fill(commitOwn)
	for n := range st.finish {
		st.finish[n] = fmt.Sprintf("%s /* plan %d */", finish, n)
		st.commit[n] = fmt.Sprintf("%s /* plan %d */", commit, n)
	}
	return st
}

// fill puts the table's names and PostgreSQL's operators into a statement.
func (st *statements) fill(sql string) string {
	fence := strings.ReplaceAll(st.fence, "'", "''")
	return operators.Replace(strings.NewReplacer("{table}", st.table, "{sequence}", st.fence, "{fence}", fence, "{columns}", columns).Replace(sql))
}

// createTable makes a table of this version. The columns of a fixed size come first, because
// PostgreSQL would align each that stands behind a text: 7 bytes a row.
const createTable = `CREATE TABLE {table} (
	fence bigint NOT NULL,
	created pg_catalog.timestamptz NOT NULL,
	claimed_at pg_catalog.timestamptz NOT NULL,
	updated pg_catalog.timestamptz NOT NULL,
	sent pg_catalog.timestamptz,
	lease_until pg_catalog.timestamptz,
	finished pg_catalog.timestamptz,
	expires pg_catalog.timestamptz,
	token pg_catalog.uuid NOT NULL,
	attempt integer NOT NULL,
	started boolean NOT NULL,
	scope pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	key pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	status pg_catalog.text NOT NULL CHECK (status {=} 'claimed' OR status {=} 'released' OR status {=} 'done' OR status {=} 'failed' OR status {=} 'parked'),
	policy pg_catalog.text NOT NULL CHECK (policy {=} 'rerun' OR policy {=} 'park'),
	owner pg_catalog.text NOT NULL,
	message_id pg_catalog.text NOT NULL,
	error_class pg_catalog.text NOT NULL,
	first_error pg_catalog.text NOT NULL,
	last_error pg_catalog.text NOT NULL,
	fingerprint pg_catalog.bytea,
	result pg_catalog.bytea,
	state pg_catalog.bytea,
	past pg_catalog.bytea,
	PRIMARY KEY (scope, key)
)`

// addColumns leads from version 1 to version 2. Columns without a default touch no row.
const addColumns = `ALTER TABLE {table} ADD COLUMN IF NOT EXISTS past pg_catalog.bytea, ADD COLUMN IF NOT EXISTS sent pg_catalog.timestamptz`

// createAttention makes the index of what people look for: what failed, was parked, or waits for
// another attempt. A job that is claimed and done never enters it.
const createAttention = `(status, scope, key) WHERE status {=} 'failed' OR status {=} 'parked' OR status {=} 'released'`

// sweepRows names the statuses although the others have no expiry: a row that was mended by hand
// must not lose its claim. The clock stands in a subquery, which the index can be searched for.
const sweepRows = `WITH old AS MATERIALIZED (
	SELECT ` + placed + ` FROM {table} t
	WHERE expires {<=} (SELECT pg_catalog.clock_timestamp()) AND (status {=} 'done' OR status {=} 'failed' OR status {=} 'released')
	ORDER BY expires LIMIT $1::bigint FOR UPDATE SKIP LOCKED
)
DELETE FROM {table} t USING old g WHERE ` + atPlace

// sweepBatch keeps each transaction of a sweep short.
const sweepBatch = 1000

// Sweep deletes records whose retention has ended, the oldest first and at most limit of them; 0 or
// less means all. It returns how many. It works in transactions of 1,000 rows and waits for no row,
// so that any number of workers may sweep at once. After an error the number is that of the
// transactions before it. Only the size of the table depends on it, because an expired record
// counts as absent.
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
		p.b.Queue(s.sql().sweep, n).Exec(func(tag pgconn.CommandTag) error {
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
