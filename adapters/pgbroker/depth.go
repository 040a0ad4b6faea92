package pgbroker

import (
	"context"
	"iter"
	"net"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/tablequeue"
)

// This file owns what operators ask: how many messages there are, and how the queue dead-letters.
// Nothing is locked, and no message is received.

// depthOf counts, of each kind, the first rows in the index. What is held is due within 12 hours,
// so it stands before long delays. A group's followers count as visible.
const depthOf = `SELECT
	(SELECT pg_catalog.count(*) FROM (SELECT FROM {table} t WHERE t.queue {=} $1::pg_catalog.text AND NOT t.waits AND t.due {<=} {now} LIMIT $2::bigint) a),
	(SELECT pg_catalog.count(*) FROM (SELECT FROM {table} t WHERE t.queue {=} $1::pg_catalog.text AND t.grp IS NOT NULL AND t.waits LIMIT $2::bigint) b),
	(SELECT pg_catalog.count(*) FROM (SELECT t.held FROM {table} t WHERE t.queue {=} $1::pg_catalog.text AND NOT t.waits AND t.due {>} {now} ORDER BY t.due LIMIT $2::bigint) c WHERE c.held),
	(SELECT pg_catalog.count(*) FROM (SELECT t.held FROM {table} t WHERE t.queue {=} $1::pg_catalog.text AND NOT t.waits AND t.due {>} {now} ORDER BY t.due LIMIT $2::bigint) d WHERE NOT d.held),
	(SELECT t.due FROM {table} t WHERE t.queue {=} $1::pg_catalog.text AND NOT t.waits AND t.due {<=} {now} ORDER BY t.due, t.seq LIMIT 1)`

// peekRows reads messages and leaves them.
const peekRows = `SELECT t.due {>} {now}, t.due, {columns} FROM {table} t
WHERE t.queue {=} $1::pg_catalog.text AND NOT t.waits ORDER BY t.due, t.seq LIMIT $2::bigint`

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
	p.Query(q.sql().depth, []any{q.name, int64(tablequeue.MaxCount)}, func(rows pgx.Rows) error {
		return rows.Scan(&d.Visible, &waiting, &d.InFlight, &d.Delayed, &oldest)
	})
	if err := p.Run(ctx, q.db); err != nil {
		return broker.Depth{}, q.explain(ctx, call, err)
	}
	d.Visible = min(d.Visible+waiting, tablequeue.MaxCount)
	if oldest.Valid {
		d.Oldest = instant(oldest)
	}
	return d, nil
}

// Peek shows up to n messages, 1 to 1,000, of a group its head alone. It receives nothing, and
// waits for nobody.
func (q *Queue) Peek(ctx context.Context, n int) iter.Seq2[*broker.Message, error] {
	const call = "Peek"
	return func(yield func(*broker.Message, error) bool) {
		if err := q.ready(ctx, call, 1, 1); err != nil {
			yield(nil, err)
			return
		}
		if err := tablequeue.CheckPeek(n); err != nil {
			yield(nil, q.wrap(call, err))
			return
		}
		var (
			ms     []*broker.Message
			hidden bool
			due    pgtype.Timestamptz
			w      row
		)
		to := append([]any{&hidden, &due}, w.targets()...)
		p := newPipeline()
		p.Query(q.sql().peek, []any{q.name, int64(n)}, func(rows pgx.Rows) error {
			if err := rows.Scan(to...); err != nil {
				return err
			}
			m, _ := w.message()
			if m.Receipt = ""; hidden {
				m.Deadline = instant(due)
			}
			ms = append(ms, m)
			return nil
		})
		if err := p.Run(ctx, q.db); err != nil {
			yield(nil, q.explain(ctx, call, err))
			return
		}
		for _, m := range ms {
			if !yield(m, nil) {
				return
			}
		}
	}
}

// Describe names the queue. The address is that of the pool, where it is a [*pgxpool.Pool], with
// the table, and without the user.
//
// [*pgxpool.Pool]: https://pkg.go.dev/github.com/jackc/pgx/v5/pgxpool#Pool
func (q *Queue) Describe() broker.Description {
	if q == nil {
		return broker.Description{}
	}
	where := ""
	if pool, ok := q.db.(*pgxpool.Pool); ok {
		c := pool.Config().ConnConfig
		where = net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))) + "/" + c.Database + "/"
	}
	return broker.Description{System: "postgresql", Name: q.name, Address: where + q.sql().name + "/" + q.name}
}

// Redrive answers what the options have set. Retention is 0, because messages are kept until they
// are acked.
func (q *Queue) Redrive(ctx context.Context) (broker.RedrivePolicy, error) {
	if err := q.ready(ctx, "Redrive", 1, 1); err != nil {
		return broker.RedrivePolicy{}, err
	}
	return broker.RedrivePolicy{MaxReceives: q.s.MaxReceives, Target: q.s.DeadLetters}, nil
}
