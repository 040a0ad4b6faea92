package matrix

import (
	"database/sql"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/onceq/onceq/adapters/sqlitebroker"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/onceqtest"
)

// sqliteQueue is a queue in a file of its own. Each process has a writer of its own, which ends
// with it. The modes without the job's own transaction are sqlite's to show: the queue's calls are
// the same ones there.
func sqliteQueue() *backend {
	b := sqlite()
	b.only = []mode{completeTx}
	b.name, b.plain, b.queues = "sqlite-queue", true, func(t testing.TB, b *backend) queues {
		return &sqliteQueues{t: t, path: filepath.Join(t.TempDir(), "queue.db"), b: b}
	}
	return b
}

type sqliteQueues struct {
	t    testing.TB
	path string
	b    *backend
}

func (q *sqliteQueues) connect(p *onceqtest.Process) (es ends, err error) {
	db, err := sql.Open("sqlite", strings.Replace(sqlitestore.DSN(q.path), "_synchronous=FULL", "_synchronous=OFF", 1))
	if err != nil {
		return es, err
	}
	store, err := sqlitestore.New(db, nil)
	if err != nil {
		return es, err
	}
	stop := sync.OnceFunc(func() {
		store.Close()
		db.Close()
	})
	q.t.Cleanup(stop)
	if p != nil {
		p.OnDeath(func() { go stop() }) // it waits for a transaction that may be under way
	}
	for name, e := range map[string]*end{"orders": &es.queue, "letters": &es.letters} {
		own, err := sqlitebroker.New(store, name, &sqlitebroker.Options{Visibility: q.b.visibility})
		if err != nil {
			return es, err
		}
		if p == nil { // processes find the table
			if err := own.Migrate(q.t.Context()); err != nil {
				return es, err
			}
		}
		*e = own
	}
	return es, nil
}
