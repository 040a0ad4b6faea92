package matrix

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/onceq/onceq/adapters/pgbroker"
	"github.com/onceq/onceq/localstack"
	"github.com/onceq/onceq/onceqtest"
)

// postgresQueue is a queue in a table of PostgreSQL beside the store in the same server, each
// process with connections of its own, which end with it. The modes without the job's own
// transaction are postgres's to show: the queue's calls are the same ones there.
func postgresQueue(t *testing.T) *backend {
	t.Helper()
	b := postgres(t)
	url := localstack.Postgres(t).URL
	var cells atomic.Int64
	b.only = []mode{completeTx}
	b.name, b.queues = "postgres-queue", func(t testing.TB, b *backend) queues {
		return &postgresQueues{t: t, url: url, name: fmt.Sprintf("orders-%d", cells.Add(1)), b: b}
	}
	return b
}

type postgresQueues struct {
	t    testing.TB
	url  string
	name string
	b    *backend
}

func (q *postgresQueues) connect(p *onceqtest.Process) (es ends, err error) {
	pool, err := dial(q.url, p)
	if err != nil {
		return es, err
	}
	q.t.Cleanup(pool.Close)
	for name, e := range map[string]*end{q.name: &es.queue, q.name + "-letters": &es.letters} {
		own, err := pgbroker.New(pool, name, &pgbroker.Options{Visibility: q.b.visibility})
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
