package pgbroker

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/onceq/onceq/broker"
)

// This file owns what operators ask: how many messages there are, and how the queue dead-letters.
// Nothing is locked, and no message is received.

// maxCount is where counting stops: a backlog of millions must not cost more than its first part.
const maxCount = 100_000

// depthOf counts, of each kind, the first rows in the index. What is held is due within 12 hours, so
// it stands before long delays. A group's followers count as visible.
const depthOf = `SELECT
	(SELECT pg_catalog.count(*) FROM (SELECT FROM {table} t WHERE t.queue {=} $1::pg_catalog.text AND NOT t.waits AND t.due {<=} {now} LIMIT $2::bigint) a),
	(SELECT pg_catalog.count(*) FROM (SELECT FROM {table} t WHERE t.queue {=} $1::pg_catalog.text AND t.grp IS NOT NULL AND t.waits LIMIT $2::bigint) b),
	(SELECT pg_catalog.count(*) FROM (SELECT t.held FROM {table} t WHERE t.queue {=} $1::pg_catalog.text AND NOT t.waits AND t.due {>} {now} ORDER BY t.due LIMIT $2::bigint) c WHERE c.held),
	(SELECT pg_catalog.count(*) FROM (SELECT t.held FROM {table} t WHERE t.queue {=} $1::pg_catalog.text AND NOT t.waits AND t.due {>} {now} ORDER BY t.due LIMIT $2::bigint) d WHERE NOT d.held),
	(SELECT t.published FROM {table} t WHERE t.queue {=} $1::pg_catalog.text AND NOT t.waits AND t.due {<=} {now} ORDER BY t.due, t.seq LIMIT 1)`

// peekRows reads messages and leaves them.
const peekRows = `SELECT {columns} FROM {table} t WHERE t.queue {=} $1::pg_catalog.text AND NOT t.waits AND t.due {<=} {now} ORDER BY t.due, t.seq LIMIT $2::bigint`

// Depth counts the messages, up to 100,000 of each kind. Visible includes those that wait behind
// their group's head.
func (q *Queue) Depth(ctx context.Context) (broker.Depth, error) {
	const call = "Depth"
	if err := q.ready(ctx, call, 1, 1); err != nil {
		return broker.Depth{}, err
	}
	var d broker.Depth
	var waiting int64
	var oldest pgtype.Timestamptz
	p := newPipeline()
	p.query(q.sql().depth, []any{q.name, int64(maxCount)}, func(rows pgx.Rows) error {
		return rows.Scan(&d.Visible, &waiting, &d.InFlight, &d.Delayed, &oldest)
	})
	if err := p.run(ctx, q.db); err != nil {
		return broker.Depth{}, q.explain(ctx, call, err)
	}
	d.Visible = min(d.Visible+waiting, maxCount)
	return d, nil
}

// RedrivePolicy answers what the options have set. retention is 0, because messages are kept until
// they are acked.
func (q *Queue) RedrivePolicy(ctx context.Context) (maxReceives int, target string, retention time.Duration, err error) {
	if err := q.ready(ctx, "RedrivePolicy", 1, 1); err != nil {
		return 0, "", 0, err
	}
	return q.o.MaxReceives, q.o.DeadLetters, 0, nil
}
