package shop

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/onceq/onceq/dedupe/sqlitestore"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

// This file owns the ledger on SQLite: its table, a charge, and the audit's questions. Workers
// insert charges, each in a transaction of its own, and the demo's process makes and audits the
// file. SQLite's own locks are the only ones.

// The ledger has no unique constraint: it would refuse the second charge, and hide what the workers
// do.
const ledgerSchema = `
CREATE TABLE IF NOT EXISTS charges (
	order_id   TEXT    NOT NULL,
	customer   TEXT    NOT NULL,
	cents      INTEGER NOT NULL,
	currency   TEXT    NOT NULL,
	item_cents INTEGER NOT NULL,
	worker     TEXT    NOT NULL,
	at         TEXT    NOT NULL
);
CREATE INDEX IF NOT EXISTS charges_order ON charges (order_id);`

// OpenLedger opens a pool on the ledger's file. Two connections are what a worker can use: one is
// the store's, the other is for the handlers' transactions, which wait their turn for it in the
// pool rather than in SQLite.
func OpenLedger(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", sqlitestore.DSN(path))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(2)
	return db, nil
}

// MakeLedger makes the file and its tables where they are missing.
func MakeLedger(ctx context.Context, path string, fresh bool) error {
	if fresh {
		for _, f := range []string{path, path + "-wal", path + "-shm"} {
			if err := os.Remove(f); err != nil && !os.IsNotExist(err) {
				return err
			}
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	db, err := OpenLedger(path)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, ledgerSchema); err != nil {
		return fmt.Errorf("making the ledger %s: %w", path, err)
	}
	store, err := sqlitestore.New(db, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	return store.Migrate(ctx)
}

// InsertCharge is the effect that must happen once.
func InsertCharge(ctx context.Context, tx *sql.Tx, o Order, itemCents int64, worker string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO charges (order_id, customer, cents, currency, item_cents, worker, at) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		o.ID, o.Customer, o.Cents, o.Currency, itemCents, worker, time.Now().UTC().Format(time.RFC3339Nano))
	return err
}

// The audit's questions, asked of the table of charges and of temporary ones: the CSV file's rows,
// and the keys in the dead-letter queue. A good order is one that is not poison, or no longer; a
// slow one is good too.
const (
	askCharges    = `SELECT count(*) FROM charges`
	askMissing    = `SELECT count(*) FROM expected WHERE kind <> 'poison' AND id NOT IN (SELECT order_id FROM charges)`
	askDoubled    = `SELECT count(*) FROM (SELECT order_id FROM charges GROUP BY order_id HAVING count(*) > 1)`
	askSurplus    = `SELECT count(*) - count(DISTINCT order_id) FROM charges`
	askMost       = `SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM charges GROUP BY order_id)`
	askAmounts    = `SELECT count(*) FROM charges c JOIN expected e ON e.id = c.order_id WHERE c.cents <> e.cents OR c.currency <> e.currency`
	askPoisonPaid = `SELECT count(*) FROM charges c JOIN expected e ON e.id = c.order_id WHERE e.kind = 'poison'`
	askPoisonLost = `SELECT count(*) FROM expected WHERE kind = 'poison' AND id NOT IN (SELECT id FROM letters)`
	askGoodDead   = `SELECT count(*) FROM expected WHERE kind <> 'poison' AND id IN (SELECT id FROM letters)`
)

// Audit is what the ledger says.
type Audit struct {
	Good, Mended, Poison int // in the file
	Charges              int // in the ledger
	Missing              int // good orders without a charge
	Doubled              int // orders with more than one
	Surplus              int // charges beyond the first of their order
	Most                 int // charges of one order
	Amounts              int // charges that differ from their order
	PoisonPaid           int
	PoisonLost           int // poison orders that are not in the dead-letter queue
	GoodDead             int // good orders that are
}

// Holds reports whether the promise was kept.
func (a *Audit) Holds() bool {
	return a.Missing+a.Doubled+a.Amounts+a.PoisonPaid+a.PoisonLost+a.GoodDead == 0
}

// AuditLedger compares the ledger and the dead-letter queue with the file.
func AuditLedger(ctx context.Context, path string, rows []Row, letters map[string]string) (*Audit, error) {
	db, err := OpenLedger(path)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	conn, err := db.Conn(ctx) // temporary tables belong to one connection
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback() //nolint:errcheck // nothing in it is worth keeping

	_, err = tx.ExecContext(ctx, `CREATE TEMP TABLE expected (id TEXT PRIMARY KEY, cents TEXT, currency TEXT, kind TEXT);
		CREATE TEMP TABLE letters (id TEXT PRIMARY KEY)`)
	if err != nil {
		return nil, err
	}
	a := &Audit{}
	for _, r := range rows {
		switch r.Kind {
		case Poison:
			a.Poison++
		case Mended:
			a.Mended++
		default:
			a.Good++
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO expected VALUES (?, ?, ?, ?)`, r.ID, r.Cents, r.Currency, r.Kind); err != nil {
			return nil, err
		}
	}
	for id := range letters {
		if _, err := tx.ExecContext(ctx, `INSERT INTO letters VALUES (?)`, id); err != nil {
			return nil, err
		}
	}
	for query, answer := range map[string]*int{
		askCharges: &a.Charges, askMissing: &a.Missing, askDoubled: &a.Doubled, askSurplus: &a.Surplus, askMost: &a.Most,
		askAmounts: &a.Amounts, askPoisonPaid: &a.PoisonPaid, askPoisonLost: &a.PoisonLost, askGoodDead: &a.GoodDead,
	} {
		if err := tx.QueryRowContext(ctx, query).Scan(answer); err != nil {
			return nil, fmt.Errorf("%s: %w", strings.Join(strings.Fields(query), " "), err)
		}
	}
	return a, nil
}
