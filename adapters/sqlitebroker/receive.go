package sqlitebroker

import (
	"context"
	"database/sql"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/sqlitewriter"
	"github.com/onceq/onceq/internal/tablequeue"
)

// This file owns receives: a look at the table, and how a receive waits from look to look. A
// worker's pollers call Receive, each in a goroutine of its own. A look first asks a connection of
// the pool whether anything is due, so that an idle queue never takes the file's write lock.

// maxRedriven is how many messages one look moves to the dead letters.
const maxRedriven = 1000

// Receive brings up to o.Max messages, those first that were due first. Of a group it brings one at
// a time. Where nothing is there it looks again each [Options].Poll until o.Wait is over, and at
// once when something becomes due, is sent through a Queue of the same store, or [Queue.Wake] is
// called.
//
// When ctx ends, a transaction under way goes on for up to 3 s, and what it brings is returned.
func (q *Queue) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	const call = tablequeue.CallReceive
	if err := q.ready(ctx, call, 1, 1); err != nil {
		return nil, err
	}
	if err := q.s.CompleteReceive(&o); err != nil {
		return nil, q.wrap(call, err)
	}
	end := time.Now().Add(o.Wait)
	for first := true; ; first = false {
		if q.wakes.Turn(q.s.Poll) || first {
			ms, more, err := q.look(ctx, &o)
			if more {
				q.wakes.Wake() // for another receive
			}
			if err != nil || len(ms) > 0 {
				return ms, err
			}
		}
		left := time.Until(end)
		if left <= 0 {
			return nil, nil
		}
		q.wakes.Wait(ctx, q.closing.C(), min(left, q.wakes.UntilTurn(q.s.Poll)))
		if q.isClosed() {
			return nil, q.wrap(call, broker.ErrClosed)
		}
		if ctx.Err() != nil {
			return nil, q.wrap(call, ctx.Err())
		}
	}
}

// look takes what is due. more says that there may be more of it.
func (q *Queue) look(ctx context.Context, o *broker.ReceiveOptions) (ms []*broker.Message, more bool, err error) {
	if q.hot.Load() {
		if ms, more, err = q.fetch(ctx, o); err != nil || more || len(ms) > 0 {
			return ms, more, err
		}
	}
	next, err := q.first(ctx)
	if err != nil {
		return nil, false, err
	}
	// Texts are compared, as the statement does: what somebody wrote by hand may be no date.
	if next == "" || next > time.Now().UTC().Format(sqlitewriter.TimeLayout) {
		q.wakes.Expect(parseTime(next))
		return nil, false, nil
	}
	return q.fetch(ctx, o)
}

// fetch takes what is due, in a transaction.
func (q *Queue) fetch(ctx context.Context, o *broker.ReceiveOptions) (ms []*broker.Message, more bool, err error) {
	l := new(look)
	err = q.write(ctx, tablequeue.CallReceive, o.Max, func(t *sqlitewriter.Txn) error {
		*l = look{q: q, t: t, o: o}
		return l.take()
	})
	if err != nil {
		return nil, false, err
	}
	q.hot.Store(len(l.ms) > 0)
	if l.moved > 0 {
		q.letters.Wake()
	}
	return l.ms, len(l.ms) == o.Max || l.moved >= maxRedriven, nil
}

// first is when the first message is visible, as the table has it; empty = there is none.
func (q *Queue) first(ctx context.Context) (due string, err error) {
	err = q.read(ctx, tablequeue.CallReceive, q.sql.first, []any{q.name}, func(rows *sql.Rows) error {
		return rows.Scan(&due)
	})
	return due, err
}

// look is one transaction that takes messages.
type look struct {
	q     *Queue
	t     *sqlitewriter.Txn
	o     *broker.ReceiveOptions
	ms    []*broker.Message
	moved int // to the dead letters
}

func (l *look) take() error {
	now := sqlitewriter.TimeText(l.t.Now)
	deadline := l.t.Now.Add(l.o.Visibility)
	until := sqlitewriter.TimeText(deadline)
	for {
		var w row
		var rows []taken
		want := l.o.Max - len(l.ms)
		err := l.t.Each(l.q.sql.due, []any{l.q.name, now, want}, func(r *sql.Rows) error {
			if err := r.Scan(w.targets()...); err != nil {
				return err
			}
			w.attempts = nextAttempt(w.attempts)
			m, receipt := w.message()
			rows = append(rows, taken{m, receipt.Seq})
			return nil
		})
		if err != nil {
			return err
		}
		moved := l.moved
		for _, r := range rows {
			if most := l.q.s.MaxReceives; most > 0 && r.m.Attempt > most {
				l.moved++
				_, err = l.t.Exec(l.q.sql.redrive, r.seq, l.q.s.DeadLetters, now)
			} else {
				r.m.Deadline = deadline
				l.ms = append(l.ms, r.m)
				_, err = l.t.Exec(l.q.sql.take, r.seq, until)
			}
			if err != nil {
				return err
			}
		}
		if l.moved == moved || len(l.ms) == l.o.Max || l.moved >= maxRedriven {
			return nil
		}
	}
}

// taken is a row that was found.
type taken struct {
	m   *broker.Message
	seq int64
}
