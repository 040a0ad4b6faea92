package pgstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/pgkit"
	"github.com/onceq/onceq/internal/retry"
)

// This file owns Migrate: what it looks at, what it makes, and how it raises the sequence of
// fences. Every starter calls it. Two advisory locks of PostgreSQL, both until the end of the
// transaction, let starters take turns: turn while something is made, and turn plus the sequence's
// oid while it is raised.

// wanted are the columns that every version has, and their types; see newer.
var wanted = map[string]uint32{
	"scope": pgtype.TextOID, "key": pgtype.TextOID, "status": pgtype.TextOID, "fence": pgtype.Int8OID, "token": pgtype.UUIDOID,
	"attempt": pgtype.Int4OID, "started": pgtype.BoolOID, "policy": pgtype.TextOID, "owner": pgtype.TextOID, "message_id": pgtype.TextOID,
	"lease_until": pgtype.TimestamptzOID, "fingerprint": pgtype.ByteaOID, "result": pgtype.ByteaOID, "state": pgtype.ByteaOID,
	"error_class": pgtype.TextOID, "first_error": pgtype.TextOID, "last_error": pgtype.TextOID, "created": pgtype.TimestamptzOID,
	"claimed_at": pgtype.TimestamptzOID, "updated": pgtype.TimestamptzOID, "finished": pgtype.TimestamptzOID, "expires": pgtype.TimestamptzOID,
}

// newer are the columns that a table of version 1 has not.
var newer = map[string]uint32{"past": pgtype.ByteaOID, "sent": pgtype.TimestamptzOID}

// Migrate makes what is missing: the table, its indexes, the sequence of fences, and the schema if
// [Options].Table names one. A table of an older version gets what it lacks. Run it at every start.
// Several starters at once take turns.
//
// If nothing is missing it needs no right to create, and writes to the sequence alone. It keeps the
// sequence a minute ahead of the clock's microseconds, if the role has the right, because a
// database that was copied without its sequences, or restored, must not give out a fence a second
// time.
//
// Workers of the older version may be at work meanwhile, and may start afterwards. Two columns are
// added, under a lock that Migrate waits for 200 ms at a time, for a minute; then the answer is
// [dedupe.ErrBusy]. An index is built without a lock (CREATE INDEX CONCURRENTLY). One starter
// builds it, the others go on. The builder waits for all transactions of the database that are
// older than its own, so give ctx an end where some last for hours. What an interrupted build has
// left, the next start removes. Changing a table that is there takes its owner's rights.
//
// Migrate refuses, with the reason:
//
//   - a table of that name that is not the store's, or that only a newer version can read,
//   - a server before version 13, and a database whose encoding is not UTF8,
//   - settings with which pgx sends no call of the store, such as client_encoding LATIN1 with the
//     simple protocol.
func (s *Store) Migrate(ctx context.Context) error {
	if err := s.ready(ctx, 0); err != nil {
		return err
	}
	var have *present
	err := s.transact(ctx, func(tx pgx.Tx) (err error) {
		if have, err = s.inspect(ctx, tx); err == nil && have.whole() {
			err = s.raise(ctx, tx, have)
		}
		return err
	})
	if err == nil && !have.whole() {
		have, err = s.complement(ctx)
	}
	if err == nil && have.attention != ready {
		err = s.buildAttention(ctx, have)
	}
	if err != nil {
		return s.explain(ctx, "Migrate", err)
	}
	st := newStatements(have.schema, s.table)
	st.name = s.sql().name
	s.st.Store(st)
	return s.explain(ctx, "Migrate", pgkit.Ask(ctx, s.db, newPipeline))
}

// complement makes what is missing, as far as a transaction can. Whoever holds the table lets go of
// it in the end.
func (s *Store) complement(ctx context.Context) (have *present, err error) {
	var held *heldError
	for n := 1; ; n++ {
		err = s.transact(ctx, func(tx pgx.Tx) (err error) {
			have, err = s.migrate(ctx, tx)
			return err
		})
		if !errors.As(err, &held) || n == alterTries || !retry.Rest(ctx, alterPause(n)) {
			break
		}
	}
	if err != nil && held != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w (before that, %v)", err, held) //nolint:errorlint // only the first decides
	}
	return have, err
}

