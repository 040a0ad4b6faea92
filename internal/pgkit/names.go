// Package pgkit is what the store and the queue in PostgreSQL do alike: how a table is named, how a
// transaction goes out in one round trip, what the server's errors mean, and what Migrate asks of a
// server. The statements are their users' own.
//
// It takes [pgx] alone, which both of them bring.
//
// [pgx]: https://pkg.go.dev/github.com/jackc/pgx/v5
package pgkit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/internal/records"
	"github.com/onceq/onceq/internal/values"
)

// DB is the pool of connections: its methods may be called from many goroutines.
type DB interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
}

// CheckPool finds what only one goroutine at a time may use.
func CheckPool(db DB) error {
	switch db.(type) {
	case nil:
		return errors.New("db is nil")
	case *pgx.Conn, interface{ Conn() *pgx.Conn }:
		return fmt.Errorf("db is a %T, one connection, which calls from many goroutines cannot share; give it a *pgxpool.Pool", db)
	}
	if values.IsNil(db) {
		return fmt.Errorf("db is a nil %T", db)
	}
	return nil
}

// SplitTable takes apart the Options.Table of the package pkg. It finds names that cannot stand in
// a statement as they are.
func SplitTable(pkg, name string) (schema, table string, err error) {
	table = name
	if before, after, ok := strings.Cut(name, "."); ok {
		schema, table = before, after
		if err := records.CheckName(pkg+": Options.Table: the name of the schema", schema); err != nil {
			return "", "", err
		}
		if strings.HasPrefix(schema, "pg_") || schema == "information_schema" {
			return "", "", fmt.Errorf("%s: Options.Table is %q; the schema %s is PostgreSQL's own", pkg, name, schema)
		}
	}
	return schema, table, records.CheckName(pkg+": Options.Table: the name of the table", table)
}

// Quote is a name as statements write it. The schema may be empty.
func Quote(schema, name string) string {
	if schema == "" {
		return pgx.Identifier{name}.Sanitize()
	}
	return pgx.Identifier{schema, name}.Sanitize()
}

// Shown is a table's name as people write it. The schema may be empty.
func Shown(schema, table string) string {
	if schema == "" {
		return table
	}
	return schema + "." + table
}

// Statements name the schema of all functions, types and operators that the grammar does not name
// itself. So they mean PostgreSQL's own, whatever the search_path is and whoever may create in its
// schemas.
var operators = strings.NewReplacer("{=}", own("="), "{<>}", own("<>"), "{<}", own("<"), "{<=}", own("<="), "{>}", own(">"), "{>=}", own(">="),
	"{+}", own("+"), "{-}", own("-"), "{*}", own("*"), "{/}", own("/"))

func own(operator string) string { return "OPERATOR(pg_catalog." + operator + ")" }

// Operators puts PostgreSQL's own in place of {=} and the like. All of them bind alike: parentheses
// must tell which comes first.
func Operators(sql string) string { return operators.Replace(sql) }

// Micros is a duration as the statements take it, rounded up: what was granted is never cut.
func Micros(d time.Duration) int64 {
	n := d / time.Microsecond
	if d%time.Microsecond > 0 {
		n++
	}
	return int64(n)
}
