package places

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/cmd/onceq/internal/settings"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/dynamostore"
	"github.com/onceq/onceq/dedupe/pgstore"
)

// This file owns the stores: how each is opened without changing its table, and what one that bills
// reads tells of its size. The package cli calls it, from one goroutine; nothing is locked.

// ErrOld says that a store's table is of an earlier version.
var ErrOld = errors.New("its table is of an earlier version, or is not there: call Migrate of its store, or read it with --old")

// Store opens a store. It never makes or changes a table: that is Migrate's, which programs call.
func (p *Places) Store(ctx context.Context, s settings.StoreURL) (dedupe.Store, error) {
	switch s.Kind {
	case settings.Postgres:
		return p.postgres(ctx, s)
	case settings.DynamoDB:
		return p.dynamo(ctx, s)
	case settings.Firestore:
		return p.firestore(ctx, s)
	}
	return p.sqlite(ctx, s)
}

func (p *Places) postgres(ctx context.Context, s settings.StoreURL) (dedupe.Store, error) {
	cfg, err := pgxpool.ParseConfig(s.URL)
	if err != nil {
		return nil, err // pgx leaves the password out
	}
	cfg.MaxConns, cfg.MinConns = 4, 0
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "onceq"
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	p.closing(func() error { pool.Close(); return nil })
	o := &pgstore.Options{Table: s.Table}
	look, err := pgstore.New(unchanged{pool}, o)
	if err != nil {
		return nil, err
	}
	// Migrate looks before it changes anything, and nothing can be changed here
	err = look.Migrate(ctx)
	if e := (*pgconn.PgError)(nil); errors.As(err, &e) && (e.Code == readOnly || e.Code == denied && !p.Old) {
		if !p.Old {
			return nil, fmt.Errorf("%w (%s)", ErrOld, e.Message)
		}
		err = nil
	}
	if err != nil {
		return nil, looking{err}
	}
	return pgstore.New(pool, o)
}

func (p *Places) dynamo(ctx context.Context, s settings.StoreURL) (dedupe.Store, error) {
	cfg, err := p.awsConfig(ctx)
	if err != nil {
		return nil, err
	}
	if cmp.Or(s.Region, cfg.Region, s.Endpoint) == "" {
		return nil, errors.New("no AWS region: name it in the URL (dynamodb://TABLE?region=REGION) or in AWS_REGION")
	}
	client := dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) {
		o.Region = cmp.Or(s.Region, o.Region)
		if s.Endpoint != "" {
			o.BaseEndpoint = &s.Endpoint
			local(&o.Region, &o.Credentials)
		}
	})
	st, err := dynamostore.New(client, s.Table, &dynamostore.Options{TTLAttribute: s.TTLAttribute, AttentionIndex: s.Index})
	if err != nil {
		return nil, err
	}
	p.closing(st.Close)
	return dynamo{st, client, s}, nil
}

// dynamo is a store that bills what is read.
type dynamo struct {
	*dynamostore.Store
	client *dynamodb.Client
	at     settings.StoreURL
}

var (
	_ dedupe.Indexed = dynamo{}
	_ dedupe.Sized   = dynamo{}
)

func (d dynamo) Unwrap() any { return d.Store }

// Indexed reports whether the index of failed, parked and released records answers the query.
func (d dynamo) Indexed(q dedupe.Query) bool {
	return d.at.Index != "" && (q.Status == dedupe.Failed || q.Status == dedupe.Parked || q.Status == dedupe.Released)
}

// Size is what DynamoDB counted in the last six hours.
func (d dynamo) Size(ctx context.Context) (dedupe.TableSize, error) {
	t, err := d.client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &d.at.Table})
	if err != nil || t.Table == nil || t.Table.ItemCount == nil || t.Table.TableSizeBytes == nil {
		return dedupe.TableSize{}, errors.Join(err, errors.New("the table's size is not known"))
	}
	return dedupe.TableSize{Records: *t.Table.ItemCount, Bytes: *t.Table.TableSizeBytes}, nil
}

// IsForeign reports whether a store's table is not the store's, or cannot be: repeating does not
// help, and nobody has to be asked for a permission.
func IsForeign(err error) bool {
	if err == nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return false
	}
	if e := (*pgconn.PgError)(nil); errors.As(err, &e) {
		return false
	}
	if e := (*pgconn.ConnectError)(nil); errors.As(err, &e) {
		return false
	}
	if e := (*pgconn.ParseConfigError)(nil); errors.As(err, &e) {
		return true
	}
	text := err.Error()
	for _, of := range [...]string{"is not this store's", "made by a newer", "encoding is", "has the comment", "no such file"} {
		if strings.Contains(text, of) {
			return true
		}
	}
	return false
}
