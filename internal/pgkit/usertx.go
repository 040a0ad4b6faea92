package pgkit

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onceq/onceq/internal/records"
	"github.com/onceq/onceq/internal/values"
)

// This file owns the look at the user's own transaction, in which the store completes a job and the
// queue sends a message: what is none would commit each statement by itself.

// CheckTx finds what is no transaction of pgx. what is what the user has in it, such as "the row is
// written".
func CheckTx(tx any, what string) error {
	switch {
	case values.IsNil(tx):
		return errors.New("tx is nil")
	case isPool(tx):
		return fmt.Errorf("tx is a %T, which commits each statement by itself; give it the pgx.Tx that %s in", tx, what)
	}
	return checkConn(tx)
}

// CheckSQL finds what is no transaction of database/sql.
func CheckSQL(tx any, what string) error {
	switch {
	case values.IsNil(tx):
		return errors.New("tx is nil")
	case records.IsSQLPool(tx):
		return fmt.Errorf("tx is a %T, which commits each statement by itself; give it the *sql.Tx that %s in", tx, what)
	}
	if tx, ok := tx.(rawConn); ok {
		var err error
		_ = tx.Raw(func(driver any) error { // what else is wrong with it, the statement will tell
			err = checkConn(driver)
			return nil
		})
		return err
	}
	return nil
}

// rawConn is a *sql.Conn, or what has one embedded.
type rawConn interface {
	Raw(f func(driver any) error) error
}

// isPool recognises a *pgxpool.Pool, and what has one embedded, by a method that no transaction
// has.
func isPool(tx any) bool {
	_, ok := tx.(interface{ Reset() })
	return ok
}

// checkConn finds what is, or has embedded, a connection of pgx, or leads to one, on which no
// transaction was begun, or on which it has ended.
func checkConn(tx any) (err error) {
	defer func() {
		// A connection that went back to its pool, and a struct whose transaction was left out,
		// have methods that panic.
		if v := recover(); v != nil {
			err = fmt.Errorf("tx is a %T that holds no connection: it was released, or nothing was put into it", tx)
		}
	}()
	idle := false
	switch c := tx.(type) {
	case interface{ Conn() *pgx.Conn }:
		idle = IsIdle(c.Conn())
	case interface{ PgConn() *pgconn.PgConn }:
		idle = !c.PgConn().IsClosed() && c.PgConn().TxStatus() == 'I'
	}
	if idle {
		return errors.New("tx is in no transaction, because none was begun, or it is over: its statements would be committed one by one; BEGIN first")
	}
	return nil
}

// IsIdle reports whether conn, where it is known, is in no transaction.
func IsIdle(conn *pgx.Conn) bool {
	return conn != nil && !conn.IsClosed() && conn.PgConn().TxStatus() == 'I'
}
