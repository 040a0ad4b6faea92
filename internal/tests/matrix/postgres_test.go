package matrix

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/localstack"
	"github.com/onceq/onceq/onceqtest"
)

// postgres has one database for all cells, each with a scope of its own. Its clock is real: leases
// are long enough for a slow machine, and aged by UPDATE where one is to run out.
func postgres(t *testing.T) *backend {
	t.Helper()
	url := localstack.Postgres(t).URL
	pool, err := dial(url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s, err := pgstore.New(pool, nil)
	if err == nil {
		err = s.Migrate(t.Context())
	}
	if err == nil {
		_, err = pool.Exec(t.Context(), "CREATE TABLE effects (scope text NOT NULL, key text NOT NULL, fence bigint NOT NULL)")
	}
	if err != nil {
		t.Fatal(err)
	}
	var cells atomic.Int64
	return &backend{
		name: "postgres", queues: inMemory, transactions: true,
		open: func(testing.TB) database {
			return &postgresDB{url: url, pool: pool, s: s, name: fmt.Sprintf("%s-%d", scope, cells.Add(1))}
		},
		lease: 10 * time.Second, visibility: 2 * time.Second, call: time.Second, settle: 10 * time.Second, backoff: 20 * time.Millisecond,
		long: 1750 * time.Millisecond, second: 100 * time.Millisecond, stall: 1500 * time.Millisecond, late: 1300 * time.Millisecond,
		patience: 40 * time.Second,
	}
}

// dial opens a pool whose connections end with the process; nil = nobody's.
func dial(url string, p *onceqtest.Process) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	c.MaxConns = 8
	if p != nil {
		c.MaxConns = 4
		c.ConnConfig.DialFunc = p.Dial(c.ConnConfig.DialFunc)
	}
	return pgxpool.NewWithConfig(context.Background(), c)
}

type postgresDB struct {
	url  string
	pool *pgxpool.Pool
	s    *pgstore.Store
	name string
}

func (d *postgresDB) connect(p *onceqtest.Process) (*conn, error) {
	pool, err := dial(d.url, p)
	if err != nil {
		return nil, err
	}
	s, err := pgstore.New(pool, nil)
	if err != nil {
		return nil, err
	}
	return &conn{
		store: s, close: sync.OnceFunc(pool.Close),
		complete: func(ctx context.Context, p *onceqtest.Process, j *onceq.Job) error {
			tx, err := pool.Begin(ctx)
			if err != nil {
				return err
			}
			defer tx.Rollback(context.WithoutCancel(ctx))
			if err := p.Call(ctx, effect, func(ctx context.Context) error {
				_, err := tx.Exec(ctx, "INSERT INTO effects VALUES ($1, $2, $3)", j.Key().Scope, j.Key().Key, int64(j.Fence()))
				return err
			}); err != nil {
				return err
			}
			if err := p.Call(ctx, complete, func(ctx context.Context) error { return s.CompleteTx(ctx, tx, j, "paid") }); err != nil {
				return err
			}
			if err := p.Call(ctx, commit, tx.Commit); err != nil {
				return fmt.Errorf("%w: %w", errCommit, err)
			}
			return nil
		},
	}, nil
}

func (d *postgresDB) store() dedupe.Store { return d.s }
func (d *postgresDB) scope() string       { return d.name }

func (d *postgresDB) rows() (n int, err error) {
	err = d.pool.QueryRow(context.Background(), "SELECT count(*) FROM effects WHERE scope = $1", d.name).Scan(&n)
	return n, err
}

// age leaves alone what a living transaction has locked, for that lock is the lease; and waits for
// the server to end a dead one.
func (d *postgresDB) age(dead bool) error {
	wait := "SKIP LOCKED"
	if dead {
		wait = ""
	}
	_, err := d.pool.Exec(context.Background(), `UPDATE onceq_dedupe SET lease_until = clock_timestamp() - interval '1 second'
		WHERE (scope, key) IN (SELECT scope, key FROM onceq_dedupe WHERE scope = $1 AND status = 'claimed' FOR UPDATE `+wait+`)`, d.name)
	return err
}

// TestPostgresCutsTheDead: the server ends what a killed process had open, at once.
func TestPostgresCutsTheDead(t *testing.T) {
	b := postgres(t)
	p := new(onceqtest.Process)
	pool, err := dial(b.open(t).(*postgresDB).url, p)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "INSERT INTO effects VALUES ('s', 'k', 1)"); err != nil {
		t.Fatal(err)
	}
	p.Kill()
	if err := tx.Commit(t.Context()); err == nil || errors.Is(err, pgx.ErrTxClosed) {
		t.Errorf("a dead process committed: %v", err)
	}
	if err := pool.Ping(t.Context()); err == nil {
		t.Error("a dead process has a connection")
	}
}