// transact is [pgkit.Transact].
func (s *Store) transact(ctx context.Context, do func(pgx.Tx) error) error {
	return pgkit.Transact(ctx, s.db, "", do)
}

// present is what is there of the store's.
type present struct {
	schema        string // the table's, or where it is to be made; empty = none
	oid           uint32
	version       int  // of the table, by its columns; 0 = none
	ours          bool // its comment is the store's
	fence, expiry bool
	attention     attention
}

// whole reports whether nothing is missing that is made in a transaction.
func (p *present) whole() bool { return p.version == version && p.fence && p.expiry }

// attention is the state of the index that is built outside of transactions.
type attention int

const (
	absent  attention = iota
	invalid           // being built, or left by a build that was interrupted
	ready
)

// look finds the table as statements would, and beside it what belongs to it. It does not use
// obj_description, because before version 14 the operators within that are the search_path's.
const look = `SELECT pg_catalog.current_setting('server_version_num')::integer, pg_catalog.current_setting('server_version'),
	pg_catalog.current_setting('server_encoding'), coalesce(n.nspname::pg_catalog.text, ''),
	coalesce(c.oid, 0::pg_catalog.oid), coalesce((SELECT d.description FROM pg_catalog.pg_description d
		WHERE d.objoid {=} c.oid AND d.classoid {=} 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid AND d.objsubid {=} 0), ''),
	EXISTS (SELECT FROM pg_catalog.pg_class f WHERE f.relnamespace {=} n.oid AND f.relname {=} $2::pg_catalog.name),
	EXISTS (SELECT FROM pg_catalog.pg_class f WHERE f.relnamespace {=} n.oid AND f.relname {=} $3::pg_catalog.name),
	coalesce((SELECT CASE WHEN i.indisvalid THEN 2 ELSE 1 END FROM pg_catalog.pg_class f JOIN pg_catalog.pg_index i ON i.indexrelid {=} f.oid
		WHERE i.indrelid {=} c.oid AND f.relnamespace {=} n.oid AND f.relname {=} $5::pg_catalog.name), 0),
	(SELECT coalesce(r.relname::pg_catalog.text, '') FROM pg_catalog.pg_class f LEFT JOIN pg_catalog.pg_index i ON i.indexrelid {=} f.oid
		LEFT JOIN pg_catalog.pg_class r ON r.oid {=} i.indrelid
		WHERE f.relnamespace {=} n.oid AND f.relname {=} $5::pg_catalog.name AND (c.oid IS NULL OR i.indrelid IS NULL OR i.indrelid {<>} c.oid))
FROM (SELECT pg_catalog.to_regclass($1::pg_catalog.text)::pg_catalog.oid AS oid) given
LEFT JOIN pg_catalog.pg_class c ON c.oid {=} given.oid
LEFT JOIN pg_catalog.pg_namespace n ON CASE WHEN c.oid IS NULL THEN n.nspname {=} coalesce($4::pg_catalog.name, pg_catalog.current_schema())
	ELSE n.oid {=} c.relnamespace END`

// inspect looks without changing anything. The error tells why the table cannot be the store's.
func (s *Store) inspect(ctx context.Context, tx pgx.Tx) (*present, error) {
	var number int
	var server, encoding, comment string
	p := new(present)
	var taken *string // by whose index the attention index's name is taken; "" = by no index
	table := pgkit.Quote(s.schema, s.table)
	schema := pgtype.Text{String: s.schema, Valid: s.schema != ""}
	err := tx.QueryRow(ctx, pgkit.Operators(look), table, s.table+"_fence", s.table+"_expires", schema, s.attentionName()).
		Scan(&number, &server, &encoding, &p.schema, &p.oid, &comment, &p.fence, &p.expiry, &p.attention, &taken)
	if err == nil {
		err = pgkit.CheckServer("pgstore", "key", number, server, encoding)
	}
	if err == nil && taken != nil {
		err = s.nameTaken(*taken)
	}
	if err != nil {
		return nil, err
	}
	if p.oid == 0 {
		if s.schema != "" {
			p.schema = s.schema
		}
		return p, nil
	}
	// Where people have written a comment of their own, the columns alone tell.
	var reader int
	if reader, p.ours, err = pgkit.Version(s.sql().name, comment, mark); err != nil {
		return nil, err
	}
	if reader > version {
		return nil, pgkit.Newer("pgstore", s.sql().name, reader, version)
	}
	var bad error
	p.version, bad = s.checkColumns(ctx, tx, p.oid)
	return p, errors.Join(bad, s.checkKey(ctx, tx, p.oid))
}

