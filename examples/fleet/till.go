package main

import (
	"context"
	"errors"
	"fmt"

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
	close()
}

// openTill opens a SQLite file, or tables in the DynamoDB at the endpoint.
func openTill(ledger, dynamo string) (till, error) {
	if dynamo != "" {
		return openDynamoTill(dynamo)
	}
	return openSQLiteTill(ledger)
}

// storeOptions are the flag -store, and the variable that names the endpoint.
type storeOptions struct{ name, endpoint string }

const endpointVariable = "ONCEQ_DYNAMODB_URL"

func (s *storeOptions) check(naive bool) error {
	switch {
	case s.name == "sqlite":
		s.endpoint = ""
	case s.name != "dynamodb":
		return fmt.Errorf("-store is %q, want sqlite or dynamodb", s.name)
	case naive:
		return errors.New("-no-onceq charges in SQLite; leave out -store")
	case s.endpoint == "":
		return fmt.Errorf("-store dynamodb: %s names no endpoint; make demo STORE=dynamodb starts one", endpointVariable)
	}
	return nil
}
