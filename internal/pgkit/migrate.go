package pgkit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// This file owns what every Migrate does: it looks at the server and the table, and takes turns
// with other starters. An advisory lock of PostgreSQL, until the end of the transaction, makes the
// turns.

// Oldest is the first server that has pg_current_xact_id_if_assigned.
const Oldest = 13

// Turn is the number of the advisory lock under which starters take turns, whatever their tables.
// It ends with the transaction, so it works through a pooler.
const Turn int64 = 0x6f6e636571 // "onceq"

// AskSQL is what [Ask] sends.
const AskSQL = `SELECT $1::pg_catalog.text`

const (
	// asked is on how many connections of a pool Ask asks, and askWait how long it waits for each.
	asked   = 3
	askWait = time.Second
)

// Ask sends one parameterised statement the way all later calls do, in a pipeline that begin has
// begun, so that a setting that would break them fails at start. Migrate's own transaction would
// not notice an encoding that pgx refuses in the simple protocol, because it has set the encoding
// before its next statement.
//
// A pool is asked on several connections, one after the other. A pooler that knows nothing of
// prepared statements then has two of one name on one connection to the server, which refuses the
// second.
func Ask(ctx context.Context, db DB, begin func() *Pipeline) error {
	conns := []DB{db}
	if pool, ok := db.(*pgxpool.Pool); ok {
		conns = conns[:0]
		for range min(asked, pool.Config().MaxConns) {
			within, cancel := context.WithTimeout(ctx, askWait)
			conn, err := pool.Acquire(within)
			cancel()
			if err != nil && len(conns) > 0 {
				break // others need them
			}
			if err != nil {
				conns = append(conns, db) // which waits as long as ctx says
				break
			}
			defer conn.Release()
			conns = append(conns, conn)
		}
	}
	for _, conn := range conns {
		p := begin()
		p.Exec(AskSQL, "")
		if err := p.Run(ctx, conn); err != nil {
			return err
		}
	}
	return nil
}

// HintAtPooler adds to what a server answers through a pooler that knows nothing of prepared
// statements what to set.
func HintAtPooler(err error) error {
	switch State(err) {
	case DuplicateStatement, NoStatement:
		return fmt.Errorf("%w (is a pooler between, such as PgBouncer before 1.21, that hands one connection's prepared statements to another? "+
			"Set ConnConfig.DefaultQueryExecMode to pgx.QueryExecModeExec)", err)
	}
	return err
}

// Transact runs do in a transaction in which the catalog's texts are plain, whatever the role has
// set. settings are more columns of the statement that sets this.
func Transact(ctx context.Context, db DB, settings string, do func(pgx.Tx) error) error {
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after Commit it does nothing
	if _, err := tx.Exec(ctx, Plain+`, pg_catalog.set_config('quote_all_identifiers', 'off', true)`+settings); err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// CheckServer finds what the statements of the package pkg cannot run on. The database must hold
// every text that what names, such as "key".
func CheckServer(pkg, what string, number int, server, encoding string) error {
	switch {
	case number < Oldest*10000:
		return fmt.Errorf("the server is PostgreSQL %s; %s needs %d or later", server, pkg, Oldest)
	case encoding != "UTF8":
		return fmt.Errorf("the database's encoding is %s, which cannot hold every %s; it must be UTF8 (CREATE DATABASE … ENCODING 'UTF8')", encoding, what)
	}
	return nil
}

// Version reads the number behind mark in a table's comment. found is false where people have
// written a comment of their own.
func Version(table, comment, mark string) (version int, found bool, err error) {
	number, found := strings.CutPrefix(comment, mark)
	if !found {
		return 0, false, nil
	}
	if _, err := fmt.Sscan(number, &version); err != nil || version < 1 {
		return 0, false, fmt.Errorf("table %s has the comment %q, want a number after %q", table, comment, mark)
	}
	return version, true, nil
}

// ErrNoSchema is the refusal where there is no place to make a table.
var ErrNoSchema = errors.New("no schema of the search_path is there, or may be used; name one in Options.Table, or GRANT USAGE ON SCHEMA … to the role")

// Newer is the refusal of a table that a newer version of the package pkg has made.
func Newer(pkg, table string, version, known int) error {
	return fmt.Errorf("table %s is of version %d, made by a newer %s; this one knows up to %d: update this program", table, version, pkg, known)
}

// A Column is what a table has under a name.
type Column struct {
	Type uint32
	// Kind is the type as people write it.
	Kind string
	// ByByte: texts are compared byte by byte. HasDefault: the column gets a value by itself.
	ByByte, HasDefault bool
}

// 950 and 951 are the collations "C" and "POSIX".
const columns = `SELECT a.attname::pg_catalog.text, a.atttypid, pg_catalog.format_type(a.atttypid, NULL),
	a.attcollation {=} 950::pg_catalog.oid OR a.attcollation {=} 951::pg_catalog.oid,
	a.atthasdef OR pg_catalog.length(a.attidentity::pg_catalog.text) {>} 0
FROM pg_catalog.pg_attribute a WHERE a.attrelid {=} $1::pg_catalog.oid AND a.attnum {>} 0::smallint AND NOT a.attisdropped`

// Columns are those of the table with that oid, by name.
func Columns(ctx context.Context, tx pgx.Tx, oid uint32) (map[string]Column, error) {
	rows, err := tx.Query(ctx, Operators(columns), oid)
	if err != nil {
		return nil, err
	}
	have := make(map[string]Column)
	var name string
	var c Column
	_, err = pgx.ForEachRow(rows, []any{&name, &c.Type, &c.Kind, &c.ByByte, &c.HasDefault}, func() error { have[name] = c; return nil })
	return have, err
}

// WrongColumn says why the column of that name is not one of the type; empty = it is.
func WrongColumn(tx pgx.Tx, have map[string]Column, name string, want uint32, byByte bool) string {
	switch got, ok := have[name]; {
	case !ok:
		return "no column " + name
	case got.Type != want:
		t, _ := tx.Conn().TypeMap().TypeForOID(want)
		return fmt.Sprintf("column %s is %s, want %s", name, got.Kind, t.Name)
	case byByte && !got.ByByte:
		return fmt.Sprintf(`column %s is not compared byte by byte; it needs COLLATE "C"`, name)
	}
	return ""
}

// BeginMigration takes the starters' turn, and makes the schema if it is named and not there.
func BeginMigration(ctx context.Context, tx pgx.Tx, schema string) error {
	if _, err := tx.Exec(ctx, `SELECT pg_catalog.pg_advisory_xact_lock($1::bigint)`, Turn); err != nil || schema == "" {
		return err
	}
	// IF NOT EXISTS wants the right to create even where it is there.
	var there bool
	name := pgx.Identifier{schema}.Sanitize()
	err := tx.QueryRow(ctx, `SELECT pg_catalog.to_regnamespace($1::pg_catalog.text) IS NOT NULL`, name).Scan(&there)
	if err != nil || there {
		return err
	}
	_, err = tx.Exec(ctx, `CREATE SCHEMA `+name)
	return err
}