// nameTaken says what stands where the attention index should. A table that was renamed keeps the
// names of its indexes.
func (s *Store) nameTaken(by string) error {
	if by == "" {
		return fmt.Errorf("the name %s is taken by something that is no index; choose another Options.Table", s.attentionName())
	}
	return fmt.Errorf("the name %[1]s is taken by an index of table %[2]s; if that table was renamed, rename its indexes %[1]s and %[3]s, too (ALTER INDEX … RENAME TO …)",
		s.attentionName(), by, s.table+"_expires")
}

// checkColumns finds the table that only has the name of ours, and answers the version of one that
// is.
func (s *Store) checkColumns(ctx context.Context, tx pgx.Tx, oid uint32) (found int, err error) {
	have, err := pgkit.Columns(ctx, tx, oid)
	if err != nil {
		return 0, err
	}
	found = version
	all := maps.Clone(wanted)
	maps.Copy(all, newer)
	var wrong []string
	for name, oid := range all {
		if _, ok := have[name]; !ok && newer[name] != 0 {
			found = 1
		} else if why := pgkit.WrongColumn(tx, have, name, oid, name == "scope" || name == "key"); why != "" {
			wrong = append(wrong, why)
		}
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		return 0, fmt.Errorf("table %s is not this store's: %s; choose another Options.Table", s.sql().name, strings.Join(wrong, "; "))
	}
	return found, nil
}

// keyIndexes are the unique indexes of the whole table on scope and key alone. In one of another
// collation keys that differ could be equal.
const keyIndexes = `SELECT coalesce(pg_catalog.bool_or(i.indimmediate AND i.indisvalid AND i.indisready), false), coalesce(pg_catalog.bool_or(NOT i.indimmediate), false)
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_attribute a ON a.attrelid {=} i.indrelid AND a.attnum {=} i.indkey[0]
JOIN pg_catalog.pg_attribute b ON b.attrelid {=} i.indrelid AND b.attnum {=} i.indkey[1]
WHERE i.indrelid {=} $1::pg_catalog.oid AND i.indisunique AND i.indpred IS NULL AND i.indnkeyatts {=} 2::smallint
	AND (a.attname {=} 'scope' AND b.attname {=} 'key' OR a.attname {=} 'key' AND b.attname {=} 'scope')
	AND (i.indcollation[0] {=} 950::pg_catalog.oid OR i.indcollation[0] {=} 951::pg_catalog.oid)
	AND (i.indcollation[1] {=} 950::pg_catalog.oid OR i.indcollation[1] {=} 951::pg_catalog.oid)`

func (s *Store) checkKey(ctx context.Context, tx pgx.Tx, oid uint32) error {
	var usable, deferrable bool
	if err := tx.QueryRow(ctx, pgkit.Operators(keyIndexes), oid).Scan(&usable, &deferrable); err != nil {
		return err
	}
	switch {
	case deferrable:
		return fmt.Errorf("table %s has a DEFERRABLE unique key on (scope, key), which ON CONFLICT cannot use; make it NOT DEFERRABLE", s.sql().name)
	case !usable:
		return fmt.Errorf("table %s has no valid primary key on (scope, key), without which two claims could win one key", s.sql().name)
	}
	return nil
}

