package sqlitebroker

import (
	"context"
	"database/sql"
	"iter"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/sqlitewriter"
	"github.com/onceq/onceq/internal/tablequeue"
)

// Depth counts the messages, up to 100,000 of each kind. Visible includes those that wait behind
// their group's head. Oldest is since when the first message that can be received is due.
func (q *Queue) Depth(ctx context.Context) (broker.Depth, error) {
	const call = "Depth"
	if err := q.ready(ctx, call, 1, 1); err != nil {
		return broker.Depth{}, err
	}
	var d broker.Depth
	var waiting int64
	var oldest sql.NullString
	err := q.read(ctx, call, q.sql.depth, []any{q.name, sqlitewriter.TimeText(time.Now()), tablequeue.MaxCount}, func(rows *sql.Rows) error {
		return rows.Scan(&d.Visible, &waiting, &d.InFlight, &d.Delayed, &oldest)
	})
	if err != nil {
		return broker.Depth{}, err
	}
	d.Visible = min(d.Visible+waiting, tablequeue.MaxCount)
	d.Oldest = parseTime(oldest.String)
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
		var ms []*broker.Message
		err := q.read(ctx, call, q.sql.peek, []any{q.name, sqlitewriter.TimeText(time.Now()), n}, func(rows *sql.Rows) error {
			var (
				hidden bool
				due    string
				w      row
			)
			if err := rows.Scan(append([]any{&hidden, &due}, w.targets()...)...); err != nil {
				return err
			}
			m, _ := w.message()
			if m.Receipt = ""; hidden {
				m.Deadline = parseTime(due)
			}
			ms = append(ms, m)
			return nil
		})
		if err != nil {
			yield(nil, err)
			return
		}
		for _, m := range ms {
			if !yield(m, nil) {
				return
			}
		}
	}
}
