package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/examples/internal/shop"
)

// till is where the charges are written: a database that holds the records of the keys, too.
type till interface {
	store() dedupe.Store
	// make makes its tables where they are missing; fresh deletes what is there.
	make(ctx context.Context, fresh bool) error
	// charge writes the charge, and that the order is done, in one transaction.
	charge(ctx context.Context, j *onceq.Job, o shop.Order, itemCents int64, worker string) error
	// audit compares the charges and the dead letters with the rows.
	audit(ctx context.Context, rows []shop.Row, letters map[string]string) (*shop.Audit, error)
	where() string
	close()
}

// openTill opens a SQLite file, or tables at an endpoint.
func openTill(ledger string, s storeOptions) (till, error) {
	switch s.Name {
	case "dynamodb":
		return openDynamoTill(s.Endpoint)
	case "firestore":
		return openFirestoreTill(s.Endpoint)
	case "postgres":
		return openPostgresTill(s.Endpoint)
	}
	return openSQLiteTill(ledger)
}

// storeOptions are the flag -store, and where that is: an endpoint, or a database's URL.
type storeOptions struct{ Name, Endpoint string }

// variables name what the demo does not start itself. The package localstack starts one for make
// demo, and names it so.
var variables = map[string]string{"dynamodb": "ONCEQ_DYNAMODB_URL", "postgres": "ONCEQ_POSTGRES_URL", "firestore": "FIRESTORE_EMULATOR_HOST"}

// named is the address of a server that the environment names. The flag and the target's variable
// are for who has none.
func named(name, f, variable string) (string, error) {
	url := os.Getenv(variables[name])
	if url == "" {
		return "", fmt.Errorf("-%s %s: %s names none; make demo %s=%s starts one", f, name, variables[name], variable, name)
	}
	return url, nil
}

// find finds where the store is.
func (s *storeOptions) find(naive bool) (err error) {
	switch {
	case s.Name == "sqlite":
		return nil
	case variables[s.Name] == "":
		return fmt.Errorf("-store is %q, want sqlite, postgres, dynamodb or firestore", s.Name)
	case naive:
		return errors.New("-no-onceq charges in SQLite; leave out -store")
	}
	s.Endpoint, err = named(s.Name, "store", "STORE")
	return err
}

// putCharge puts a charge into the copy.
type putCharge func(o shop.Order, itemCents int64, worker string) error

// auditCopy copies the charges to a SQLite file, where the same questions are asked of them.
func auditCopy(ctx context.Context, rows []shop.Row, letters map[string]string, each func(putCharge) error) (*shop.Audit, error) {
	dir, err := os.MkdirTemp("", "onceq-demo-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "copy.db")
	if err := errors.Join(shop.MakeLedger(ctx, path, true), copyTo(ctx, path, each)); err != nil {
		return nil, err
	}
	return shop.AuditLedger(ctx, path, rows, letters)
}

func copyTo(ctx context.Context, path string, each func(putCharge) error) error {
	db, err := shop.OpenLedger(path)
	if err != nil {
		return err
	}
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	err = each(func(o shop.Order, itemCents int64, worker string) error {
		return shop.InsertCharge(ctx, tx, o, itemCents, worker)
	})
	if err != nil {
		return err
	}
	return tx.Commit()
}