func (s *Store) migrate(ctx context.Context, tx pgx.Tx) (*present, error) {
	if err := pgkit.BeginMigration(ctx, tx, s.schema); err != nil {
		return nil, err
	}
	have, err := s.inspect(ctx, tx)
	if err != nil {
		return nil, err
	}
	if have.schema == "" {
		return nil, pgkit.ErrNoSchema
	}
	st := newStatements(have.schema, s.table)
	var todo []string
	if have.version > 0 {
		// Whoever comes behind a statement that waits for the table waits, too. So it waits for
		// less time than a claim does.
		if _, err := tx.Exec(ctx, `SELECT pg_catalog.set_config('lock_timeout', $1::pg_catalog.text, true)`, alterWait); err != nil {
			return nil, err
		}
	}
	switch have.version {
	case 0:
		todo = append(todo, createTable, s.attentionIndex(""))
		have.attention = ready
	case 1:
		todo = append(todo, addColumns)
	}
	if have.version == 0 || have.version < version && have.ours {
		todo = append(todo, fmt.Sprintf(`COMMENT ON TABLE {table} IS '%s%d%s'`, mark, oldestReader, added))
	}
	if !have.expiry {
		todo = append(todo, `CREATE INDEX `+pgx.Identifier{s.table + "_expires"}.Sanitize()+` ON {table} (expires) WHERE expires IS NOT NULL`)
	}
	for _, q := range todo {
		if _, err := tx.Exec(ctx, st.fill(q)); pgkit.State(err) == pgkit.LockNotAvailable || pgkit.State(err) == pgkit.DeadlockDetected {
			return nil, &heldError{s.sql().name, err}
		} else if err != nil {
			return nil, err
		}
	}
	if have.fence {
		return have, s.raise(ctx, tx, have)
	}
	return have, makeFence(ctx, tx, st)
}

// heldError is a change of the table that would have had to wait for somebody's transaction.
type heldError struct {
	table string
	err   error
}

func (e *heldError) Error() string {
	return fmt.Sprintf("a transaction holds table %s: %v", e.table, e.err)
}
func (e *heldError) Unwrap() error { return e.err }

// clockFence is the clock's microseconds. A sequence that begins there is above all fences that
// were given out before, here or where this database was copied from, because nobody claims a
// million times a second for as long as a database lives.
const clockFence = `(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) {*} 1000000::float)::bigint`

// A start leaves the sequence a minute or more ahead of the clock. If it is less, it is set to gap
// more than that. So a copy that begins with the first number, or with an old one, is always
// raised, and to more than the original has. The gap is for those who claim between the look and
// the setting: ten seconds are ten million claims.
const (
	ahead = time.Minute
	gap   = 10 * time.Second
)

// makeFence makes the sequence. The table does not own it, because TRUNCATE … RESTART IDENTITY
// would begin it anew. Its START is the clock, and it is set ahead afterwards, so that a copy of
// the definition alone, which begins with the START, is seen to be behind.
func makeFence(ctx context.Context, tx pgx.Tx, st *statements) error {
	var start int64
	if err := tx.QueryRow(ctx, st.fill(`SELECT `+clockFence)).Scan(&start); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, st.fill(fmt.Sprintf(`CREATE SEQUENCE {sequence} AS bigint MINVALUE 1 START WITH %d CACHE 1`, start)))
	if err != nil {
		return err
	}
	const first = `SELECT pg_catalog.setval('{fence}'::pg_catalog.regclass,
	greatest(` + clockFence + ` {+} $1::bigint, (SELECT pg_catalog.max(t.fence) FROM {table} t)))`
	_, err = tx.Exec(ctx, st.fill(first), (ahead + gap).Microseconds())
	return err
}

// lookAtFence answers whether the sequence is to be raised and may be, and whether it has given out
// nothing, as a copy of the definition alone has. A role that has no right to raise it, or can only
// read, leaves it.
const lookAtFence = `SELECT CASE WHEN f.may THEN coalesce(pg_catalog.pg_sequence_last_value(f.oid::pg_catalog.regclass), f.start) {<} (f.clock {+} $1::bigint) ELSE false END,
	CASE WHEN f.may THEN pg_catalog.pg_sequence_last_value(f.oid::pg_catalog.regclass) IS NULL ELSE false END
FROM (SELECT q.seqrelid AS oid, q.seqstart AS start, ` + clockFence + ` AS clock,
		pg_catalog.current_setting('transaction_read_only') {=} 'off' AND pg_catalog.has_sequence_privilege(q.seqrelid, 'UPDATE')
		AND pg_catalog.has_sequence_privilege(q.seqrelid, 'USAGE, SELECT') AS may
	FROM pg_catalog.pg_sequence q WHERE q.seqrelid {=} '{fence}'::pg_catalog.regclass::pg_catalog.oid) f`

