package pgbroker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/onceq/onceq/internal/pgkit"
)

// This file owns Migrate: what it looks at, and what it makes. Every starter calls it. An advisory
// lock of PostgreSQL, until the end of the transaction, lets starters take turns while something is
// made.

// wanted are the columns of this version and their types.
var wanted = map[string]uint32{
	"seq": pgtype.Int8OID, "queue": pgtype.TextOID, "due": pgtype.TimestamptzOID, "attempts": pgtype.Int4OID, "held": pgtype.BoolOID,
	"waits": pgtype.BoolOID, "fresh": pgtype.BoolOID, "grp": pgtype.TextOID, "published": pgtype.TimestamptzOID, "meta": pgtype.TextOID,
	"attributes": pgtype.JSONOID, "body": pgtype.ByteaOID,
}

// Migrate makes what is missing: the table, its indexes, and the schema if [Options].Table names
// one. Run it at every start. Several starters at once take turns. If nothing is missing it needs
// no right to create, and writes nothing.
//
// While it makes an index that is missing, sends, receives and settlements wait: 1.3 s where the
// table has 1.5 million rows. Where somebody's transaction has written to the table, Migrate tries
// for 20 s, half a second at a time, and then answers [broker.ErrThrottled], with the number of the
// process whose transaction is open.
//
// In a copy of the table without its sequence (logical replication, pg_dump --schema-only and then
// the rows), Migrate lets the rows' numbers go on behind the last row. The table's owner may do
// that, and who has SELECT on seq and USAGE, SELECT and UPDATE on the sequence. For any other role
// Migrate leaves the numbers, and sends are refused as duplicates until a role that may has run it.
//
// Migrate refuses, with the reason:
//
//   - a table of that name that is not a table of messages, or is of a newer version,
//   - a server before version 13, and a database whose encoding is not UTF8,
//   - settings with which pgx sends no call of the queue, such as client_encoding LATIN1 with the
//     simple protocol.
func (q *Queue) Migrate(ctx context.Context) error {
	const call = "Migrate"
	if err := q.ready(ctx, call, 1, 1); err != nil {
		return err
	}
	var have *present
	err := q.transact(ctx, func(tx pgx.Tx) (err error) {
		have, err = q.inspect(ctx, tx)
		return err
	})
	if err == nil && !have.whole() {
		have, err = q.mend(ctx)
	}
	if err != nil {
		return q.explain(ctx, call, err)
	}
	st := newStatements(have.schema, q.table)
	st.name = q.sql().name
	q.st.Store(st)
	q.database.Store(&have.database)
	return q.explain(ctx, call, pgkit.Ask(ctx, q.db, newPipeline))
}

// CREATE INDEX waits for all transactions that have written to the table, and whoever sends,
// receives or settles waits behind it meanwhile. So it waits for a moment, and is tried again after
// a pause in which the others go on.
const (
	indexTimeout = "500ms"
	indexPause   = time.Second
	indexTries   = 20 * time.Second
)

// mend makes what is missing.
func (q *Queue) mend(ctx context.Context) (have *present, err error) {
	var refused error
	for begun := time.Now(); refused == nil || time.Since(begun) < indexTries; {
		err := q.transact(ctx, func(tx pgx.Tx) (err error) {
			have, err = q.migrate(ctx, tx)
			return err
		})
		switch {
		case pgkit.State(err) == pgkit.LockNotAvailable:
			refused = q.nameHolder(ctx, err)
		case ctx.Err() == nil || refused == nil:
			return have, err
		}
		select {
		case <-ctx.Done():
			return nil, refused
		case <-time.After(indexPause):
		}
	}
	return nil, refused
}

// holder is the oldest transaction that has written to the table. Of a prepared one there is no
// process.
const holder = `SELECT coalesce(l.pid, 0), coalesce((pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() {-} a.xact_start))::bigint, 0::bigint)
FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid {=} l.pid
WHERE l.locktype {=} 'relation'::pg_catalog.text AND l.granted AND l.relation {=} pg_catalog.to_regclass($1::pg_catalog.text)::pg_catalog.oid
	AND l.database {=} (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname {=} pg_catalog.current_database())
	AND l.mode {<>} ALL (ARRAY['AccessShareLock', 'RowShareLock', 'ShareLock']::pg_catalog.text[])
ORDER BY a.xact_start LIMIT 1`

