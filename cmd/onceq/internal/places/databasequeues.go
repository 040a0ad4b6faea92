package places

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/adapters/pgbroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/cmd/onceq/internal/settings"
)

// This file owns the queues in databases, and how PostgreSQL is looked at without a change. The
// package cli calls it, from one goroutine; nothing is locked.

// ErrNoQueueTable says that a queue's table is not there.
var ErrNoQueueTable = errors.New("its table is not there: call Migrate of its queue, which programs do at their start")

// postgresQueue opens a queue. It never makes a table.
func (p *Places) postgresQueue(ctx context.Context, q settings.QueueURL) (broker.Broker, error) {
	pool, err := p.pool(ctx, q.DatabaseQueue.URL)
	if err != nil {
		return nil, err
	}
	o := &pgbroker.Options{Table: q.Table}
	look, err := pgbroker.New(unchanged{pool}, q.Name, o)
	if err != nil {
		return nil, err
	}
	// Migrate looks before it changes anything, and nothing can be changed here
	if err := look.Migrate(ctx); err != nil {
		if e := (*pgconn.PgError)(nil); errors.As(err, &e) && (e.Code == readOnly || e.Code == denied) {
			return nil, fmt.Errorf("%w (%s)", ErrNoQueueTable, e.Message)
		}
		return nil, looking{err}
	}
	b, err := pgbroker.New(pool, q.Name, o)
	if err != nil {
		return nil, err
	}
	p.closing(b.Close)
	return b, nil
}

// pool is the one of a database: many queues may be in one.
func (p *Places) pool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	if pool := p.pools[url]; pool != nil {
		return pool, nil
	}
	cfg, err := pgxpool.ParseConfig(url)
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
	if p.pools == nil {
		p.pools = map[string]*pgxpool.Pool{}
	}
	p.pools[url] = pool
	return pool, nil
}

// What PostgreSQL answers to who would change something.
const (
	readOnly = "25006"
	denied   = "42501"
)

// unchanged is a pool whose transactions change nothing.
type unchanged struct{ *pgxpool.Pool }

func (u unchanged) BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error) {
	o.AccessMode = pgx.ReadOnly
	return u.Pool.BeginTx(ctx, o)
}