// raiseFence looks once more, by the next number, because somebody may have set the sequence
// meanwhile, or before by ALTER SEQUENCE … RESTART. It looks and sets in one statement, because
// others claim beside it.
const raiseFence = `SELECT CASE WHEN pg_catalog.nextval('{fence}'::pg_catalog.regclass) {<} (f.clock {+} $1::bigint)
	THEN pg_catalog.setval('{fence}'::pg_catalog.regclass, f.clock {+} $2::bigint) END
FROM (SELECT ` + clockFence + ` AS clock) f`

var _ dedupe.FenceRaiser = (*Store)(nil)

// lookAtCache answers whether each number of the sequence is above the one before it.
const lookAtCache = `SELECT q.seqcache {=} 1::bigint FROM pg_catalog.pg_sequence q WHERE q.seqrelid {=} '{fence}'::pg_catalog.regclass::pg_catalog.oid`

// raiseAbove is raiseFence for a sequence that may be ahead of the clock, and behind itself.
const raiseAbove = `SELECT CASE WHEN pg_catalog.nextval('{fence}'::pg_catalog.regclass) {<} greatest(f.clock {+} $1::bigint, $3::bigint)
	THEN pg_catalog.setval('{fence}'::pg_catalog.regclass, greatest(f.clock {+} $2::bigint, $4::bigint)) END
FROM (SELECT ` + clockFence + ` AS clock) f`

// RaiseFence sets the sequence a minute ahead of the clock's microseconds, as [Store.Migrate] does,
// and ten million above known. It needs UPDATE on the sequence. A worker calls it when the database
// went back in time under it. back is false where somebody has given the sequence a CACHE, because
// its numbers then come in no order.
func (s *Store) RaiseFence(ctx context.Context, known uint64) (back bool, err error) {
	if err := s.ready(ctx, 0); err != nil {
		return false, err
	}
	err = s.transact(ctx, func(tx pgx.Tx) error {
		have, err := s.inspect(ctx, tx)
		if err != nil {
			return err
		}
		st := newStatements(have.schema, s.table)
		if err := tx.QueryRow(ctx, st.fill(lookAtCache)).Scan(&back); err != nil || !back {
			return err
		}
		if err := takeTurn(ctx, tx, st); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, st.fill(raiseAbove), ahead.Microseconds(), (ahead + gap).Microseconds(), int64(known), int64(known)+gap.Microseconds())
		return err
	})
	return back && err == nil, s.explain(ctx, "RaiseFence", err)
}

// turnTimeout is how long a starter waits for one that hangs.
const turnTimeout = "10s"

// raise sets the sequence ahead if it has fallen behind. A copy without its sequences (logical
// replication, pg_dump --schema-only) has begun anew, and one that was restored is as old as its
// backup. Starters take turns, because the second of two would set the sequence back to what it saw
// before the first. They wait, because a starter that is through Migrate claims.
func (s *Store) raise(ctx context.Context, tx pgx.Tx, have *present) error {
	st := newStatements(have.schema, s.table)
	var low, unused bool
	if err := tx.QueryRow(ctx, st.fill(lookAtFence), ahead.Microseconds()).Scan(&low, &unused); err != nil || !low {
		return err
	}
	to := ahead + gap
	if unused { // the original may be as young, and have been used in a hurry
		to += ahead
	}
	if err := takeTurn(ctx, tx, st); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, st.fill(raiseFence), ahead.Microseconds(), to.Microseconds())
	return err
}

// takeTurn waits until nobody else raises the sequence.
func takeTurn(ctx context.Context, tx pgx.Tx, st *statements) error {
	if _, err := tx.Exec(ctx, `SELECT pg_catalog.set_config('lock_timeout', $1::pg_catalog.text, true)`, turnTimeout); err != nil {
		return err
	}
	const mine = `SELECT pg_catalog.pg_advisory_xact_lock($1::bigint {+} '{fence}'::pg_catalog.regclass::pg_catalog.oid::bigint)`
	_, err := tx.Exec(ctx, st.fill(mine), pgkit.Turn)
	return err
}
