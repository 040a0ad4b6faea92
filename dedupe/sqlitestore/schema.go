package sqlitestore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/records"
	"github.com/onceq/onceq/internal/sqlitewriter"
)

// This file owns the SQL of one table, Migrate and Sweep. Both write through the store's writer;
// the file's write lock is SQLite's.

const (
	defaultTable = "onceq_dedupe"

	// migratePatience: a start that finds another starter at work should wait for it.
	migratePatience = 10 * time.Second
	// sweepBatch keeps each transaction of a sweep short.
	sweepBatch = 500
)

// checkTable finds names that cannot stand in a statement as they are.
func checkTable(s string) error {
	if err := records.CheckName("sqlitestore: Options.Table", s); err != nil {
		return err
	}
	if strings.HasPrefix(strings.ToLower(s), "sqlite_") {
		return fmt.Errorf("sqlitestore: Options.Table is %q; names that begin with sqlite_ are SQLite's own", s)
	}
	return nil
}

// statements is the SQL of one table.
type statements struct {
	table, fenceTable                          string
	schema                                     []string
	attention, missing, addColumn              string
	initFence, raiseFence                      string
	readFence, writeFence                      string
	read, write, remove, sweep, complete, list string
	result, lock                               string
	count, byStatus                            string
	parts, unswept                             string
}

func newStatements(table string) statements {
	fence := table + "_fence"
	fill := strings.NewReplacer(
		"{table}", `"`+table+`"`, "{attention}", `"`+table+`_attention"`, "{fence}", `"`+fence+`"`, "{name}", "'"+table+"'", "{index}", `"`+table+`_expires"`,
		"{columns}", strings.Join(columns, ", "),
		"{marks}", strings.Repeat("?, ", len(columns)-1)+"?",
		"{updates}", updates(),
	).Replace
	return statements{
		table: table, fenceTable: fence,
		schema:    []string{fill(createTable), fill(createIndex), fill(createFence)},
		attention: fill(createAttention),
		missing:   fill(missingColumn),
		addColumn: fill(`ALTER TABLE {table} ADD COLUMN `),
		// The fence starts at the clock's microseconds, and is raised to them. So it stays above
		// all fences that were given out before: by an earlier file at this place, or by this one
		// before it was restored from a backup. No old dead letter names a new failure.
		initFence:  fill(`INSERT OR IGNORE INTO {fence} (id, fence) VALUES (1, ?)`),
		raiseFence: fill(`UPDATE {fence} SET fence = ?1 WHERE id = 1 AND fence < ?1`),
		readFence:  fill(`SELECT fence FROM {fence} WHERE id = 1`),
		writeFence: fill(`UPDATE {fence} SET fence = ? WHERE id = 1`),
		read:       fill(`SELECT {columns} FROM {table} WHERE scope = ? AND key = ?`),
		write:      fill(`INSERT INTO {table} ({columns}) VALUES ({marks}) ON CONFLICT (scope, key) DO UPDATE SET {updates}`),
		remove:     fill(`DELETE FROM {table} WHERE scope = ? AND key = ?`),
		sweep:      fill(sweepRows),
		complete:   fill(completeRow),
		result:     fill(addResult),
		lock:       fill(`UPDATE {fence} SET fence = fence WHERE id = 0`), // there is none
		list:       fill(`SELECT {columns} FROM {table}`),
		count:      fill(`SELECT scope, status, count(*) FROM {table}`),
		byStatus:   fill(` INDEXED BY {attention}`),
		parts:      fill(countParts),
		unswept:    fill(countUnswept),
	}
}

func updates() string {
	var b strings.Builder
	for i, c := range columns[2:] {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(c + " = excluded." + c)
	}
	return b.String()
}

const createTable = `CREATE TABLE IF NOT EXISTS {table} (
	scope TEXT NOT NULL,
	key TEXT NOT NULL,
	status TEXT NOT NULL,
	fence INTEGER NOT NULL,
	token BLOB NOT NULL,
	attempt INTEGER NOT NULL,
	started INTEGER NOT NULL,
	policy TEXT NOT NULL,
	owner TEXT NOT NULL,
	message_id TEXT NOT NULL,
	lease_until TEXT,
	fingerprint BLOB,
	result BLOB,
	state BLOB,
	error_class TEXT NOT NULL,
	first_error TEXT NOT NULL,
	last_error TEXT NOT NULL,
	created TEXT NOT NULL,
	claimed_at TEXT NOT NULL,
	updated TEXT NOT NULL,
	finished TEXT,
	expires TEXT,
	past BLOB,
	sent TEXT,
	PRIMARY KEY (scope, key)
) STRICT, WITHOUT ROWID`

const createIndex = `CREATE INDEX IF NOT EXISTS {index} ON {table} (expires) WHERE expires IS NOT NULL`

