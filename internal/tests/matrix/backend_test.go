package matrix

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/onceqtest"
	_ "modernc.org/sqlite"
)

// backend is a kind of store and a kind of queue, with the times that suit them.
type backend struct {
	name    string
	virtual bool // cells run in bubbles; otherwise time is real, and dear
	queues  func(testing.TB, *backend) queues
	plain   bool   // the queue has no delay of a fraction of a second, and to ask for its depth is dear
	group   string // of all messages, where the queue is ordered
	only    []mode // that it has; nil = all
	// transactions: the store's database is the user's too.
	transactions bool
	// oneCall: such a transaction, effects and all, is one call, which is commit.
	oneCall bool
	open    func(testing.TB) database

	// settle is long where time is real, because a worker gives an end up after it: a server that
	// shares its processors may answer nobody for several seconds.
	lease, visibility, call, settle, backoff time.Duration
	// A job that outlives its visibility timeout, or at least two beats. Where time is real, it
	// ends half-way between two of them.
	long   time.Duration
	second time.Duration // after which a duplicate comes, and the grain of waiting
	stall  time.Duration // longer than the leases
	// A little longer than a call: when its repeat has been applied, and the job given back.
	late     time.Duration
	patience time.Duration // how long a cell may take

	// steered is how often workers read the operators' rules; 0 = they do not.
	steered time.Duration

	zombies sync.WaitGroup // the dead that still move
}

// grain is how often a cell looks.
func (b *backend) grain() time.Duration {
	if b.plain {
		return b.second
	}
	return b.second / 10
}

// database is one cell's database.
type database interface {
	// connect gives a process a pool of its own, which ends with it.
	connect(p *onceqtest.Process) (*conn, error)
	// store is nobody's: to look at the records.
	store() dedupe.Store
	// rows is how often the effect is in the user's table.
	rows() (int, error)
	// age makes the leases run out where time is real. The owner is dead, or stands still.
	age(dead bool) error
	scope() string
}

// conn is one process's way to the database.
type conn struct {
	store dedupe.Store
	// complete is the handler's transaction: the effect, CompleteTx, COMMIT.
	complete func(ctx context.Context, p *onceqtest.Process, j *onceq.Job) error
	close    func()
}

func virtual(name string, transactions bool, open func(testing.TB) database) *backend {
	return &backend{
		name: name, virtual: true, queues: inMemory, transactions: transactions, open: open,
		lease: 30 * time.Second, visibility: 3 * time.Second, call: 2 * time.Second, settle: 5 * time.Second, backoff: time.Second,
		long: 8 * time.Second, second: time.Second, stall: 2 * time.Minute, late: 2500 * time.Millisecond, patience: time.Hour,
	}
}

func memory() *backend {
	return virtual("memory", false, func(t testing.TB) database {
		s, err := memstore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		return memoryDB{s}
	})
}

// memoryDB has one store for all: a process that dies loses it, so only its calls can go wrong
// here.
type memoryDB struct{ s *memstore.Store }

func (d memoryDB) connect(*onceqtest.Process) (*conn, error) {
	return &conn{store: d.s, close: func() {}}, nil
}
func (d memoryDB) store() dedupe.Store { return d.s }
func (memoryDB) rows() (int, error)    { return 0, nil }
func (memoryDB) age(bool) error        { return nil }
func (memoryDB) scope() string         { return scope }

func sqlite() *backend { return virtual("sqlite", true, openSQLite) }

// sqliteDB is a file.
type sqliteDB struct {
	path  string
	watch *sql.DB
	s     *sqlitestore.Store
}

// template is a file with the tables: to make them takes longer than a cell.
var template = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "matrix")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "template.db")
	db, err := sql.Open("sqlite", sqlitestore.DSN(path))
	if err != nil {
		return nil, err
	}
	s, err := sqlitestore.New(db, nil)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	if err := s.Migrate(ctx); err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE effects (key TEXT NOT NULL, fence INTEGER NOT NULL)"); err != nil {
		return nil, err
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	if err := db.Close(); err != nil { // it takes the write-ahead log into the file
		return nil, err
	}
	return os.ReadFile(path)
})

func openSQLite(t testing.TB) database {
	t.Helper()
	file, err := template()
	if err != nil {
		t.Fatal(err)
	}
	d := &sqliteDB{path: filepath.Join(t.TempDir(), "orders.db")}
	if err := os.WriteFile(d.path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	if d.watch, err = d.pool(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.watch.Close() })
	if d.s, err = sqlitestore.New(d.watch, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.s.Close() })
	return d
}

// pool opens a pool. No machine loses its power here, so nothing waits for the disk.
func (d *sqliteDB) pool() (*sql.DB, error) {
	return sql.Open("sqlite", strings.Replace(sqlitestore.DSN(d.path), "_synchronous=FULL", "_synchronous=OFF", 1))
}

func (d *sqliteDB) connect(p *onceqtest.Process) (*conn, error) {
	db, err := d.pool()
	if err != nil {
		return nil, err
	}
	s, err := sqlitestore.New(db, nil)
	if err != nil {
		return nil, err
	}
	end := sync.OnceFunc(func() {
		s.Close()
		db.Close()
	})
	p.OnDeath(func() { go end() }) // it waits for a transaction that the dying goroutine may have open
	return &conn{
		store: s, close: end,
		complete: func(ctx context.Context, p *onceqtest.Process, j *onceq.Job) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if err := p.Call(ctx, effect, func(ctx context.Context) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES (?, ?)", j.Key().Key, int64(j.Fence()))
				return err
			}); err != nil {
				return err
			}
			if err := p.Call(ctx, complete, func(ctx context.Context) error { return s.CompleteTx(ctx, tx, j, "paid") }); err != nil {
				return err
			}
			err = p.Call(ctx, commit, func(ctx context.Context) error {
				// database/sql looks only at the context that the transaction began with.
				if err := ctx.Err(); err != nil {
					return err
				}
				return tx.Commit()
			})
			if err != nil {
				return fmt.Errorf("%w: %w", errCommit, err)
			}
			return nil
		},
	}, nil
}

func (d *sqliteDB) rows() (n int, err error) {
	err = d.watch.QueryRow("SELECT count(*) FROM effects").Scan(&n)
	return n, err
}

func (d *sqliteDB) store() dedupe.Store { return d.s }
func (*sqliteDB) age(bool) error        { return nil }
func (*sqliteDB) scope() string         { return scope }