// nameHolder says whose transaction a missing index waits for, where that can be seen.
func (q *Queue) nameHolder(ctx context.Context, refused error) error {
	var pid int32
	var seconds int64
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	err := q.transact(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, pgkit.Operators(holder), pgkit.Quote(q.schema, q.table)).Scan(&pid, &seconds)
	})
	who := fmt.Sprintf("process %d, for %v (see pg_stat_activity)", pid, time.Duration(seconds)*time.Second)
	switch {
	case err != nil:
		return refused
	case pid == 0:
		who = "nobody: it is prepared (see pg_prepared_xacts)"
	}
	return fmt.Errorf("an index of table %s is missing, and waits for a transaction that has written to the table; it is open in %s: %w", q.sql().name, who, refused)
}

// transact is [pgkit.Transact].
func (q *Queue) transact(ctx context.Context, do func(pgx.Tx) error) error {
	return pgkit.Transact(ctx, q.db, `, pg_catalog.set_config('lock_timeout', '10s', true)`, do)
}

// present is what is there of the table.
type present struct {
	schema   string // the table's, or where it is to be made; empty = none
	database string
	version  int      // of the table; 0 = none
	indexes  []string // the suffixes of those that are there
	low      bool     // rows have numbers that are still to be given
}

func (p *present) whole() bool {
	return p.version == version && len(p.indexes) == len(indexes) && !p.low
}

// look finds the table as statements would, and beside it what belongs to it. It does not use
// obj_description, because before version 14 the operators within that are the search_path's.
const lookAtTable = `SELECT pg_catalog.current_setting('server_version_num')::integer, pg_catalog.current_setting('server_version'),
	pg_catalog.current_setting('server_encoding'), pg_catalog.current_database()::pg_catalog.text, coalesce(n.nspname::pg_catalog.text, ''),
	coalesce(c.oid, 0::pg_catalog.oid), coalesce((SELECT d.description FROM pg_catalog.pg_description d
		WHERE d.objoid {=} c.oid AND d.classoid {=} 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid AND d.objsubid {=} 0), ''),
	ARRAY(SELECT f.relname::pg_catalog.text FROM pg_catalog.pg_class f JOIN pg_catalog.unnest($2::pg_catalog.text[]) AS u (name) ON f.relname {=} u.name::pg_catalog.name
		WHERE f.relnamespace {=} n.oid)
FROM (SELECT pg_catalog.to_regclass($1::pg_catalog.text)::pg_catalog.oid AS oid) given
LEFT JOIN pg_catalog.pg_class c ON c.oid {=} given.oid
LEFT JOIN pg_catalog.pg_namespace n ON CASE WHEN c.oid IS NULL THEN n.nspname {=} coalesce($3::pg_catalog.name, pg_catalog.current_schema())
	ELSE n.oid {=} c.relnamespace END`

// inspect looks without changing anything. The error tells why the table cannot be ours.
func (q *Queue) inspect(ctx context.Context, tx pgx.Tx) (*present, error) {
	var number int
	var server, encoding, comment string
	var oid uint32
	p := new(present)
	schema := pgtype.Text{String: q.schema, Valid: q.schema != ""}
	var names []string
	for _, x := range indexes {
		names = append(names, q.table+x.suffix)
	}
	err := tx.QueryRow(ctx, pgkit.Operators(lookAtTable), pgkit.Quote(q.schema, q.table), names, schema).
		Scan(&number, &server, &encoding, &p.database, &p.schema, &oid, &comment, &p.indexes)
	if err == nil {
		err = pgkit.CheckServer("pgbroker", "group", number, server, encoding)
	}
	if err != nil {
		return nil, err
	}
	if oid == 0 {
		if q.schema != "" {
			p.schema = q.schema
		}
		p.indexes = nil
		return p, nil
	}
	number, found, err := pgkit.Version(q.sql().name, comment, mark)
	if err != nil {
		return nil, err
	}
	if p.version = version; found { // where people have written a comment of their own, the columns tell
		p.version = number
	}
	if p.version > version {
		return nil, pgkit.Newer("pgbroker", q.sql().name, p.version, version)
	}
	if err := q.checkColumns(ctx, tx, oid); err != nil {
		return nil, err
	}
	p.low, err = q.isLow(ctx, tx, p, oid)
	return p, err
}