// newColumns are those that a table of version 1 has not.
var newColumns = [...]string{"past BLOB", "sent TEXT"}

// missingColumn reports whether the table has no such column.
const missingColumn = `SELECT NOT EXISTS (SELECT 1 FROM pragma_table_info({name}) WHERE name = ?)`

// createAttention makes the index of what people look for: what failed, was parked, or waits for
// another attempt. A job that is claimed and done never enters it.
const createAttention = `CREATE INDEX IF NOT EXISTS {attention} ON {table} (status, scope, key)
	WHERE status = 'failed' OR status = 'parked' OR status = 'released'`

const createFence = `CREATE TABLE IF NOT EXISTS {fence} (
	id INTEGER PRIMARY KEY CHECK (id = 1),
	fence INTEGER NOT NULL
) STRICT`

// sweepRows names the statuses, although the others have no expiry, because a row that was mended
// by hand must not lose its claim.
const sweepRows = `DELETE FROM {table} WHERE (scope, key) IN (
	SELECT scope, key FROM {table}
	WHERE expires <= ? AND status IN ('done', 'failed', 'released')
	ORDER BY expires LIMIT ?)`

// completeRow is the row "own claim" and the row "late word of the parked claim" of the settlement
// to done, as one conditional statement.
const completeRow = `UPDATE {table} SET status = 'done', result = ?, error_class = '', first_error = '', last_error = '',
	message_id = '', state = NULL, lease_until = NULL, updated = ?, finished = ?, expires = ?
	WHERE scope = ? AND key = ? AND token = ? AND status IN ('claimed', 'parked')`

// addResult adds to a completion what is known when the transaction's effects are there.
const addResult = `UPDATE {table} SET result = ?, updated = ?, finished = ?, expires = ?
	WHERE scope = ? AND key = ? AND token = ? AND status = 'done'`

// Migrate makes the tables and indexes that are missing, and gives a table of an older version what
// it lacks, while older workers may be at work on the file. It also raises the fence to the clock's
// microseconds, so that a file that was restored from a backup gives out no fence a second time. It
// may run at every start, and by several starters at once. It waits up to 10 s for the file's write
// lock, then answers [dedupe.ErrBusy]. It refuses a database without a file, such as ":memory:".
//
// On an older file it builds an index under the write lock, once: about a second for a million
// records, in which calls of others wait or answer ErrBusy.
func (s *Store) Migrate(ctx context.Context) error {
	return s.do(ctx, migratePatience, 1, func(t *txn) error {
		if _, err := t.File(); err != nil {
			return err
		}
		for _, q := range s.sql.schema {
			if _, err := t.Exec(q); err != nil {
				return err
			}
		}
		for _, c := range newColumns {
			name, _, _ := strings.Cut(c, " ")
			var missing bool
			if err := t.Scan(s.sql.missing, []any{name}, &missing); err != nil {
				return err
			}
			if missing {
				if _, err := t.Exec(s.sql.addColumn + c); err != nil {
					return err
				}
			}
		}
		if _, err := t.Exec(s.sql.attention); err != nil {
			return err
		}
		for _, q := range []string{s.sql.initFence, s.sql.raiseFence} {
			if _, err := t.Exec(q, t.Now.UnixMicro()); err != nil {
				return err
			}
		}
		return nil
	})
}

var _ dedupe.FenceRaiser = (*Store)(nil)

// fenceGap is for what other processes have been given that the caller of RaiseFence has not seen.
const fenceGap = 10_000_000

// RaiseFence raises the fence to the clock's microseconds, as [Store.Migrate] does, and to ten
// million above known. A worker calls it when the file went back in time under it.
func (s *Store) RaiseFence(ctx context.Context, known uint64) (back bool, err error) {
	err = s.do(ctx, s.busy, 1, func(t *txn) error {
		_, err := t.Exec(s.sql.raiseFence, max(t.Now.UnixMicro(), int64(known)+fenceGap))
		return err
	})
	return err == nil, err
}

// Sweep deletes records whose retention has ended, the oldest first and at most limit of them; 0 or
// less means all. It returns how many. It works in short transactions, so that others get their
// turn. After an error the number is that of the transactions before it. Only the size of the file
// depends on it, because an expired record counts as absent.
func (s *Store) Sweep(ctx context.Context, limit int) (int, error) {
	total := 0
	for limit <= 0 || total < limit {
		n := sweepBatch
		if limit > 0 {
			n = min(n, limit-total)
		}
		var gone int64
		err := s.do(ctx, s.busy, maxBatch, func(t *txn) error {
			res, err := t.Exec(s.sql.sweep, sqlitewriter.TimeText(t.Now), n)
			if err != nil {
				return err
			}
			gone, err = res.RowsAffected()
			return err
		})
		if err != nil {
			return total, err
		}
		total += int(gone)
		if int(gone) < n {
			break
		}
	}
	return total, nil
}
