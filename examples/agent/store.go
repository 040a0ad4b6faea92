package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/dynamostore"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/examples/internal/scene"
)

// This file owns where keys and steps are kept: a file, or tables of the run's own in a database
// that the environment names. The scene makes and drops it, and each worker's process opens it.

// place is a store.
type place struct{ Store, At, Table string }

// variables name what the demo does not start itself: make demo-agent does.
var variables = map[string]string{"postgres": "ONCEQ_POSTGRES_URL", "dynamodb": "ONCEQ_DYNAMODB_URL"}

// makePlace makes a store that is empty. drop removes it.
func makePlace(ctx context.Context, store string) (p place, drop func() error, err error) {
	p = place{Store: store, At: os.Getenv(variables[store])}
	switch {
	case store == "sqlite":
		dir, err := os.MkdirTemp("", "onceq-agent-")
		if err != nil {
			return p, nil, err
		}
		p.At, drop = filepath.Join(dir, "agent.db"), func() error { return os.RemoveAll(dir) }
	case variables[store] == "":
		return p, nil, fmt.Errorf("-store is %q, want sqlite, postgres or dynamodb", store)
	case p.At == "":
		return p, nil, fmt.Errorf("-store %s: %s names none; make demo-agent STORE=%[1]s starts one", store, variables[store])
	case store == "postgres":
		var schema string
		if schema, drop, err = scene.Schema(ctx, p.At, "onceq_agent_"); err != nil {
			return p, nil, err
		}
		p.Table = schema + ".onceq_dedupe"
	default:
		p.Table = "onceq-agent-" + strings.ToLower(rand.Text()[:8])
		drop = func() error {
			_, err := dynamoClient(p.At).DeleteTable(context.WithoutCancel(ctx), &dynamodb.DeleteTableInput{TableName: &p.Table})
			return err
		}
	}
	s, done, err := p.open()
	if err != nil {
		return p, drop, err
	}
	defer done()
	switch s := s.(type) {
	case interface{ Migrate(context.Context) error }:
		err = s.Migrate(ctx)
	case interface{ CreateTable(context.Context) error }:
		err = s.CreateTable(ctx)
	}
	return p, drop, err
}

// open opens the store, until done.
func (p place) open() (s dedupe.Store, done func(), err error) {
	switch p.Store {
	case "postgres":
		pool, err := pgxpool.New(context.Background(), p.At)
		if err != nil {
			return nil, nil, err
		}
		s, err := pgstore.New(pool, &pgstore.Options{Table: p.Table})
		return s, func() { _ = s.Close(); pool.Close() }, err
	case "dynamodb":
		s, err := dynamostore.New(dynamoClient(p.At), p.Table, nil)
		return s, func() { _ = s.Close() }, err
	}
	db, err := sql.Open("sqlite", sqlitestore.DSN(p.At))
	if err != nil {
		return nil, nil, err
	}
	file, err := sqlitestore.New(db, nil)
	return file, func() { _ = file.Close(); _ = db.Close() }, err
}

func dynamoClient(endpoint string) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		BaseEndpoint: &endpoint, Region: "us-east-1",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	})
}
