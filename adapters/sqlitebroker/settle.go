package sqlitebroker

import (
	"context"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/sqlitewriter"
	"github.com/onceq/onceq/internal/tablequeue"
)

// This file owns acks, nacks and extensions. A worker's calls come from many goroutines; a settling
// belongs to one call, so nothing is locked here.

// Ack removes the messages. An ack is late only when the message was delivered again, or given
// back: then it answers [broker.ErrReceiptExpired] and changes nothing. So does an ack that is
// repeated.
func (q *Queue) Ack(ctx context.Context, rs []broker.Receipt) error {
	s := tablequeue.Acks(rs, q.wrapper(tablequeue.CallAck))
	return q.settle(ctx, tablequeue.CallAck, &s, q.sql.ack, nil, false)
}

// Nack gives the messages back after their delay, 0 to Limits.MaxNack. A message of a group stays
// the head of its group, which waits for it. The receipt is void afterwards.
func (q *Queue) Nack(ctx context.Context, hs []broker.Hold) error {
	s := tablequeue.Nacks(hs, q.wrapper(tablequeue.CallNack))
	return q.settle(ctx, tablequeue.CallNack, &s, q.sql.nack, hs, false)
}

// Extend hides the messages for their time from now, 100 ms to 12 h, as often as the caller likes.
// The time may be shorter than what was left. An extension that comes after the deadline answers
// [broker.ErrReceiptExpired] and changes nothing.
func (q *Queue) Extend(ctx context.Context, hs []broker.Hold) error {
	s := tablequeue.Extensions(hs, q.wrapper(tablequeue.CallExtend))
	return q.settle(ctx, tablequeue.CallExtend, &s, q.sql.extend, hs, true)
}

// settle runs the statement for each receipt; holds are nil for an ack. before says that the
// statement asks for a deadline that has not passed.
func (q *Queue) settle(ctx context.Context, call string, s *tablequeue.Settling, query string, holds []broker.Hold, before bool) error {
	if s.N == 0 {
		return nil
	}
	if err := q.ready(ctx, call, s.N, tablequeue.SettleBatch); err != nil {
		return err
	}
	es := s.Entries()
	if len(es) == 0 {
		return s.Answer()
	}
	var times []time.Duration // the caller may use holds again while the transaction still runs
	for _, e := range es {
		if holds != nil {
			times = append(times, holds[e.I].For)
		}
	}
	applied := make([]bool, len(es))
	err := q.write(ctx, call, len(es), func(t *sqlitewriter.Txn) error {
		for n, e := range es {
			args := []any{e.Seq, q.name, e.N}
			if times != nil {
				args = append(args, sqlitewriter.TimeText(t.Now.Add(times[n])))
			}
			if before {
				args = append(args, sqlitewriter.TimeText(t.Now))
			}
			res, err := t.Exec(query, args...)
			if err != nil {
				return err
			}
			rows, err := res.RowsAffected()
			if err != nil {
				return err
			}
			applied[n] = rows > 0
		}
		return nil
	})
	if err != nil {
		return err
	}
	wake := call == tablequeue.CallNack
	for n, e := range es {
		if !applied[n] {
			s.Fail(e.I, broker.ErrReceiptExpired)
		} else if call == tablequeue.CallAck && e.Grouped {
			wake = true // the next of its group is there
		}
	}
	if wake {
		q.wakes.Wake()
	}
	return s.Answer()
}