// A copy of the table without its sequence (logical replication, pg_dump --schema-only) gives out
// numbers that its rows have: sends would be refused, and a message of a group would come before
// those that wait.
const (
	mayRaise = `SELECT coalesce(pg_catalog.current_setting('transaction_read_only') {=} 'off' AND pg_catalog.has_column_privilege($2::pg_catalog.oid, 'seq', 'SELECT')
	AND pg_catalog.has_sequence_privilege(s.oid, 'UPDATE') AND pg_catalog.has_sequence_privilege(s.oid, 'USAGE, SELECT'), false)
FROM (SELECT ` + numbers + ` AS oid) s`
	numbers = `pg_catalog.pg_get_serial_sequence($1::pg_catalog.text, 'seq')::pg_catalog.regclass::pg_catalog.oid`

	lowNumbers = `FROM pg_catalog.pg_sequence s WHERE s.seqrelid {=} ` + numbers + `
	AND coalesce(pg_catalog.pg_sequence_last_value(s.seqrelid::pg_catalog.regclass), s.seqstart {-} 1::bigint) {<} (SELECT pg_catalog.max(t.seq) FROM {table} t)`
	// The gap is for those who send between the look and the setting.
	raiseNumbers = `SELECT pg_catalog.setval(s.seqrelid::pg_catalog.regclass, (SELECT pg_catalog.max(t.seq) FROM {table} t) {+} 1000000::bigint) ` + lowNumbers
)

// isLow reports whether the sequence is behind the rows, and this role may raise it.
func (q *Queue) isLow(ctx context.Context, tx pgx.Tx, p *present, oid uint32) (low bool, err error) {
	table := pgkit.Quote(p.schema, q.table)
	var may bool
	if err := tx.QueryRow(ctx, pgkit.Operators(mayRaise), table, oid).Scan(&may); err != nil || !may {
		return false, err
	}
	err = tx.QueryRow(ctx, newStatements(p.schema, q.table).fill(`SELECT EXISTS (SELECT `+lowNumbers+`)`), table).Scan(&low)
	return low, err
}

// checkColumns finds the table that only has the name of ours.
func (q *Queue) checkColumns(ctx context.Context, tx pgx.Tx, oid uint32) error {
	have, err := pgkit.Columns(ctx, tx, oid)
	if err != nil {
		return err
	}
	var wrong []string
	for name, oid := range wanted {
		if why := pgkit.WrongColumn(tx, have, name, oid, name == "queue" || name == "grp"); why != "" {
			wrong = append(wrong, why)
		} else if name == "seq" && !have[name].HasDefault {
			wrong = append(wrong, "column seq has no numbers of its own; it needs GENERATED ALWAYS AS IDENTITY")
		}
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		return fmt.Errorf("table %s is no table of messages: %s; choose another Options.Table", q.sql().name, strings.Join(wrong, "; "))
	}
	return nil
}

func (q *Queue) migrate(ctx context.Context, tx pgx.Tx) (*present, error) {
	if err := pgkit.BeginMigration(ctx, tx, q.schema); err != nil {
		return nil, err
	}
	have, err := q.inspect(ctx, tx)
	if err != nil {
		return nil, err
	}
	if have.schema == "" {
		return nil, pgkit.ErrNoSchema
	}
	st := newStatements(have.schema, q.table)
	var todo []string
	for v := have.version; v < version; v++ {
		todo = append(todo, steps[v]...)
	}
	if have.version < version {
		todo = append(todo, fmt.Sprintf(`COMMENT ON TABLE {table} IS '%s%d'`, mark, version))
	}
	for _, x := range indexes {
		if !slices.Contains(have.indexes, q.table+x.suffix) {
			todo = append(todo, `CREATE INDEX `+pgx.Identifier{q.table + x.suffix}.Sanitize()+` ON {table} `+x.of)
		}
	}
	if _, err := tx.Exec(ctx, `SELECT pg_catalog.set_config('lock_timeout', $1::pg_catalog.text, true)`, indexTimeout); err != nil {
		return nil, err
	}
	for _, do := range todo {
		if _, err := tx.Exec(ctx, st.fill(do)); err != nil {
			return nil, err
		}
	}
	if have.low {
		_, err = tx.Exec(ctx, st.fill(raiseNumbers), st.table)
	}
	return have, err
}
